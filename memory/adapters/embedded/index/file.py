"""
The index's SQLite file: segments and, for each tree, the commit they reach.

Content and reach change in one transaction, so that a crash can lose the last updates but never leave half of one. The file is
derived: when it is damaged or of another format it is put aside by making a new, empty one.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import accumulate
from pathlib import Path
from typing import TypeVar

import numpy as np

from memory.adapters.embedded.files import connect, set_wal, transaction, translated
from memory.adapters.embedded.index.segment import (
    Segment,
    SegmentDamagedError,
    concatenate,
    decode,
    encode,
    grouped,
    merge,
    survivors,
)
from memory.errors import StoreDamagedError, StoreUnavailableError, TreeMismatchError
from memory.model import MARK_BITS

SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS trees (
  tree TEXT PRIMARY KEY, incarnation INTEGER NOT NULL, seq INTEGER NOT NULL, dimension INTEGER NOT NULL,
  alive INTEGER NOT NULL DEFAULT 0, stamp TEXT NOT NULL DEFAULT ''
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS segments (
  id INTEGER PRIMARY KEY AUTOINCREMENT, tree TEXT NOT NULL, last INTEGER NOT NULL, size INTEGER NOT NULL, data BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS segments_by_tree ON segments (tree, last, id, size);
"""
"""`incarnation` differs for a tree that was dropped and made again; `alive` counts the rows that no later one superseded, going by
when their nodes were made; a compaction counts them."""

