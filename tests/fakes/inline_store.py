"""The SQLite store without its threads: every call runs at once, on the event loop, in an order that a test decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar, cast

from memory.adapters.embedded.files import transaction, translated
from memory.adapters.embedded.leases import InProcessLeases
from memory.adapters.embedded.store import SqliteTreeStore
from memory.adapters.embedded.store.opening import open_reader, open_writer
from memory.adapters.embedded.store.threads import ReadThreads, WriteThread

T = TypeVar("T")
Point = Callable[[str], Awaitable[None]]
"""Called before and after each operation, with its name; may wait, raise, or never come back."""

BUSY = timedelta(seconds=1)


async def nothing(_: str) -> None:
    """Let the operation happen."""


class _Inline:
    def __init__(self, connection: sqlite3.Connection, path: Path, point: Point, name: str) -> None:
        self._connection = connection
        self._path = path
        self._point = point
        self._name = name

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        await self._point(f"before {self._name}")
        with translated(self._path), transaction(self._connection, write=self._name == "write") as connection:
            answer = work(connection)
        await self._point(f"after {self._name}")
        return answer

    async def call(self, work: Callable[[], T]) -> T:
        await self._point(f"before {self._name}")
        return work()

    def close(self) -> None:
        self._connection.close()


class InlineStore(SqliteTreeStore):
    """The real tables and the real compare-and-apply; not durable, which makes it fast."""

    _point: Point = staticmethod(nothing)

    @classmethod
    def make(cls, path: Path, *, leases: InProcessLeases | None, point: Point = nothing) -> Self:
        writer = open_writer(path, busy_wait=BUSY)
        writer.execute("PRAGMA synchronous = OFF")
        reader = open_reader(path, busy_wait=BUSY, read_only=False)
        made = cls(
            path,
            writer=cast(WriteThread, _Inline(writer, path, point, "write")),
            readers=cast(ReadThreads, _Inline(reader, path, point, "read")),
            busy_wait=BUSY,
            leases=leases,
        )
        made._point = point
        return made

    async def _clean(self) -> None:
        """Files are looked at where the real store writes them."""
        await self._point("clean")

    async def close(self) -> None:
        for part in (self._writer, self._readers):
            cast(Any, part).close()


__all__ = ["InlineStore", "Point", "nothing"]
