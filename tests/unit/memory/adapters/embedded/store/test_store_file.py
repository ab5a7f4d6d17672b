"""What the SQLite store does with files that are not as they should be."""

# ruff: noqa: ASYNC240  # the tests prepare files themselves; nothing else runs meanwhile
from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.embedded.store import SqliteTreeStore
from memory.adapters.embedded.store.schema import APPLICATION_ID, MIGRATIONS
from memory.adapters.embedded.store.snapshot import Snapshot
from memory.errors import (
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
    StoreVersionError,
)
from memory.model import ROOT
from memory.ports.leases import Lease
from memory.ports.store import Applied, TreeStore
from tests.fakes.change_sets import TREE, change_set, event, insert, leaf, tree_info

Open = Callable[..., Awaitable[SqliteTreeStore]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "banyan.db"


@pytest.fixture
async def open_store(path: Path) -> AsyncIterator[Open]:
    opened: list[SqliteTreeStore] = []

    async def open_one(**options: object) -> SqliteTreeStore:
        store = await SqliteTreeStore.open(path, **options)  # type: ignore[arg-type]
        opened.append(store)
        return store

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def filled(path: Path) -> Path:
    """The file of a closed store with 600 leaves."""
    store = await SqliteTreeStore.open(path)
    await store.create_tree(tree_info())
    for start in range(0, 600, 100):
        names = [f"n{number}" for number in range(start, start + 100)]
        await store.apply(change_set(*map(leaf, names), events=[event(name) for name in names]))
    await store.close()
    return path


async def read_everything(store: TreeStore) -> int:
    await store.trees()
    await store.events(TREE)
    await store.changes(TREE, 0)
    await store.skeleton(TREE)
    return len([node async for node in store.all_nodes(TREE, vectors=True)])


async def test_a_store_is_one_file_that_keeps_everything(filled: Path, open_store: Open) -> None:
    assert [one.name for one in filled.parent.iterdir()] == ["banyan.db"]
    assert await read_everything(await open_store()) == 601


async def test_settings_of_a_store(open_store: Open) -> None:
    store = await open_store()
    assert store._writer is not None
    pragmas = {
        name: store._writer._connection.execute(f"PRAGMA {name}").fetchone()[0]
        for name in ("journal_mode", "synchronous", "application_id", "user_version")
    }
    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "application_id": APPLICATION_ID, "user_version": len(MIGRATIONS)}


async def test_two_who_make_the_file_at_once(path: Path) -> None:
    stores = await asyncio.gather(*(SqliteTreeStore.open(path) for _ in range(8)))
    await asyncio.gather(*(store.create_tree(tree_info()) for store in stores))
    answers = await asyncio.gather(*(store.apply(insert(f"n{number}")) for number, store in enumerate(stores)))
    assert sorted(answer.seq for answer in answers if isinstance(answer, Applied)) == list(range(1, 9))
    for store in stores:
        assert (await store.stats(TREE)).leaves == 8
        await store.close()


# ----------------------------------------------------------------------------------------------------- not a store of ours


def not_sqlite(path: Path) -> None:
    path.write_bytes(b"speaker,text\nAna,hello\n" * 500)


def another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE node (id)")
    connection.close()