SEGMENT_ROWS_MAX = 16_384
"""Segments of this size are merged no more, only compacted."""
SEGMENT_FAN = 8
"""Neighbouring segments of about one size that are merged into one, or fewer when those make one of SEGMENT_ROWS_MAX."""
COMPACT_GROWTH = 2
"""A tree whose segments hold this many times the rows that count and as many more as this times SEGMENT_ROWS_MAX is compacted: its
largest segments too lose the rows that later commits superseded. One that only grows never is."""
PAGE_BYTES = 16_384
WAL_BYTES_KEPT = 64 * 2**20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the file stands for a tree."""

    seq: int
    incarnation: int
    """0 for a tree that it does not know."""


NOWHERE = Reach(0, 0)


class SegmentFile:
    """
    Segments of many trees in one file. Safe for several threads and processes.

    Args:
        path: the file, made when missing; None keeps everything in memory.
        form: names what the content was made with; a file of another form is replaced.
        busy_wait: how long to wait for another process that writes.
    """

    def __init__(self, path: Path | None, *, form: str, busy_wait: timedelta) -> None:
        self._path = path
        self._name = path or Path(":memory:")
        self._form = form
        self._busy_wait = busy_wait
        self._lock = threading.RLock()
        self._threads = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self._generation = 0
        self._opened = 0
        self._prepare()

    # ------------------------------------------------------------------------------------------------------------- reads

    def reach(self, tree: str) -> Reach:
        """Where the file stands."""
        return self._guarded(lambda connection: _reach(connection, tree))

    def stamp(self, tree: str) -> str:
        """What the last update was stamped with; "" for a tree that the file does not know."""

        def read(connection: sqlite3.Connection) -> str:
            row = connection.execute("SELECT stamp FROM trees WHERE tree = ?", (tree,)).fetchone()
            return str(row[0]) if row else ""

        return self._guarded(read)

    def since(self, tree: str, seq: int) -> tuple[Reach, list[Segment]]:
        """Where the file stands, and what it holds of later commits than `seq`, oldest first."""

        def read(connection: sqlite3.Connection) -> tuple[Reach, list[bytes]]:
            with transaction(connection):
                rows = connection.execute(
                    "SELECT data FROM segments WHERE tree = ? AND last > ? ORDER BY last, id", (tree, seq)
                ).fetchall()
                return _reach(connection, tree), [data for (data,) in rows]

        reach, blobs = self._guarded(read)
        try:
            return reach, [decode(data) for data in blobs]
        except SegmentDamagedError:
            self._replace(self._generation)
            return NOWHERE, []

    # ------------------------------------------------------------------------------------------------------------ writes

    def append(
        self, tree: str, *, after: int, seq: int, dimension: int, segment: Callable[[], Segment | None], stamp: str = ""
    ) -> bool:
        """
        Add a segment that brings the tree from `after` to `seq`; False when the tree does not stand at `after`.

        Args:
            tree: name of the tree.
            after: where it must stand.
            seq: where it stands afterwards.
            dimension: of the segment's vectors; 0 when it has none.
            segment: makes it; not called when the tree is seen to stand elsewhere. None when nothing is to be kept.
            stamp: kept with where it stands.

        Raises:
            TreeMismatchError: vectors of another dimension than the tree's.
        """
        if self.reach(tree).seq != after:
            return False
        made = segment()
        row = None if made is None else (_size(made), encode(made))
        alive = 0 if made is None else int(np.count_nonzero(made.marks >> MARK_BITS > after)) - len(made.removed)

        def write(connection: sqlite3.Connection) -> bool:
            with transaction(connection, write=True):
                if _reach(connection, tree).seq != after:
                    return False
                connection.execute(
                    "INSERT INTO trees (tree, incarnation, seq, dimension, stamp, alive) VALUES (?1, ?2, ?3, ?4, ?5, max(?6, 0))"
                    " ON CONFLICT (tree) DO UPDATE SET seq = ?3, dimension = CASE dimension WHEN 0 THEN ?4 ELSE dimension END,"
                    " stamp = ?5, alive = max(alive + ?6, 0)",
                    (tree, int.from_bytes(os.urandom(7)) + 1, seq, dimension, stamp, alive),
                )
                (known,) = connection.execute("SELECT dimension FROM trees WHERE tree = ?", (tree,)).fetchone()
                if dimension and known != dimension:
                    raise TreeMismatchError(f"tree {tree} is indexed with {known} dimensions, an update has {dimension}")
                if row is not None:
                    connection.execute(
                        "INSERT INTO segments (tree, last, size, data) VALUES (?, ?, ?, ?)", (tree, seq, row[0], row[1])
                    )
                return True

        return self._guarded(write, writes=True)

    def drop(self, tree: str) -> None:
        """Forget the tree."""

        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection, write=True):
                connection.execute("DELETE FROM segments WHERE tree = ?", (tree,))
                connection.execute("DELETE FROM trees WHERE tree = ?", (tree,))

        self._guarded(write, writes=True)

    def tidy(self, tree: str) -> bool:
        """Merge one run of segments, or compact the tree, when that is due; False when there was nothing to do."""

        def plan(connection: sqlite3.Connection) -> tuple[list[tuple[int, int]], int]:
            with transaction(connection):
                found = connection.execute("SELECT id, size FROM segments WHERE tree = ? ORDER BY last, id", (tree,)).fetchall()
                row = connection.execute("SELECT alive FROM trees WHERE tree = ?", (tree,)).fetchone()
                return found, row[0] if row else 0

        segments, alive = self._guarded(plan)
        total = sum(size for _, size in segments)
        if total > COMPACT_GROWTH * (alive + SEGMENT_ROWS_MAX):
            return self._rewrite(tree, [number for number, _ in segments], compact=True)
        run = due([size for _, size in segments])
        return run is not None and self._rewrite(tree, [number for number, _ in segments[run]], compact=False)

    def _rewrite(self, tree: str, numbers: Sequence[int], *, compact: bool) -> bool:
        """Replace segments by merged ones. Reading and merging are done outside the transaction that writes."""
        wanted = f"id IN ({','.join('?' * len(numbers))})"

        def read(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            return connection.execute(
                f"SELECT last, data FROM segments WHERE {wanted} ORDER BY last, id",  # noqa: S608  # only question marks
                numbers,
            ).fetchall()

        rows = self._guarded(read)
        if len(rows) != len(numbers):
            return False
        try:
            parts = [decode(data) for _, data in rows]
        except SegmentDamagedError:
            self._replace(self._generation)
            return False
        last = rows[-1][0]
        merged = [(_size(part), encode(part)) for part in (_compacted(parts) if compact else [merge(parts)])]

        def write(connection: sqlite3.Connection) -> bool:
            with suppress(_OvertakenError), transaction(connection, write=True):
                if connection.execute(f"DELETE FROM segments WHERE {wanted}", numbers).rowcount != len(numbers):  # noqa: S608
                    raise _OvertakenError
                connection.executemany(
                    "INSERT INTO segments (tree, last, size, data) VALUES (?, ?, ?, ?)",
                    [(tree, last, size, data) for size, data in merged],
                )
                if compact:
                    connection.execute("UPDATE trees SET alive = ? WHERE tree = ?", (sum(size for size, _ in merged), tree))
                return True
            return False

        return self._guarded(write, writes=True)

    # ------------------------------------------------------------------------------------------------------- connections

    def close(self) -> None:
        """Close all connections; no thread may be at work. Idempotent."""
        with self._lock:
            for connection in self._connections:
                with suppress(sqlite3.Error):
                    connection.close()
            self._connections.clear()
            self._generation += 1

    def _guarded(self, work: Callable[[sqlite3.Connection], T], *, writes: bool = False) -> T:
        """Run on this thread's connection; once more, on an empty file, when the file turns out to be damaged."""
        generation = self._generation
        try:
            return self._attempt(work, writes=writes)
        except StoreDamagedError:
            self._replace(generation)
            return self._attempt(work, writes=writes)

    def _attempt(self, work: Callable[[sqlite3.Connection], T], *, writes: bool) -> T:
        # Writers of one process queue here, in order; SQLite's own waiting is for other processes.
        with self._lock if writes or self._path is None else nullcontext(), translated(self._name):
            return work(self._connection())

    def _connection(self) -> sqlite3.Connection:
        if self._path is None:
            return self._connections[0]
        if self._inode() != self._opened:
            self._reopen()
        held: tuple[int, sqlite3.Connection] | None = getattr(self._threads, "held", None)
        return held[1] if held is not None and held[0] == self._generation else self._open()

    def _open(self) -> sqlite3.Connection:
        """A new connection, this thread's from now on."""
        if self._path is None:
            connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        else:
            connection = connect(self._path, busy_wait=self._busy_wait)
            # Derived data: a power cut may take the last updates, which the owner brings again.
            connection.execute("PRAGMA synchronous = NORMAL")
            connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES_KEPT}")
        with self._lock:
            self._connections.append(connection)
            self._threads.held = (self._generation, connection)
        return connection

    def _prepare(self) -> None:
        """Open the file, make its tables, and replace it when it is damaged or of another form."""
        try:
            with translated(self._name):
                form = self._make_tables(self._open())
        except StoreDamagedError:
            form = None
        if form != self._form:
            self._remove()
            with translated(self._name):
                self._make_tables(self._open())
        self._opened = self._inode()

    def _make_tables(self, connection: sqlite3.Connection) -> str:
        if self._path is not None:
            connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
            set_wal(connection, self._busy_wait)
        with transaction(connection, write=True):
            for statement in SCHEMA.split(";"):
                connection.execute(statement)
            connection.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('form', ?)", (self._form,))
            return str(connection.execute("SELECT value FROM meta WHERE key = 'form'").fetchone()[0])

    def _reopen(self) -> None:
        """Turn to the file that now stands at the path: another process has replaced it."""
        with self._lock:
            if self._inode() != self._opened:
                self._generation += 1
                self._prepare()

    def _replace(self, generation: int) -> None:
        """Put an empty file in the place of one that is damaged, unless another thread just did."""
        with self._lock:
            if generation == self._generation:
                self._generation += 1
                self._remove()
                self._prepare()

    def _remove(self) -> None:
        if self._path is None:
            self._connections.clear()
            return
        # Other threads' connections keep the removed file until they next ask for theirs.
        held: tuple[int, sqlite3.Connection] | None = getattr(self._threads, "held", None)
        if held is not None:
            held[1].close()
        for suffix in ("", "-wal", "-shm"):
            with translated_os(self._path):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _inode(self) -> int:
        try:
            return 0 if self._path is None else self._path.stat().st_ino
        except FileNotFoundError:
            return -1


