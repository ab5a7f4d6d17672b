"""Moving committed pages from the journal to the file, beside the commits instead of within them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing, suppress

CHECKPOINT_PAGES = 8000
"""Pages in the journal before they are moved to the file. Commits write the same pages again and again, so that fewer and larger
moves write less: at 100,000 leaves a commit took half as long with 4000 as with SQLite's own 1000, and less again with 8000."""

COMMITS_MIN, COMMITS_MAX = 16, 4000
"""Bounds of the number of commits between two moves."""

MOVE = "PRAGMA wal_checkpoint(PASSIVE)"
"""Moves what it can without waiting for anyone; answers (busy, pages in the journal, pages of them that were moved)."""


class Checkpoints:
    """
    Decides when the journal is moved to the file, and moves most of it on a thread of its own.

    The journal starts anew only when all of it was moved, which never happens while commits keep coming. So the thread moves what
    is there, then what came meanwhile, and the thread that commits moves the little that is left. SQLite does not tell how long
    the journal is, but a move does: how many commits make `CHECKPOINT_PAGES` is learnt from it.

    Args:
        connect: makes a connection for the thread.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._commits = 0
        self._limit = COMMITS_MIN
        self._moving: threading.Thread | None = None

    @property
    def moving(self) -> bool:
        """Whether the thread is at work."""
        return self._moving is not None and self._moving.is_alive()

    def committed(self, connection: sqlite3.Connection) -> None:
        """To be called after each commit, outside a transaction, on the thread that commits."""
        self._commits += 1
        if self._moving is not None:
            if not self.moving:
                self._moving, self._commits = None, 0
                with suppress(sqlite3.Error):
                    connection.execute(MOVE).fetchall()
        elif self._commits >= self._limit:
            self._moving = threading.Thread(target=self._move, args=(self._commits,), name="banyan-store-checkpoint", daemon=True)
            self._moving.start()

    def close(self) -> None:
        """Wait for a move that runs."""
        if self._moving is not None:
            self._moving.join()

    def _move(self, commits: int) -> None:
        # Whatever goes wrong here (a full disk, say) harms no commit: they are on disk in the journal.
        with suppress(sqlite3.Error), closing(self._connect()) as connection:
            _, pages, _ = connection.execute(MOVE).fetchone()
            self._limit = min(max(commits * CHECKPOINT_PAGES // max(pages, 1), COMMITS_MIN), COMMITS_MAX)
            connection.execute(MOVE).fetchall()
