"""`banyan export` and `banyan import`."""

from __future__ import annotations

import gzip
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, cast

import click

from memory.errors import RecordError
from streams.cli.common import Session, run_async, shared_options
from streams.cli.console import counted
from streams.cli.reading import Input, InputError, is_gzip, open_inputs

_LINE_BYTES_MAX = 256 * 1024 * 1024
"""A line of an export is a commit: up to a thousand items with their vectors."""


@click.command(
    epilog="""
\b
Examples:
  banyan export user-42 -o user-42.jsonl.gz
  banyan export user-42 | ssh other banyan import -
"""
)
@click.argument("tree_name", metavar="TREE")
@click.option(
    "-o",
    "--output",
    "target",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Where to write; compressed when it ends in .gz. Without it: standard output.",
)
@shared_options
@run_async
async def export(tree_name: str, target: Path | None, session: Session) -> None:
    """
    Write TREE to a file that any Banyan can import: JSON lines, one a commit, with vectors.

    The file appears when it is complete; one that is there is replaced then.
    """
    lines = size = 0
    async with session.memory(mode="look") as memory:
        if target is None:
            async for line in memory.export(tree_name):
                session.output.write(line.rstrip(b"\n") + b"\n")
            return
        with replacing(target) as stream:
            async for line in memory.export(tree_name):
                whole = line.rstrip(b"\n") + b"\n"
                stream.write(whole)
                lines, size = lines + 1, size + len(whole)
    if session.output.as_json:
        session.output.emit({"tree": tree_name, "file": str(target), "lines": lines})
    else:
        session.output.note(f"{tree_name} written to {target}: {counted(lines, 'line')}, {size:,} bytes before compression")


@click.command(
    name="import",
    epilog="""
\b
Examples:
  banyan import user-42.jsonl.gz
  banyan import user-42.jsonl --tree user-42-copy
""",
)
@click.argument("file", metavar="FILE")
@click.option("--tree", metavar="T", help="Name of the new tree; without it the one it was exported as.")
@shared_options
@run_async
async def import_(file: str, tree: str | None, session: Session) -> None:
    """
    Make a tree from an exported FILE (plain or gzip; - is standard input).

    It is the same tree: same nodes, same history, same answers. Importing a file twice changes nothing, and an import that was
    interrupted goes on when it is repeated; a tree of that name with another history is left as it is.
    """
    [source] = open_inputs([file])
    if tree is not None:
        from memory.records import tree_id  # noqa: PLC0415  # brings numpy

        tree_id(tree)
    # No summaries meanwhile: one that was written would make the half-imported tree another one than the file's.
    async with session.memory(mode="write", summaries=False) as memory:
        try:
            info = await memory.import_(_lines(source), tree=tree)
        except RecordError as error:
            raise InputError(f"{source.label}: {error.reason}") from error
    if session.output.as_json:
        session.output.emit({"tree": info.id, "seq": info.seq})
    else:
        session.output.note(f"{info.id} imported: {counted(info.seq, 'commit')}")


@contextmanager
def replacing(target: Path) -> Iterator[BinaryIO]:
    """
    A stream whose content appears as `target`, on disk, if and only if the block ends well.

    Raises:
        InputError: the folder is not there or cannot be written.
    """
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    except OSError as error:
        raise InputError(f"{target} cannot be written: {error.strerror}") from error
    try:
        with os.fdopen(descriptor, "wb") as raw:
            if is_gzip(target.name):
                with gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as zipped:
                    yield cast("BinaryIO", zipped)
            else:
                yield raw
            raw.flush()
            os.fsync(raw.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def _lines(source: Input) -> Iterator[bytes]:
    for block in source.blocks(_LINE_BYTES_MAX):
        for line in block:
            if line.data is None:
                raise InputError(f"{source.label}:{line.number}: {line.reason}")
            yield line.data
