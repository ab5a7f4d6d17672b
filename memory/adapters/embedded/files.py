"""SQLite files: how they are opened, and what their errors mean. Shared by the store and the index."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from memory.errors import BanyanError, StoreBusyError, StoreDamagedError, StoreUnavailableError

RETRY_SECONDS = 0.02
READ_ONLY = "{path} cannot be written (read-only file or folder, or no permission); reading still works"
ERRORS: dict[int, tuple[type[BanyanError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreBusyError, "{path} is held by another process for longer than the configured wait; try again"),
    sqlite3.SQLITE_LOCKED: (StoreBusyError, "{path} is locked; try again"),
    sqlite3.SQLITE_FULL: (StoreUnavailableError, "no room left to write {path}; nothing was written. Free some disk space"),
    sqlite3.SQLITE_READONLY: (StoreUnavailableError, READ_ONLY),
    sqlite3.SQLITE_PERM: (StoreUnavailableError, READ_ONLY),
    sqlite3.SQLITE_CANTOPEN: (StoreUnavailableError, "{path} cannot be opened or made: check the folder and its permissions"),
    sqlite3.SQLITE_IOERR: (
        StoreUnavailableError,
        "the disk refused an operation on {path}; is it full, or is there a limit on files?",
    ),
    sqlite3.SQLITE_IOERR_SHORT_READ: (StoreDamagedError, "{path} is cut short; restore it from a copy or import it again"),
    sqlite3.SQLITE_NOMEM: (StoreUnavailableError, "out of memory while working on {path}"),
    sqlite3.SQLITE_TOOBIG: (StoreUnavailableError, "a value is too large to be kept in {path}"),
    sqlite3.SQLITE_INTERRUPT: (StoreUnavailableError, "an operation on {path} was interrupted"),
    sqlite3.SQLITE_CORRUPT: (StoreDamagedError, "{path} is damaged; restore it from a copy or import it again"),
    sqlite3.SQLITE_NOTADB: (StoreDamagedError, "{path} is no SQLite file; choose another path"),
    sqlite3.SQLITE_CONSTRAINT: (StoreDamagedError, "the content of {path} contradicts itself"),
    sqlite3.SQLITE_ERROR: (StoreDamagedError, "{path} does not have the expected tables"),
}
"""What SQLite's result codes mean for the caller: an extended code is looked up first, then its primary code (low byte)."""


def translate(error: sqlite3.Error, path: Path) -> BanyanError:
    """The domain's error for one of SQLite's; the caller raises it from the cause."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is None:
        return StoreUnavailableError(f"{path}: {error}")
    kind, message = ERRORS.get(code) or ERRORS.get(code & 0xFF) or (StoreUnavailableError, "{path} failed")
    return kind(f"{message.format(path=path)} ({getattr(error, 'sqlite_errorname', code)}: {error})")


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise SQLite's errors as the domain's, and those of rows that are not as they were written."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_ERROR and "no such" not in str(error):
            raise  # a statement that SQLite does not understand: the file is not to blame
        raise translate(error, path) from error
    except msgspec.DecodeError as error:
        raise StoreDamagedError(
            f"{path} holds a row that cannot be read; restore it from a copy or import it again ({error})"
        ) from error


def connect(path: Path, *, busy_wait: timedelta, mode: str = "rwc") -> sqlite3.Connection:
    """
    One connection in autocommit mode: transactions are begun and ended by statements.

    Args:
        path: the file.
        busy_wait: how long one statement waits for another process.
        mode: "rwc" makes the file when it is missing, "rw" does not, "ro" never writes, "immutable" also takes no locks (for a
            file that nobody can change).
    """
    uri = f"{path.absolute().as_uri()}?" + ("mode=ro&immutable=1" if mode == "immutable" else f"mode={mode}")
    return sqlite3.connect(
        uri,
        uri=True,
        timeout=busy_wait.total_seconds(),
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
    )


def set_wal(connection: sqlite3.Connection, busy_wait: timedelta) -> None:
    """Switch to write-ahead logging. SQLite does not wait for others by itself here, as it does elsewhere."""
    end = time.monotonic() + busy_wait.total_seconds()
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= end:
                raise
        else:
            return
        time.sleep(RETRY_SECONDS)


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool = False) -> Iterator[sqlite3.Connection]:
    """
    One transaction: committed at the end, rolled back when anything is raised.

    A writing one takes the write lock at its start, so that it never fails for a changed file in its middle.
    """
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield connection
        connection.execute("COMMIT")
    except BaseException:
        # A full disk or a damaged file may have ended the transaction already.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise
