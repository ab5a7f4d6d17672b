"""Group commit: what shares a commit, and what one work's failure means for the others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.adapters.embedded.store.threads import GROUP_MAX, WriteThread
from memory.errors import StoreDamagedError, StoreUnavailableError


class Counted:
    """A write thread on a table of numbers, and how many commits it took."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self.connection.execute("CREATE TABLE number (value INTEGER UNIQUE) STRICT")
        self.commits = 0
        self.connection.set_trace_callback(self._trace)
        self.thread = WriteThread(self.connection, path)
        self.gate = threading.Event()

    def _trace(self, statement: str) -> None:
        self.commits += statement == "COMMIT"

    async def hold(self) -> asyncio.Task[None]:
        """Keep the thread busy until `gate` is set."""
        held = threading.Event()

        def work(_: sqlite3.Connection) -> None:
            held.set()
            assert self.gate.wait(120)

        task = asyncio.create_task(self.thread.run(work))
        await asyncio.to_thread(held.wait, 120)
        return task

    async def insert(self, *values: object) -> int:
        def work(connection: sqlite3.Connection) -> int:
            for value in values:
                connection.execute("INSERT INTO number VALUES (?)", (value,))
            return len(values)

        return await self.thread.run(work)

    async def values(self) -> list[int]:
        return await self.thread.run(lambda connection: [row[0] for row in connection.execute("SELECT value FROM number")])


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[Counted]:
    made = Counted(tmp_path / "numbers.db")
    yield made
    made.gate.set()
    made.thread.close()


async def after_waiting_together(counted: Counted, *works: asyncio.Task[int]) -> list[int | BaseException]:
    await asyncio.sleep(0)
    counted.commits = 0
    counted.gate.set()
    return await asyncio.gather(*works, return_exceptions=True)


async def test_what_waits_at_the_same_time_shares_one_commit(counted: Counted) -> None:
    held = await counted.hold()
    works = [asyncio.create_task(counted.insert(number)) for number in range(20)]
    assert await after_waiting_together(counted, *works) == [1] * 20
    await held
    assert counted.commits <= 2, "the one that held the thread, and all others"
    assert await counted.values() == list(range(20))


async def test_a_group_is_bounded(counted: Counted) -> None:
    held = await counted.hold()
    works = [asyncio.create_task(counted.insert(number)) for number in range(GROUP_MAX + 1)]
    await after_waiting_together(counted, *works)
    await held
    assert counted.commits == 3


async def test_a_work_that_fails_before_it_writes_is_alone_with_it(counted: Counted) -> None:
    def fails(_: sqlite3.Connection) -> int:
        raise KeyError("mine")

    held = await counted.hold()
    works = [
        asyncio.create_task(counted.insert(1)),
        asyncio.create_task(counted.thread.run(fails)),
        asyncio.create_task(counted.insert(2)),
    ]
    answers = await after_waiting_together(counted, *works)
    await held
    assert (answers[0], repr(answers[1]), answers[2]) == (1, "KeyError('mine')", 1)
    assert counted.commits <= 2
    assert await counted.values() == [1, 2]


async def test_a_work_that_fails_after_it_wrote_leaves_nothing_and_the_others_stand(counted: Counted) -> None:
    held = await counted.hold()
    works = [
        asyncio.create_task(counted.insert(1)),
        asyncio.create_task(counted.insert(7, 8, "nine")),
        asyncio.create_task(counted.insert(2)),
        asyncio.create_task(counted.insert(5, 5)),
    ]
    answers = await after_waiting_together(counted, *works)
    await held
    assert (answers[0], answers[2]) == (1, 1)
    assert isinstance(answers[1], StoreDamagedError)
    assert isinstance(answers[3], StoreDamagedError)
    assert await counted.values() == [1, 2]


async def test_nothing_is_answered_before_it_is_committed(counted: Counted, tmp_path: Path) -> None:
    reader = sqlite3.connect(tmp_path / "numbers.db")
    for number in range(20):
        await counted.insert(number)
        assert reader.execute("SELECT max(value) FROM number").fetchone() == (number,)
    reader.close()


async def test_a_disk_that_fills_up_fails_only_who_needs_the_room(counted: Counted) -> None:
    held = await counted.hold()
    works = [asyncio.create_task(counted.insert(number)) for number in range(3)]
    await asyncio.sleep(0)
    counted.connection.execute("PRAGMA max_page_count = 2")
    large = asyncio.create_task(counted.insert(*range(10, 5000)))
    answers = await after_waiting_together(counted, *works, large)
    await held
    assert isinstance(answers[3], StoreUnavailableError)
    assert answers[:3] == [1, 1, 1]
    assert sorted(await counted.values()) == [0, 1, 2]


async def test_who_is_cancelled_while_waiting_is_not_run(counted: Counted) -> None:
    held = await counted.hold()
    doomed, other = asyncio.create_task(counted.insert(1)), asyncio.create_task(counted.insert(2))
    await asyncio.sleep(0)
    doomed.cancel()
    await asyncio.sleep(0)
    await after_waiting_together(counted, doomed, other)
    await held
    assert doomed.cancelled()
    assert await counted.values() == [2]


async def test_a_closed_thread_takes_nothing(counted: Counted) -> None:
    await asyncio.to_thread(counted.thread.close)
    await asyncio.to_thread(counted.thread.close)
    with pytest.raises(StoreUnavailableError, match="closed"):
        await counted.insert(1)
