"""How a store's file is opened: checked, brought to the newest version, and tuned."""

from __future__ import annotations

import sqlite3
from datetime import timedelta
from pathlib import Path

from memory.adapters.embedded.files import connect, set_wal, translate, translated
from memory.adapters.embedded.store.checkpoints import CHECKPOINT_PAGES
from memory.adapters.embedded.store.schema import check_identity, migrate
from memory.errors import BanyanError, StoreDamagedError, StoreUnavailableError

CACHE_KIB = 64 * 1024
"""Page cache of the writing connection; readers share the operating system's."""

JOURNAL_PAGES_MAX = 2 * CHECKPOINT_PAGES
"""Pages in the journal at which the commit at hand moves them to the file itself, whatever `Checkpoints` does."""

JOURNAL_BYTES = 64 * 1024 * 1024
"""Size that the journal's file is cut back to, after a long read made it grow."""


def open_writer(path: Path, *, busy_wait: timedelta) -> sqlite3.Connection:
    """
    A connection that can write, to a file that is there, ours and of the newest version afterwards.

    Raises:
        StoreBusyError, StoreUnavailableError, StoreDamagedError, StoreVersionError: as the port says.
    """
    _refuse_folder(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailableError(f"the folder of {path} cannot be made: {error.strerror}") from error
    with translated(path):
        connection = connect(path, busy_wait=busy_wait)
        try:
            check_identity(connection, path)
            set_wal(connection, busy_wait)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA temp_store = MEMORY")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {JOURNAL_PAGES_MAX}")
            connection.execute(f"PRAGMA journal_size_limit = {JOURNAL_BYTES}")
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
    return connection


def open_reader(path: Path, *, busy_wait: timedelta, read_only: bool) -> sqlite3.Connection:
    """
    A connection that never writes.

    Args:
        path: the file, of a store that was opened before.
        busy_wait: how long a statement waits for another process.
        read_only: whether the file itself cannot be written: SQLite then needs no files beside it.
    """
    if not read_only:
        connection = connect(path, busy_wait=busy_wait, mode="rw")
        connection.execute("PRAGMA query_only = 1")
        return connection
    _refuse_folder(path)
    if not path.exists():
        raise StoreUnavailableError(f"there is no store at {path}")
    failures: list[sqlite3.Error] = []
    for mode in ("ro", "immutable"):
        if mode == "immutable" and _has_journal(path):
            break
        connection = connect(path, busy_wait=busy_wait, mode=mode)
        try:
            if not check_identity(connection, path):
                raise StoreDamagedError(f"{path} is empty; restore it from a copy, or delete it and open it for writing")
        except sqlite3.Error as error:
            connection.close()
            failures.append(error)
            continue
        except BanyanError:
            connection.close()
            raise
        return connection
    raise translate(failures[0], path) from failures[0]


def _refuse_folder(path: Path) -> None:
    if path.is_dir():
        raise StoreDamagedError(f"{path} is a folder, not a store; name a file in it, such as {path / 'banyan.db'}")


def _has_journal(path: Path) -> bool:
    """Whether commits may wait beside the file, which reading it alone would miss."""
    journal = path.with_name(f"{path.name}-wal")
    return journal.exists() and journal.stat().st_size > 0
