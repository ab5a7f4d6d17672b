"""Leases among processes: two `FileLeases` on one file stand for two processes, since the locks belong to the open file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.embedded.gate import HOLD_MAX, STUCK_WAIT, FileLeases
from memory.errors import LeaseBusyError, StoreUnavailableError
from memory.model import NodeId, TreeId
from memory.ports.leases import Lease
from tests.contract.conftest import Elapse
from tests.contract.test_path_leases import *  # noqa: F403  # the whole contract holds here, too
from tests.fakes.clock import FakeClock
from tests.fakes.virtual_time import LoopClock, run_virtually

TREE, OTHER = TreeId("tree"), TreeId("other")
A = (NodeId("a"),)
MINUTE = timedelta(minutes=1)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def leases(tmp_path: Path, clock: FakeClock) -> FileLeases:
    return FileLeases(tmp_path / "contract.lock", clock)


@pytest.fixture
def elapse(clock: FakeClock) -> Elapse:
    return clock.advance


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.lock"


async def take(
    leases: FileLeases, nodes: tuple[NodeId, ...] = A, *, tree: TreeId = TREE, wait: float = 1.0, ttl: float = 60.0
) -> Lease:
    return await leases.acquire(tree, exclusive=nodes, ttl=timedelta(seconds=ttl), wait=timedelta(seconds=wait))


def test_one_process_at_a_time_has_a_tree(path: Path) -> None:
    async def story() -> None:
        ours, theirs = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        first = await take(ours)
        second = await take(ours, (NodeId("b"),))
        for _ in range(2):
            with pytest.raises(LeaseBusyError, match="another process held its path for more than 1 s"):
                await take(theirs, (NodeId("far away"),))
        await take(theirs, tree=OTHER)
        await ours.release(first)
        with pytest.raises(LeaseBusyError):
            await take(theirs)
        await ours.release(second)
        await take(theirs)

    run_virtually(story())


def test_giving_a_lease_back_twice_gives_back_one(path: Path) -> None:
    async def story() -> None:
        ours, theirs = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        first = await take(ours)
        await take(ours, (NodeId("b"),))
        await ours.release(first)
        await ours.release(first)
        with pytest.raises(LeaseBusyError):
            await take(theirs)

    run_virtually(story())


def test_a_lease_that_is_never_given_back_ends_for_other_processes_too(path: Path) -> None:
    async def story() -> None:
        ours, theirs = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        lost = await take(ours, ttl=10)
        renewed = await take(ours, (NodeId("b"),), ttl=10)
        await asyncio.sleep(5)
        await ours.renew(renewed, ttl=timedelta(seconds=20))
        await asyncio.sleep(10)
        with pytest.raises(LeaseBusyError):
            await take(theirs)
        await asyncio.sleep(15)
        await take(theirs)
        await ours.release(lost)
        await ours.release(renewed)
        with pytest.raises(LeaseBusyError):
            await take(ours)

    run_virtually(story())


def test_a_waiter_that_is_cancelled_or_too_late_leaves_nothing_behind(path: Path) -> None:
    async def story() -> None:
        ours, theirs = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        held = await take(ours)
        for end in (0.3, 3.0):
            waiters = [asyncio.create_task(take(theirs, wait=2.0)) for _ in range(3)]
            await asyncio.sleep(end)
            for waiter in waiters:
                waiter.cancel()
            await asyncio.gather(*waiters, return_exceptions=True)
        inside = asyncio.create_task(take(ours, wait=60.0))
        await asyncio.sleep(1)
        inside.cancel()
        await asyncio.gather(inside, return_exceptions=True)
        await ours.release(held)
        lease = await take(theirs)
        await theirs.release(lease)
        assert not theirs._counted

    run_virtually(story())


def test_two_busy_processes_take_turns(path: Path) -> None:
    """Neither starves, whether a process's leases follow one another or overlap."""

    async def story() -> None:
        counts = [0, 0]
        longest = [0.0, 0.0]

        async def work(which: int, leases: FileLeases, node: str) -> None:
            loop = asyncio.get_running_loop()
            while loop.time() < 20:
                started = loop.time()
                lease = await take(leases, (NodeId(node),), wait=5.0)
                longest[which] = max(longest[which], loop.time() - started)
                await asyncio.sleep(0.01)
                await leases.release(lease)
                counts[which] += 1

        ours, theirs = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        await asyncio.gather(*(work(0, ours, f"a{number}") for number in range(3)), work(1, theirs, "b"))
        assert counts[1] >= 20 / (HOLD_MAX + 0.1) / 2
        assert counts[0] >= counts[1]
        assert max(longest) < 0.5

    run_virtually(story())


def test_a_stopped_process_is_waited_for_once(path: Path) -> None:
    async def story() -> None:
        stopped, ours = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        lease = await take(stopped, ttl=10_000)
        loop = asyncio.get_running_loop()
        waits = []
        for _ in range(4):
            started = loop.time()
            with pytest.raises(LeaseBusyError):
                await take(ours, wait=5.0)
            waits.append(loop.time() - started)
        assert waits[0] >= 5.0
        assert max(waits[1:]) <= 2 * STUCK_WAIT
        await stopped.release(lease)
        await ours.release(await take(ours))
        await take(stopped, ttl=10_000)
        started = loop.time()
        with pytest.raises(LeaseBusyError):
            await take(ours, wait=5.0)
        assert loop.time() - started >= 5.0, "one that has gone on is waited for again"

    run_virtually(story())


def test_closing_gives_everything_back(path: Path) -> None:
    async def story() -> None:
        ours, theirs = FileLeases(path, LoopClock()), FileLeases(path, LoopClock())
        lease = await take(ours)
        ours.close()
        ours.close()
        await ours.release(lease)
        await take(theirs)

    run_virtually(story())


def test_a_process_that_dies_holds_nothing(path: Path) -> None:
    script = (
        "import asyncio, os, sys\n"
        "from pathlib import Path\n"
        "from datetime import timedelta\n"
        "from memory.adapters.embedded.clock import SystemClock\n"
        "from memory.adapters.embedded.gate import FileLeases\n"
        "async def main():\n"
        "    leases = FileLeases(Path(sys.argv[1]), SystemClock())\n"
        "    await leases.acquire('tree', exclusive=['a'], ttl=timedelta(hours=1), wait=timedelta(seconds=1))\n"
        "    print('held', flush=True)\n"
        "    await asyncio.sleep(3600)\n"
        "asyncio.run(main())\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"

        async def busy() -> None:
            with pytest.raises(LeaseBusyError):
                await take(FileLeases(path, LoopClock()))

        run_virtually(busy())
        process.kill()
        process.wait()
    run_virtually(take(FileLeases(path, LoopClock())))


def test_a_file_that_cannot_be_made(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match="check the folder"):
        FileLeases(tmp_path / "missing" / "store.lock", LoopClock())
