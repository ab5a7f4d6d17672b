"""
The index's SQLite file: segments and, for each tree, the commit they reach.

Content and reach change in one transaction, so that a crash can lose the last updates but never leave half of one. The file is
derived: when it is damaged or of another format it is put aside by making a new, empty one.
"""

from __future__ import annotations

import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from memory.adapters.embedded.files import connect, set_wal, transaction, translated
from memory.adapters.embedded.index.appending import NOWHERE, Append, Reach, Row, reach_of, rename, size_of, write_row
from memory.adapters.embedded.index.gathering import Gathered, read_whole
from memory.adapters.embedded.index.segment import (
    Segment,
    SegmentDamagedError,
    decode,
    encode,
    merge,
)
from memory.adapters.embedded.index.tidying import SEGMENT_ROWS_MAX, compacted, due
from memory.adapters.embedded.scrubbing import Shared, empty_journal, rewrite
from memory.errors import StoreBusyError, StoreDamagedError, StoreUnavailableError

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

COMPACT_GROWTH = 2
"""A tree whose segments hold this many times the rows that count and as many more as this times SEGMENT_ROWS_MAX is compacted: its
largest segments too lose the rows that later commits superseded. One that only grows never is."""
PAGE_BYTES = 16_384
COMPACTIONS_MAX = 20
"""Attempts to compact a tree that others bring up to date meanwhile."""
LOOKS_AGAIN = (0.02, 0.1, 0.5)  # seconds
"""Pauses before a file that is being made by others is opened again."""
WAL_BYTES_KEPT = 64 * 2**20

T = TypeVar("T")


