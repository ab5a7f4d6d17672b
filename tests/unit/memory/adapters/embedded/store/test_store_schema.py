"""How a file comes to have the newest tables."""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from memory.adapters.embedded.store import SqliteTreeStore
from memory.adapters.embedded.store.schema import MIGRATIONS, VERSION_1, check_identity, migrate
from memory.errors import StoreVersionError
from memory.model import NodeId
from tests.fakes.change_sets import TREE, change_set, leaf, link, tree_info


def test_older_files_are_migrated_in_order_and_once(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, path, migrations=[VERSION_1])
    connection.execute("INSERT INTO log (key, entry) VALUES (1, x'00')")
    later = [
        VERSION_1,
        "ALTER TABLE log ADD COLUMN size INTEGER NOT NULL DEFAULT 0;\nUPDATE log SET size = length(entry);",
        "CREATE TABLE extra (id INTEGER PRIMARY KEY) STRICT;",
    ]
    for _ in range(2):
        migrate(connection, path, migrations=later)
    assert connection.execute("SELECT key, size FROM log").fetchall() == [(1, 1)]
    assert connection.execute("PRAGMA user_version").fetchone() == (3,)
    with pytest.raises(StoreVersionError):
        migrate(connection, path, migrations=later[:2])
    connection.close()


@pytest.mark.parametrize("moment", ["application_id", "user_version", "sqlite_schema"])
def test_a_file_that_another_process_makes_meanwhile_is_no_strangers(tmp_path: Path, moment: str) -> None:
    path = tmp_path / "new.db"
    mine, other = (sqlite3.connect(path, isolation_level=None, timeout=0) for _ in range(2))

    def interfere(statement: str) -> None:
        if moment in statement:
            mine.set_trace_callback(None)
            with suppress(sqlite3.OperationalError):  # locked, when it comes too late
                migrate(other, path)

    mine.set_trace_callback(interfere)
    assert check_identity(mine, path) in {0, len(MIGRATIONS)}
    migrate(mine, path)
    mine.close()
    other.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, path, migrations=[VERSION_1])
    before = connection.execute("SELECT sql FROM sqlite_schema").fetchall()
    with pytest.raises(sqlite3.OperationalError):
        migrate(connection, path, migrations=[VERSION_1, "CREATE TABLE extra (id);\nDROP TABLE missing;"])
    assert connection.execute("SELECT sql FROM sqlite_schema").fetchall() == before
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    connection.close()


async def test_a_file_of_the_first_version_is_opened_and_keeps_what_the_second_one_brings(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    migrate(connection, path, migrations=[VERSION_1])
    connection.close()
    store = await SqliteTreeStore.open(path)
    await store.create_tree(tree_info())
    await store.apply(change_set(leaf("a", weight=1.0), leaf("b"), link("b", "a")))
    await store.close()
    again = await SqliteTreeStore.open(path)
    assert (await again.nodes(TREE, [NodeId("a")]))[NodeId("a")].attributes == {"weight": 1.0}
    assert await again.links(TREE) == (link("b", "a"),)
    await again.close()
