"""The threads on which the store talks to SQLite: one writes, a few read, the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from memory.adapters.embedded.files import transaction, translated
from memory.adapters.embedded.store.checkpoints import Checkpoints
from memory.errors import StoreUnavailableError

T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]

GROUP_MAX = 64
"""Works that share one commit at most: bounds how long the first of them waits for the last."""


class _HalfDone(Exception):  # noqa: N818  # never leaves this module
    """A work raised after it had written something."""


@dataclass(frozen=True, slots=True)
class _Alone:
    """A work that needs the connection to itself."""

    work: Work[None]
    future: Future[None]


class WriteThread:
    """
    Runs writes one after the other on a thread of its own; those that wait at the same time share one commit.

    A work that raises before it has written anything does not touch the others; one that raises later undoes the group, whose
    works are then run each in a transaction of its own. An answer is given only after its commit.

    Args:
        connection: used by this thread alone from now on.
        path: for messages.
        checkpoints: told of each commit; None leaves the journal to SQLite.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, *, checkpoints: Checkpoints | None = None) -> None:
        self._connection = connection
        self._path = path
        self._checkpoints = checkpoints
        self._queue: queue.SimpleQueue[tuple[Work[Any], Future[Any]] | _Alone | None] = queue.SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._serve, name="banyan-store-write", daemon=True)
        self._thread.start()

    async def run(self, work: Work[T]) -> T:
        """The work's answer, durable. A caller that is cancelled while it waits does not learn whether it was run."""
        if self._closed:
            raise StoreUnavailableError(f"{self._path} is closed")
        future: Future[T] = Future()
        self._queue.put((work, future))
        return await asyncio.wrap_future(future)

    def alone(self, work: Work[None]) -> Future[None]:
        """Have a work run between two commits, outside a transaction; others wait meanwhile."""
        if self._closed:
            raise StoreUnavailableError(f"{self._path} is closed")
        future: Future[None] = Future()
        self._queue.put(_Alone(work, future))
        return future

    def close(self) -> None:
        """Finish what waits, then close the connection. Blocks."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
        self._thread.join()

    def _serve(self) -> None:
        ended = False
        while not ended:
            group: list[tuple[Work[Any], Future[Any]]] = []
            waiting = self._queue.get()
            while waiting is not None and not isinstance(waiting, _Alone):
                if waiting[1].set_running_or_notify_cancel():
                    group.append(waiting)
                if len(group) == GROUP_MAX or self._queue.empty():
                    break
                waiting = self._queue.get()
            ended = waiting is None
            if group:
                self._commit(group)
                if self._checkpoints is not None:
                    self._checkpoints.committed(self._connection)
            if isinstance(waiting, _Alone):
                self._by_itself(waiting)
        if self._checkpoints is not None:
            self._checkpoints.close()
        with suppress(sqlite3.Error):
            self._connection.close()

    def _by_itself(self, alone: _Alone) -> None:
        if alone.future.set_running_or_notify_cancel():
            try:
                with translated(self._path):
                    alone.work(self._connection)
            except BaseException as error:  # noqa: BLE001  # it belongs to who waits for it
                alone.future.set_exception(error)
            else:
                alone.future.set_result(None)

    def _commit(self, group: list[tuple[Work[Any], Future[Any]]]) -> None:
        try:
            outcomes = self._together([work for work, _ in group])
        except _HalfDone as failed:
            if len(group) > 1:
                for alone in group:
                    self._commit([alone])
                return
            outcomes = [failed.__cause__]
        except BaseException as error:  # noqa: BLE001  # whatever it is, it belongs to those who wait for it
            outcomes = [error] * len(group)
        for (_, future), outcome in zip(group, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _together(self, works: list[Work[Any]]) -> list[Any]:
        outcomes: list[Any] = []
        with translated(self._path), transaction(self._connection, write=True) as connection:
            for work in works:
                written = connection.total_changes
                try:
                    with translated(self._path):
                        outcomes.append(work(connection))
                except Exception as error:  # an answer to this work's caller
                    if connection.total_changes != written or not connection.in_transaction:
                        raise _HalfDone from error
                    outcomes.append(error)
        return outcomes


class ReadThreads:
    """
    Runs reads on a few threads, each with a connection and a transaction of its own: a read sees one commit.

    Args:
        connect: makes a connection for reading.
        path: for messages.
        size: number of threads.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], path: Path, *, size: int) -> None:
        self._connect = connect
        self._path = path
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._pool = ThreadPoolExecutor(size, thread_name_prefix="banyan-store-read")
        self._closed = False

    async def run(self, work: Work[T]) -> T:
        """The work's answer."""
        return await self.call(lambda: self._read(work))

    async def call(self, work: Callable[[], T]) -> T:
        """Run anything on one of the threads."""
        if self._closed:
            raise StoreUnavailableError(f"{self._path} is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def close(self) -> None:
        """Finish what runs, then close the connections. Blocks."""
        self._closed = True
        self._pool.shutdown(wait=True, cancel_futures=True)
        while self._connections:
            self._connections.pop().close()

    def _read(self, work: Work[T]) -> T:
        with translated(self._path):
            connection: sqlite3.Connection | None = getattr(self._local, "connection", None)
            if connection is None:
                connection = self._connect()
                self._local.connection = connection
                self._connections.append(connection)
            with transaction(connection):
                return work(connection)
