"""Trees in one SQLite file."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Self

from memory.adapters.embedded.files import connect as connect_file
from memory.adapters.embedded.leases import InProcessLeases
from memory.adapters.embedded.scrubbing import Shared, empty_journal, rewrite
from memory.adapters.embedded.store import reading, removing, writing
from memory.adapters.embedded.store.cache import RowCache
from memory.adapters.embedded.store.checkpoints import Checkpoints
from memory.adapters.embedded.store.opening import open_reader, open_writer
from memory.adapters.embedded.store.snapshot import Snapshot
from memory.adapters.embedded.store.threads import ReadThreads, WriteThread
from memory.errors import StoreUnavailableError
from memory.model import EventId, Mark, Node, NodeId, TreeId, TreeInfo
from memory.ports.leases import Lease
from memory.ports.store import (
    Applied,
    ChangeSet,
    Contribution,
    DirtyNode,
    Link,
    LogEntry,
    Receipt,
    Seen,
    Skeleton,
    Stale,
    TreeStats,
    TreeStore,
)

READERS = 4
"""Reads at the same time; more wait."""


class SqliteTreeStore(TreeStore):
    """
    Many trees in one SQLite file, in WAL mode with `synchronous = FULL`: acknowledged means on disk.

    Writes run one after the other on a thread of their own; `apply` calls that wait at the same time share one commit. Reads
    run beside them on a few threads. Several processes may use one file at once. `TreeStats.bytes` is the file's size, shared
    out among its trees by their numbers of nodes.
    """

    def __init__(
        self, path: Path, *, writer: WriteThread | None, readers: ReadThreads, busy_wait: timedelta, leases: InProcessLeases | None
    ) -> None:
        self._path = path
        self._writer = writer
        self._readers = readers
        self._busy_wait = busy_wait
        self._leases = leases
        self._cache = RowCache()
        self._scrub = Shared(self._scrubbed)

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        leases: InProcessLeases | None = None,
        busy_wait: timedelta = timedelta(seconds=10),
        read_only: bool = False,
    ) -> Self:
        """
        Open the file, making it when it is missing and bringing it to the newest version when it is older.

        A file that exists but cannot be written is opened for reading; writes then raise `StoreUnavailableError`.

        Args:
            path: the file; SQLite keeps two more beside it (`-wal`, `-shm`).
            leases: where leases given to `apply` were taken.
            busy_wait: how long a call waits for other processes before it raises `StoreBusyError`.
            read_only: never write: the file must exist.

        Raises:
            StoreBusyError: another process holds the file.
            StoreUnavailableError: the file cannot be made or read.
            StoreDamagedError: the file is no Banyan store.
            StoreVersionError: a newer Banyan wrote it.
        """
        return await asyncio.to_thread(cls._open, path, leases, busy_wait, read_only)

    @classmethod
    def _open(cls, path: Path, leases: InProcessLeases | None, busy_wait: timedelta, read_only: bool) -> Self:
        writer: sqlite3.Connection | None = None
        if not read_only:
            try:
                writer = open_writer(path, busy_wait=busy_wait)
            except StoreUnavailableError:
                if not path.is_file():
                    raise
        connect = partial(open_reader, path, busy_wait=busy_wait, read_only=writer is None)
        if writer is None:
            connect().close()
        return cls(
            path,
            writer=None
            if writer is None
            else WriteThread(writer, path, checkpoints=Checkpoints(partial(connect_file, path, busy_wait=busy_wait, mode="rw"))),
            readers=ReadThreads(connect, path, size=READERS),
            busy_wait=busy_wait,
            leases=leases,
        )

    @property
    def _writing(self) -> WriteThread:
        if self._writer is None:
            raise StoreUnavailableError(f"{self._path} was opened for reading only, or cannot be written")
        return self._writer

    async def create_tree(self, info: TreeInfo) -> TreeInfo:
        """Make a tree, or return the one that is there."""
        return await self._writing.run(lambda connection: writing.create_tree(connection, info))

    async def tree(self, tree: TreeId) -> TreeInfo:
        """One tree."""
        return await self._readers.run(lambda connection: reading.tree_info(connection, tree))

    async def trees(self) -> list[TreeInfo]:
        """All trees, by name."""
        return await self._readers.run(reading.tree_infos)

    async def apply(
        self, changes: ChangeSet, *, lease: Lease | None = None, release: bool = False, after: int | None = None
    ) -> Applied | Seen | Stale:
        """Compare and apply; leases and the log are near enough to be asked for by themselves."""
        del release, after
        if lease is not None and self._leases is None:
            raise ValueError("a lease was given to a store that was opened without leases")
        leases = self._leases

        def held() -> bool:
            return lease is None or leases is None or leases.valid(lease)

        vectors = writing.vectors_of(changes)
        return await self._writing.run(lambda connection: writing.apply(connection, changes, vectors, held=held, cache=self._cache))

    async def redact(self, tree: TreeId, nodes: Mapping[NodeId, int], *, to: int) -> None:
        """Redact the log, some entries a transaction, then empty the journal."""
        number = await self._readers.run(lambda connection: reading.tree_number(connection, tree))
        after: int | None = 0
        while after is not None:
            after = await self._writing.run(partial(removing.redact, number=number, nodes=nodes, after=after))
        # What is noted as done must be: the old entries leave the disk first.
        await self._clean()
        await self._writing.run(partial(removing.redacted, number=number, to=to))

    async def _clean(self) -> None:
        """Have nothing of what was deleted left on disk."""
        await asyncio.to_thread(self._scrub)

    def _scrubbed(self) -> None:
        """Have the file written anew, between commits, and the journal emptied."""
        self._writing.alone(rewrite).result()
        empty_journal(self._path, busy_wait=self._busy_wait)

    async def receipts(self, tree: TreeId, events: Sequence[EventId]) -> dict[EventId, Receipt]:
        """Receipts of applied events."""
        return await self._readers.run(
            lambda connection: writing.receipts(connection, reading.tree_number(connection, tree), events)
        )

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> dict[NodeId, Node]:
        """Nodes by id."""
        return await self._readers.run(lambda connection: reading.nodes(connection, tree, ids, vectors=vectors))

    async def lineage(self, tree: TreeId, ids: Sequence[NodeId]) -> dict[NodeId, Node]:
        """Nodes and all above them, in one read."""
        return await self._readers.run(lambda connection: reading.lineage(connection, tree, ids))

    async def events_below(self, tree: TreeId, ids: Sequence[NodeId], *, limit: int) -> dict[NodeId, tuple[EventId, ...]]:
        """Events below nodes, in one read."""
        return await self._readers.run(lambda connection: reading.events_below(connection, tree, ids, limit=limit))

    async def children(self, tree: TreeId, node: NodeId, *, limit: int = 1000, after: Mark = Mark(0)) -> list[Node]:  # noqa: B008
        """Children in order of creation."""
        return await self._readers.run(lambda connection: reading.children(connection, tree, node, limit=limit, after=after))

    async def all_nodes(self, tree: TreeId, *, vectors: bool = False) -> AsyncIterator[Node]:
        """
        Every node in order of mark, as of one commit.

        The view is given up when nobody asks for the next node for a while, since the file cannot shrink its journal meanwhile;
        going on then raises `StoreUnavailableError`.
        """
        connect = partial(open_reader, self._path, busy_wait=self._busy_wait, read_only=self._writer is None)
        snapshot = await Snapshot.open(self._readers, connect, self._path, tree)
        try:
            while page := await snapshot.page(vectors=vectors):
                for node in page:
                    yield node
        finally:
            snapshot.close()

    async def skeleton(self, tree: TreeId) -> Skeleton:
        """The tree in columns."""
        return await self._readers.run(lambda connection: reading.skeleton(connection, tree))

    async def changes(self, tree: TreeId, after: int, *, limit: int = 1000) -> list[LogEntry]:
        """Log entries."""
        return await self._readers.run(lambda connection: reading.changes(connection, tree, after, limit=limit))

    async def contributions(self, tree: TreeId, node: NodeId, *, limit: int = 10_000) -> list[Contribution]:
        """Contributions of a node."""
        return await self._readers.run(lambda connection: reading.contributions(connection, tree, node, limit=limit))

    async def dirty(self, tree: TreeId, *, limit: int = 1000) -> list[DirtyNode]:
        """Nodes with contributions."""
        return await self._readers.run(lambda connection: reading.dirty(connection, tree, limit=limit))

    async def events(self, tree: TreeId) -> dict[EventId, tuple[NodeId, ...]]:
        """Every applied event."""
        return await self._readers.run(lambda connection: reading.events(connection, tree))

    async def links(self, tree: TreeId) -> tuple[Link, ...]:
        """Edges of the association graph."""
        return await self._readers.run(lambda connection: reading.links(connection, reading.tree_number(connection, tree)))

    async def stats(self, tree: TreeId) -> TreeStats:
        """Counts over the tree."""
        return await self._readers.run(lambda connection: reading.stats(connection, tree))

    async def close(self) -> None:
        """Finish what was asked for and close the file; idempotent."""
        await asyncio.to_thread(self._readers.close)
        if self._writer is not None:
            await asyncio.to_thread(self._writer.close)
