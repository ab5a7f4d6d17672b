"""SQLite files out of which nothing that was deleted can be read any more."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from memory.adapters.embedded.files import connect, translated
from memory.errors import StoreBusyError

TRY = timedelta(milliseconds=500)
"""For which one attempt to empty the journal holds up those who write."""
PAUSE = 0.1  # seconds
"""In which they write, between two attempts."""


def rewrite(connection: sqlite3.Connection) -> None:
    """
    Write the file anew, with what is in use and nothing else; takes as long as the file is large, outside a transaction.

    SQLite's own overwriting of what is deleted (`secure_delete`) does not do: when a page is split its rows are copied to another
    one, and the copies that are left behind are not overwritten when the rows are deleted.
    """
    # Else the whole of the new file is held in memory.
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")


def empty_journal(path: Path, *, busy_wait: timedelta) -> None:
    """
    Move what the journal holds to the file, and cut it to nothing.

    Raises:
        StoreBusyError: somebody reads an earlier state of the file for longer than `busy_wait`.
    """
    end = time.monotonic() + busy_wait.total_seconds()
    with translated(path), closing(connect(path, busy_wait=min(TRY, busy_wait), mode="rw")) as connection:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() >= end:
                raise StoreBusyError(
                    f"{path} is read by somebody who began before something was forgotten there, so that its journal cannot be "
                    "emptied; nothing is lost, try again",
                    retry_after=1.0,
                )
            time.sleep(PAUSE)


class Shared:
    """
    A work that takes long, done once for all who ask for it before it begins.

    Args:
        work: what is to be done; from any thread.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._lock = threading.Lock()
        self._asking = threading.Lock()
        self.asked = 0
        """Calls so far."""
        self._begun = 0
        self._done = 0
        """Number of the last one that ended well."""

    def __call__(self) -> None:
        """Return when the work was done, from its beginning on, after this call."""
        with self._asking:
            asked = self._begun
            self.asked += 1
        with self._lock:
            if self._done > asked:
                return
            self._begun += 1
            number = self._begun
            self._work()
            self._done = number
