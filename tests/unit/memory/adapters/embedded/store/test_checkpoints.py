"""Moving the journal to the file beside the commits."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memory.adapters.embedded.store import checkpoints
from memory.adapters.embedded.store.checkpoints import Checkpoints

COMMITS = 400
PAGES_A_COMMIT = 4


@pytest.fixture
def connection(tmp_path: Path) -> sqlite3.Connection:
    made = sqlite3.connect(tmp_path / "blobs.db", isolation_level=None)
    made.execute("PRAGMA journal_mode = WAL")
    made.execute("PRAGMA synchronous = OFF")
    made.execute("PRAGMA wal_autocheckpoint = 0")
    made.execute("CREATE TABLE blob (value BLOB NOT NULL) STRICT")
    return made


def commit(connection: sqlite3.Connection, made: Checkpoints) -> None:
    connection.execute("INSERT INTO blob VALUES (zeroblob(?))", (4000 * PAGES_A_COMMIT,))
    made.committed(connection)


def pages_in_journal(connection: sqlite3.Connection) -> int:
    """Those that wait or were moved since it started anew."""
    return int(connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1])


def until(happened: Callable[[], bool]) -> None:
    end = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < end
        time.sleep(0.001)


class Overtaken(sqlite3.Connection):
    """Something is committed while each move runs, too late for it: a reader that began before keeps the move from taking it in."""

    def execute(self, sql: str, *parameters: object) -> sqlite3.Cursor:
        if sql != checkpoints.MOVE:
            return super().execute(sql, *parameters)  # type: ignore[arg-type]
        [(_, _, path)] = super().execute("PRAGMA database_list").fetchall()
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM blob").fetchall()
            super().execute("PRAGMA wal_autocheckpoint = 0")
            super().execute("INSERT INTO blob VALUES (x'')")
            return super().execute(sql)


@pytest.mark.parametrize("factory", [sqlite3.Connection, Overtaken])
def test_the_journal_starts_anew_while_commits_keep_coming(
    connection: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, factory: type[sqlite3.Connection]
) -> None:
    monkeypatch.setattr(checkpoints, "CHECKPOINT_PAGES", 100)
    made = Checkpoints(lambda: sqlite3.connect(tmp_path / "blobs.db", isolation_level=None, factory=factory))
    for _ in range(COMMITS):
        commit(connection, made)
        if made.moving:
            until(lambda: not made.moving)
    made.close()
    assert pages_in_journal(connection) < COMMITS * PAGES_A_COMMIT / 8
    assert connection.execute("SELECT count(*) FROM blob WHERE value != x''").fetchone() == (COMMITS,)
    connection.close()


def test_how_often_follows_what_the_commits_write(
    connection: sqlite3.Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def connect() -> sqlite3.Connection:
        opened.append(commits)
        return sqlite3.connect(tmp_path / "blobs.db", isolation_level=None)

    monkeypatch.setattr(checkpoints, "CHECKPOINT_PAGES", 1000)
    made = Checkpoints(connect)
    for commits in range(COMMITS):  # noqa: B007  # read by `connect`
        commit(connection, made)
        if made.moving:
            until(lambda: not made.moving)
    made.close()
    first, second = opened[:2]
    assert first == checkpoints.COMMITS_MIN - 1
    assert 5 * first < second - first < 30 * first, "a thousand pages are some two hundred commits"
    connection.close()


def test_a_move_that_fails_harms_no_commit(connection: sqlite3.Connection) -> None:
    def fails() -> sqlite3.Connection:
        raise sqlite3.OperationalError("disk I/O error")

    made = Checkpoints(fails)
    for _ in range(COMMITS):
        commit(connection, made)
    made.close()
    assert connection.execute("SELECT count(*) FROM blob").fetchone() == (COMMITS,)
    connection.close()
