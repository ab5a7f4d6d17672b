"""Run the command line, in this process or in one of its own, always with the embedder for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from streams.cli.app import run

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {"BANYAN_EMBEDDER": "hashing", "BANYAN_STORE": "sqlite:///memory", "COLUMNS": "100"}


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def value(self) -> Any:
        """The last line of standard output, as JSON."""
        return json.loads(self.out.splitlines()[-1])


class Banyan:
    """The command line in a folder of its own."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._captured = captured
        for name in list(os.environ):
            if name.startswith(("BANYAN_", "OPENAI_")):
                monkeypatch.delenv(name)
        for name, value in ENVIRONMENT.items():
            monkeypatch.setenv(name, value)
        monkeypatch.chdir(folder)

    def __call__(self, *arguments: str) -> Ran:
        """Run it in this process."""
        self._captured.readouterr()
        code = run(arguments)
        out, err = self._captured.readouterr()
        return Ran(code, out, err)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start it in a process of its own, with pipes."""
        return subprocess.Popen(
            [sys.executable, "-m", "streams.cli", *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]), **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def shell(self, *arguments: str, given: bytes = b"", **variables: str) -> Ran:
        """Run it in a process of its own."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(given, timeout=180)
        return Ran(process.returncode, out.decode(), err.decode())

    def write(self, name: str, lines: Sequence[object] | bytes) -> str:
        """A file of JSON lines (a string or bytes stand as they are); gives its name."""
        content = lines if isinstance(lines, bytes) else b"".join(_line(each) for each in lines)
        (self.folder / name).write_bytes(content)
        return name


def turn(number: int, text: str | None = None, **fields: object) -> dict[str, object]:
    """A turn of the tree `t`."""
    return {"tree": "t", "id": f"id-{number}", "text": text or f"turn {number} about the harbour and the tunnel", **fields}


def _line(each: object) -> bytes:
    if isinstance(each, bytes):
        return each + b"\n"
    return (each if isinstance(each, str) else json.dumps(each)).encode() + b"\n"
