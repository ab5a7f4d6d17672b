"""Files to lines: plain or gzip, standard input, with a bound on a line, and a clear word about what is no text."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

import click

STDIN = "-"
BLOCK_BYTES = 65_536
"""Read at a time: a few hundred turns, so that a slow pipe's lines go in as they come."""

_GZIP = b"\x1f\x8b"
_NO_TEXT = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"SQLite format 3\x00": "a SQLite database",
    b"PAR1": "a Parquet file; convert it to JSON lines",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; use `zstd -dc FILE | banyan … -`",
    b"BZh": "compressed with bzip2; use `bzip2 -dc FILE | banyan … -`",
    b"\xfd7zXZ": "compressed with xz; use `xz -dc FILE | banyan … -`",
    b"%PDF": "a PDF; extract its text first",
    b"\xff\xfe": "UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)",
    b"\xfe\xff": "UTF-16; convert it to UTF-8 (iconv -f UTF-16 -t UTF-8)",
}


class InputError(click.ClickException):
    """A file that cannot be taken at all; the message names it and says what to do."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an input that is not blank."""

    number: int
    """From 1."""
    data: bytes | None
    """Without its line end; None when it cannot be taken."""
    reason: str
    """Why not; empty when it can."""
    position: int
    """Bytes of the input that have been read by now, as stored (compressed)."""


@dataclass(frozen=True, slots=True)
class Input:
    """Something to read lines from."""

    name: str
    """As it was given; `-` is standard input."""
    size: int | None
    """Bytes as stored, or None when unknown (a pipe)."""

    @property
    def label(self) -> str:
        """What messages call it."""
        return "stdin" if self.name == STDIN else self.name

    def blocks(self, line_bytes_max: int) -> Iterator[list[Line]]:
        """
        The lines, in blocks as they come.

        Args:
            line_bytes_max: longer lines are read past, never held.

        Raises:
            InputError: the file cannot be opened or is no text.
        """
        with _open(self.name, self.label) as stored:
            zipped = stored.peek(2)[:2] == _GZIP  # type: ignore[attr-defined]  # of a BufferedReader
            stream = cast("BinaryIO", gzip.GzipFile(fileobj=stored)) if zipped else stored
            cutter = _Cutter(line_bytes_max)
            first = True
            while True:
                try:
                    block = stream.read1(BLOCK_BYTES)  # type: ignore[attr-defined]  # buffered readers all have it
                except (OSError, EOFError, zlib.error) as error:
                    yield [Line(cutter.number + 1, None, f"record: cannot be read on: {_reason(error)}", self.size or 0)]
                    return
                if first and (unfit := _unfit(block)):
                    raise InputError(f"{self.label} is no JSON lines file: it is {unfit}")
                first = False
                position = self.size if not block and self.size is not None else _position(stored)
                yield list(cutter.cut(block, position))
                if not block:
                    return


def open_inputs(names: Sequence[str]) -> list[Input]:
    """
    Look at all inputs before the first is read, so that a misspelt name costs nothing.

    Raises:
        InputError: one is missing, a folder, unreadable, or no text; or standard input is named twice.
    """
    if list(names).count(STDIN) > 1:
        raise InputError("standard input (-) can be given once only")
    return [_look_at(name) for name in names]


def is_gzip(name: str) -> bool:
    """Whether a file to be written is to be compressed, by its name."""
    return name.lower().endswith(".gz")


class _Cutter:
    """Bytes in, lines out; what is longer than the bound is counted and forgotten."""

    def __init__(self, line_bytes_max: int) -> None:
        self.number = 0
        self._max = line_bytes_max
        self._parts: list[bytes] = []
        self._size = 0

    def cut(self, block: bytes, position: int) -> Iterator[Line]:
        """The lines that end in the block; an empty block ends the last line."""
        *ended, rest = block.split(b"\n")
        for part in ended:
            self._add(part)
            yield from self._end(position)
        self._add(rest)
        if not block and self._size:
            yield from self._end(position)

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max:
            self._parts.clear()
        elif part:
            self._parts.append(part)

    def _end(self, position: int) -> Iterator[Line]:
        self.number += 1
        data, size = b"".join(self._parts), self._size
        self._parts.clear()
        self._size = 0
        if size > self._max:
            yield Line(self.number, None, f"record: has {size:,} bytes, at most {self._max:,} are taken", position)
        elif data.strip():
            yield Line(self.number, data, "", position)


def _look_at(name: str) -> Input:
    if name == STDIN:
        if sys.stdin is None:  # the shell closed it: `<&-`
            raise InputError("standard input is closed")
        status = os.fstat(sys.stdin.fileno())
        return Input(name, status.st_size if stat.S_ISREG(status.st_mode) else None)
    path = Path(name)
    try:
        status = path.stat()
    except OSError as error:
        raise InputError(f"{name}: {_reason(error)}") from error
    if stat.S_ISDIR(status.st_mode):
        raise InputError(f"{name} is a folder; name the files in it, e.g. {path / '*.jsonl'}")
    if not stat.S_ISREG(status.st_mode):
        return Input(name, None)
    with _open(name, name) as stream:
        head = stream.read(512)
    if unfit := _unfit(head):
        raise InputError(f"{name} is no JSON lines file: it is {unfit}")
    return Input(name, status.st_size)


def _open(name: str, label: str) -> BinaryIO:
    try:
        if name == STDIN:
            # A stream of our own: the interpreter waits at its end for a thread that still reads from its own one.
            return open(sys.stdin.fileno(), "rb", closefd=False)  # a descriptor; closed by the caller
        return Path(name).open("rb")
    except OSError as error:
        raise InputError(f"{label}: {_reason(error)}") from error


def _unfit(head: bytes) -> str | None:
    for magic, what in _NO_TEXT.items():
        if head.startswith(magic):
            return what
    if b"\x00" in head and not head.startswith(_GZIP) and head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"["):
        return "binary data"
    return None


def _position(stream: BinaryIO) -> int:
    try:
        return stream.tell()
    except OSError:
        return 0


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "there is no such file"
    if isinstance(error, EOFError):
        return "the compressed data ends early"
    return getattr(error, "strerror", None) or str(error)