class _OvertakenError(Exception):
    """Segments to be merged are there no more: another process merged or dropped them."""


@contextmanager
def translated_os(path: Path) -> Iterator[None]:
    """Raise the operating system's refusals as the domain's."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(f"{path} is damaged and cannot be replaced: {error.strerror}") from error


def due(sizes: Sequence[int]) -> slice | None:
    """
    SEGMENT_FAN or more neighbours of one size class or below, the smallest class first; None when there are none.

    No more of them than make a segment of SEGMENT_ROWS_MAX: a merge holds up whoever works beside it.
    """
    for level in range(tier(SEGMENT_ROWS_MAX - 1) + 1):
        start = 0
        for place, size in enumerate([*sizes, SEGMENT_ROWS_MAX]):
            if size >= SEGMENT_ROWS_MAX or tier(size) > level:
                if place - start >= SEGMENT_FAN:
                    reached = (at for at, rows in enumerate(accumulate(sizes[start:place]), start + 1) if rows >= SEGMENT_ROWS_MAX)
                    return slice(start, next(reached, place))
                start = place + 1
    return None


def tier(size: int) -> int:
    """Size class: SEGMENT_FAN segments of one class make one of the next."""
    return 0 if size < SEGMENT_FAN else (size.bit_length() - 1) // (SEGMENT_FAN.bit_length() - 1)


def _size(segment: Segment) -> int:
    return len(segment.nodes) + len(segment.removed)


def _compacted(segments: Sequence[Segment]) -> list[Segment]:
    """The rows that still count, in segments that are merged no more; removals stay, for readers that stand further back."""
    masks, removed = survivors(segments)
    groups = grouped([int(np.count_nonzero(mask)) for mask in masks], SEGMENT_ROWS_MAX)
    return [
        concatenate(segments[group], masks[group], removed=list(removed.items()) if group.stop == len(segments) else [])
        for group in groups
    ]


def _reach(connection: sqlite3.Connection, tree: str) -> Reach:
    row = connection.execute("SELECT seq, incarnation FROM trees WHERE tree = ?", (tree,)).fetchone()
    return Reach(*row) if row else NOWHERE
