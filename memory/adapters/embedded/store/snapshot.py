"""A view of one commit that is read page by page."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from memory.adapters.embedded.files import translated
from memory.adapters.embedded.store import reading
from memory.adapters.embedded.store.schema import KEY_BITS
from memory.adapters.embedded.store.threads import ReadThreads
from memory.errors import StoreUnavailableError
from memory.model import Node, TreeId

PAGE_NODES = 1000
IDLE_SECONDS = 60.0
"""A view is given up when no page is asked for in this time: an open one keeps the journal from being emptied."""


class Snapshot:
    """
    A tree's nodes as of one commit.

    Args:
        readers: threads to read on.
        connection: in a transaction, used by this alone.
        path: for messages.
        number: the tree's.
        idle_seconds: see `IDLE_SECONDS`.
    """

    def __init__(
        self, readers: ReadThreads, connection: sqlite3.Connection, path: Path, number: int, *, idle_seconds: float
    ) -> None:
        self._readers = readers
        self._connection = connection
        self._path = path
        self._number = number
        self._after = (number << KEY_BITS) - 1
        self._idle_seconds = idle_seconds
        self._lock = threading.Lock()
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None

    @classmethod
    async def open(
        cls,
        readers: ReadThreads,
        connect: Callable[[], sqlite3.Connection],
        path: Path,
        tree: TreeId,
        *,
        idle_seconds: float = IDLE_SECONDS,
    ) -> Snapshot:
        """
        A view of the present commit.

        Raises:
            TreeNotFoundError: there is no such tree.
        """

        def begin() -> Snapshot:
            with translated(path):
                connection = connect()
                try:
                    connection.execute("BEGIN")
                    number = reading.tree_number(connection, tree)
                except BaseException:
                    connection.close()
                    raise
            return cls(readers, connection, path, number, idle_seconds=idle_seconds)

        return await readers.call(begin)

    async def page(self, *, vectors: bool) -> list[Node]:
        """
        The next nodes in order of mark; none at the end.

        Raises:
            StoreUnavailableError: the view was given up because nobody asked for long.
        """
        if self._timer is not None:
            self._timer.cancel()

        def read() -> list[Node]:
            with self._lock, translated(self._path):
                if self._closed:
                    raise StoreUnavailableError(
                        f"reading {self._path} paused for more than {self._idle_seconds:g} s and was given up; start again"
                    )
                found, self._after = reading.page(self._connection, self._number, self._after, vectors=vectors, limit=PAGE_NODES)
                return found

        found = await self._readers.call(read)
        self._timer = asyncio.get_running_loop().call_later(self._idle_seconds, self.close)
        return found

    def close(self) -> None:
        """End the view; idempotent. Waits for a page that is being read."""
        if self._timer is not None:
            self._timer.cancel()
        with self._lock:
            if not self._closed:
                self._closed = True
                self._connection.close()
