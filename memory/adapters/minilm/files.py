"""The cache folder's two habits: found without a setting, and written so that nobody reads half a file."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def default_cache_dir() -> Path:
    """`~/.cache/banyan`. The environment is not asked: whoever reads settings passes another folder."""
    return Path.home() / ".cache" / "banyan"


def write_atomically(path: Path, content: bytes) -> bool:
    """
    Write a file of a cache; two writers at once leave one of the two contents, never a mixture.

    Returns:
        False when it could not be written (read-only folder, disk full); a cache may be missing.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                Path(temporary).unlink()
        return False
    return True