class SegmentFile:
    """
    Segments of many trees in one file. Safe for several threads and processes.

    Args:
        path: the file, made when missing; None for one without a name, which is gone when it is closed.
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
        self._scrub = Shared(self._scrubbed)
        self._prepare()

    @property
    def passing(self) -> bool:
        """Whether everything is in memory."""
        return self._path is None

    # ------------------------------------------------------------------------------------------------------------- reads

    def reach(self, tree: str) -> Reach:
        """Where the file stands."""
        return self._guarded(lambda connection: reach_of(connection, tree))

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
                return reach_of(connection, tree), [data for (data,) in rows]

        reach, blobs = self._guarded(read)
        try:
            return reach, [decode(data) for data in blobs]
        except SegmentDamagedError:
            self._replace(self._generation)
            return NOWHERE, []

    def whole(self, tree: str) -> tuple[Reach, Gathered | None]:
        """Where the file stands, and all that counts of the tree; None of a tree that it does not know."""
        try:
            return read_whole(self._guarded, tree)
        except SegmentDamagedError:
            self._replace(self._generation)
            return NOWHERE, None

    # ------------------------------------------------------------------------------------------------------------ writes

    def standing(self, trees: Sequence[str]) -> list[tuple[int, str]]:
        """Where the file stands for each of the trees, and what the last update of each was stamped with."""

        def read(connection: sqlite3.Connection) -> list[tuple[int, str]]:
            rows = (connection.execute("SELECT seq, stamp FROM trees WHERE tree = ?", (tree,)).fetchone() for tree in trees)
            return [(int(row[0]), str(row[1])) if row else (0, "") for row in rows]

        return self._guarded(read)

    def append(self, wanted: Sequence[Append]) -> list[bool]:
        """
        Add segments, each of another tree, all in one transaction; tells of each whether the tree stood where it must.

        Raises:
            TreeMismatchError: vectors of another dimension than the tree's; nothing was added.
        """
        fit = [self.reach(one.tree).seq == one.after for one in wanted]
        rows = [Row.of(one) for one, fits in zip(wanted, fit, strict=True) if fits]
        if not rows:
            return fit

        def write(connection: sqlite3.Connection) -> list[bool]:
            with transaction(connection, write=True):
                return [write_row(connection, row) for row in rows]

        written = iter(self._guarded(write, writes=True))
        return [fits and next(written) for fits in fit]

    def drop(self, tree: str) -> None:
        """Forget the tree."""

        def write(connection: sqlite3.Connection) -> None:
            with transaction(connection, write=True):
                connection.execute("DELETE FROM segments WHERE tree = ?", (tree,))
                connection.execute("DELETE FROM trees WHERE tree = ?", (tree,))

        self._guarded(write, writes=True)

    def adopt(self, tree: str, made: str) -> bool:
        """Let what is kept under another name be the tree's, when it reaches as far; False when it does not."""

        def write(connection: sqlite3.Connection) -> bool:
            with transaction(connection, write=True):
                return rename(connection, tree, made)

        return self._guarded(write, writes=True)

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

    def expunge(self, tree: str) -> None:
        """
        Leave nothing on disk of rows that were superseded or removed.

        Raises:
            StoreBusyError: somebody reads an earlier state of the file, or goes on changing it.
        """
        if not any(self._compacted(tree) for _ in range(COMPACTIONS_MAX)):
            raise StoreBusyError(f"the index of tree {tree!r} was changed whenever it was to be written anew; try again")
        if self._path is not None:
            self._scrub()

    def _compacted(self, tree: str) -> bool:
        """Compact the whole tree; False when others changed its segments meanwhile."""

        def plan(connection: sqlite3.Connection) -> list[int]:
            rows = connection.execute("SELECT id FROM segments WHERE tree = ? ORDER BY last, id", (tree,))
            return [number for (number,) in rows]

        numbers = self._guarded(plan)
        return not numbers or self._rewrite(tree, numbers, compact=True) or self._guarded(plan) == []

    def _scrubbed(self) -> None:
        self._guarded(rewrite, writes=True)
        assert self._path is not None
        empty_journal(self._path, busy_wait=self._busy_wait)

    def _rewrite(self, tree: str, numbers: Sequence[int], *, compact: bool) -> bool:
        """Replace segments by merged ones. Reading and merging are done outside the transaction that writes."""
        # An adoption gives segments another tree and leaves them their numbers: they are no longer this one's to replace then.
        wanted, mine = f"tree = ? AND id IN ({','.join('?' * len(numbers))})", (tree, *numbers)

        def read(connection: sqlite3.Connection) -> list[tuple[int, bytes]]:
            return connection.execute(
                f"SELECT last, data FROM segments WHERE {wanted} ORDER BY last, id",  # noqa: S608  # only question marks
                mine,
            ).fetchall()

        rows = self._guarded(read)
        if len(rows) != len(numbers):
            return False
        last = rows[-1][0]
        try:
            parts = [decode(data) for _, data in rows]
        except SegmentDamagedError:
            self._replace(self._generation)
            return False
        rows.clear()  # each goes with its part
        merged = [(size_of(part), encode(part)) for part in (compacted(parts) if compact else [merge(parts)])]

        def write(connection: sqlite3.Connection) -> bool:
            with suppress(_OvertakenError), transaction(connection, write=True):
                if connection.execute(f"DELETE FROM segments WHERE {wanted}", mine).rowcount != len(numbers):  # noqa: S608
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
            connection = sqlite3.connect(_nowhere(), isolation_level=None, check_same_thread=False)
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
                form = self._made()
        except StoreDamagedError:
            form = None
        if form != self._form:
            self._remove()
            with translated(self._name):
                self._make_tables(self._open())
        self._opened = self._inode()

    def _made(self) -> str:
        """
        Open the file and make its tables.

        Where several processes make one file at once, one may find what stands beside it gone while it looks: that error passes.
        """
        for pause in LOOKS_AGAIN:
            try:
                return self._make_tables(self._open())
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_IOERR:
                    raise
            time.sleep(pause)
        return self._make_tables(self._open())

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
    """Segments to be merged are the tree's no more: they were merged, dropped or adopted meanwhile."""


@contextmanager
def translated_os(path: Path) -> Iterator[None]:
    """Raise the operating system's refusals as the domain's."""
    try:
        yield
    except OSError as error:
        raise StoreUnavailableError(f"{path} is damaged and cannot be replaced: {error.strerror}") from error


def _nowhere() -> str:
    """
    What SQLite calls a file without a name, or memory where no folder takes temporary files.

    Segments are read when a tree is loaded, and are half as large as the loaded tree: they need not stay in memory beside it.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        return ":memory:"
    return ""