def marked_by_another_program(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA application_id = 252006673")
    connection.close()


def folder(path: Path) -> None:
    path.mkdir()


def ours_without_tables(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")
    connection.close()


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("make", [not_sqlite, another_program, marked_by_another_program, folder])
async def test_what_is_no_store_is_refused_and_left_alone(
    path: Path, open_store: Open, make: Callable[[Path], None], read_only: bool
) -> None:
    path.parent.mkdir()
    make(path)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(StoreDamagedError, match=r"banyan\.db"):
        await open_store(read_only=read_only)
    assert before is None or path.read_bytes() == before


async def test_a_store_without_its_tables_is_damaged(path: Path, open_store: Open) -> None:
    path.parent.mkdir()
    ours_without_tables(path)
    store = await open_store()
    with pytest.raises(StoreDamagedError, match="tables"):
        await store.trees()


@pytest.mark.parametrize("read_only", [False, True])
async def test_a_newer_file_is_refused(filled: Path, open_store: Open, read_only: bool) -> None:
    with sqlite3.connect(filled) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    with pytest.raises(StoreVersionError, match="upgrade"):
        await open_store(read_only=read_only)


# ----------------------------------------------------------------------------------------------------------------- damage


async def test_bytes_overwritten_in_the_middle(filled: Path, open_store: Open) -> None:
    size = filled.stat().st_size
    with filled.open("r+b") as file:
        for offset in range(4096 * 3, size, 4096):
            file.seek(offset)
            file.write(b"\xa5" * 200)
    with pytest.raises(StoreDamagedError, match="damaged"):
        await read_everything(await open_store())


async def test_a_header_overwritten(filled: Path, open_store: Open) -> None:
    with filled.open("r+b") as file:
        file.write(b"\x00" * 64)
    with pytest.raises(StoreDamagedError):
        await open_store()


@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
async def test_a_file_that_is_cut_short(filled: Path, open_store: Open, kept: float) -> None:
    with filled.open("r+b") as file:
        file.truncate(int(filled.stat().st_size * kept))
    with pytest.raises(StoreDamagedError):
        await read_everything(await open_store())


async def test_missing_vectors_are_noticed(filled: Path, open_store: Open) -> None:
    with sqlite3.connect(filled) as connection:
        connection.execute("DELETE FROM vector WHERE key % 7 = 0")
    connection.close()
    store = await open_store()
    with pytest.raises(StoreDamagedError, match="do not match"):
        await store.skeleton(TREE)


# ------------------------------------------------------------------------------------------------------- busy, full, read-only


async def test_a_busy_file_waits_with_a_bound(filled: Path, open_store: Open) -> None:
    store = await open_store(busy_wait=timedelta(seconds=0.2))
    other = sqlite3.connect(filled, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError, match="another process"):
        await store.apply(insert("z"))
    assert (await store.stats(TREE)).leaves == 600, "reading goes on"
    other.execute("ROLLBACK")
    other.close()
    assert isinstance(await store.apply(insert("z")), Applied)


async def test_a_write_waits_for_another_process(filled: Path, open_store: Open) -> None:
    store = await open_store(busy_wait=timedelta(seconds=30))
    other = sqlite3.connect(filled, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(store.apply(insert("z")))
    await store.stats(TREE)
    assert not waiting.done()
    other.execute("COMMIT")
    other.close()
    assert isinstance(await waiting, Applied)


@pytest.mark.usefixtures("filled")
async def test_a_full_disk_refuses_and_later_goes_on(open_store: Open) -> None:
    store = await open_store()
    assert store._writer is not None
    connection = store._writer._connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    large = change_set(*(leaf(f"z{number}") for number in range(300)), events=[event("z0")])
    with pytest.raises(StoreUnavailableError, match="room"):
        await store.apply(large)
    assert (await store.stats(TREE)).leaves == 600
    assert await store.receipts(TREE, [event("z0").id]) == {}
    connection.execute("PRAGMA max_page_count = 1073741823")
    assert await store.apply(large) == Applied(seq=7)


@pytest.mark.usefixtures("filled")
async def test_reading_only(open_store: Open) -> None:
    store = await open_store(read_only=True)
    assert await read_everything(store) == 601
    for call in (store.apply(insert("z")), store.create_tree(tree_info("other"))):
        with pytest.raises(StoreUnavailableError, match="reading only"):
            await call


@pytest.mark.usefixtures("filled")
async def test_reading_only_beside_a_writer(open_store: Open) -> None:
    writer, reader = await open_store(), await open_store(read_only=True)
    await writer.apply(insert("z"))
    assert (await reader.stats(TREE)).leaves == 601


async def test_reading_only_needs_a_store(path: Path, open_store: Open) -> None:
    with pytest.raises(StoreUnavailableError, match="no store"):
        await open_store(read_only=True)
    path.parent.mkdir()
    path.touch()
    with pytest.raises(StoreDamagedError, match="empty"):
        await open_store(read_only=True)


READ_ONLY_FOLDER = """
import asyncio, os, sys
from pathlib import Path
from memory.adapters.embedded.store import SqliteTreeStore
from memory.errors import StoreUnavailableError
from tests.fakes.change_sets import TREE, insert

async def main(path):
    late = insert("z")
    if os.geteuid() == 0:
        os.setuid(65534)
    try:
        store = await SqliteTreeStore.open(path)
    except StoreUnavailableError as error:
        print("refused", error)
        return
    print("leaves", (await store.stats(TREE)).leaves)
    print("nodes", len([node async for node in store.all_nodes(TREE)]))
    try:
        await store.apply(late)
    except StoreUnavailableError as error:
        print("refused", error)
    await store.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def run_unprivileged(path: Path) -> str:
    done = subprocess.run([sys.executable, "-c", READ_ONLY_FOLDER, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="permissions are POSIX's")
async def test_a_read_only_folder_can_be_read(filled: Path) -> None:
    for parent in filled.parents[:4]:
        if parent.owner() == Path(filled).owner() and parent != Path("/"):
            parent.chmod(0o755)
    filled.chmod(0o444)
    filled.parent.chmod(0o555)
    try:
        lines = run_unprivileged(filled).splitlines()
        assert lines[:2] == ["leaves 600", "nodes 601"]
        assert lines[2].startswith("refused")
        assert "reading only" in lines[2]
        assert "refused" in run_unprivileged(filled.parent / "new.db")
        assert "cannot be made" in run_unprivileged(filled.parent / "deeper" / "new.db")
    finally:
        filled.parent.chmod(0o755)


async def test_commits_waiting_in_the_journal_are_not_missed_when_only_reading(filled: Path, open_store: Open) -> None:
    writer = await open_store()
    await writer.apply(insert("z"))
    copy = filled.with_name("copy.db")
    copy.write_bytes(filled.read_bytes())
    copy.with_name("copy.db-wal").write_bytes(filled.with_name("banyan.db-wal").read_bytes())
    reader = await SqliteTreeStore.open(copy, read_only=True)
    assert (await reader.stats(TREE)).leaves == 601
    await reader.close()


# ------------------------------------------------------------------------------------------------------------ open and close


async def test_after_closing(open_store: Open) -> None:
    store = await open_store()
    await store.create_tree(tree_info())
    await store.close()
    for call in (store.apply(insert("a")), store.stats(TREE), store.trees(), anext(aiter(store.all_nodes(TREE)))):
        with pytest.raises(StoreUnavailableError, match="closed"):
            await call


async def test_closing_finishes_what_was_asked_for(open_store: Open) -> None:
    store = await open_store()
    await store.create_tree(tree_info())
    asked = [asyncio.create_task(store.apply(insert(f"n{number}"))) for number in range(30)]
    await asyncio.sleep(0)
    await store.close()
    assert all(isinstance(answer, Applied) for answer in await asyncio.gather(*asked))
    assert (await (await open_store()).stats(TREE)).leaves == 30


async def test_a_lease_needs_leases(open_store: Open) -> None:
    store = await open_store()
    lease = Lease(tree=TREE, shared=(), exclusive=(ROOT,), token=1)
    with pytest.raises(ValueError, match="without leases"):
        await store.apply(insert("a"), lease=lease)


async def test_a_view_that_nobody_reads_is_given_up(filled: Path, open_store: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.adapters.embedded.store.snapshot.PAGE_NODES", 100)
    store = await open_store()

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(filled, isolation_level=None, check_same_thread=False)

    snapshot = await Snapshot.open(store._readers, connect, filled, TREE, idle_seconds=0.01)
    assert len(await snapshot.page(vectors=False)) == 100
    await asyncio.sleep(0.05)
    with pytest.raises(StoreUnavailableError, match="start again"):
        await snapshot.page(vectors=False)
