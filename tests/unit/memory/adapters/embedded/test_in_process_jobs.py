"""What the queue in one process does beyond its port: lingering, and a limit by tree."""

from __future__ import annotations

import asyncio

from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.model import NodeId, TreeId
from tests.fakes.virtual_time import LoopClock, run_virtually

LINGER = 10.0


def nodes(names: str) -> list[NodeId]:
    return [NodeId(name) for name in names]


def test_hurrying_ends_the_lingering_of_one_tree_or_of_all() -> None:
    async def main() -> None:
        clock = LoopClock()
        jobs = InProcessSummaryJobs(clock, linger=LINGER)
        for tree in ("one", "two"):
            await jobs.put(TreeId(tree), nodes("ab"), seq=4)
        jobs.hurry(TreeId("two"))
        assert [(await jobs.claim()).tree for _ in range(2)] == ["two", "two"]
        assert clock.monotonic() < 0.1
        jobs.hurry()
        found = [await jobs.claim() for _ in range(2)]
        assert [(job.tree, job.seq, job.attempt) for job in found] == [("one", 4, 0)] * 2
        assert clock.monotonic() < 0.1

    run_virtually(main())


def test_what_is_put_during_its_call_does_not_linger_either_when_somebody_waits() -> None:
    async def main() -> None:
        clock = LoopClock()
        jobs = InProcessSummaryJobs(clock, linger=LINGER)
        await jobs.put(TreeId("t"), nodes("a"))
        job = await jobs.claim()
        await jobs.put(TreeId("t"), nodes("a"))
        jobs.hurry()
        before = clock.monotonic()
        await jobs.done(job)
        await jobs.claim()
        assert clock.monotonic() - before < 0.1

    run_virtually(main())


def test_what_was_hurried_lingers_again_the_next_time() -> None:
    async def main() -> None:
        clock = LoopClock()
        jobs = InProcessSummaryJobs(clock, linger=LINGER)
        await jobs.put(TreeId("t"), nodes("a"))
        jobs.hurry()
        await jobs.done(await jobs.claim())
        before = clock.monotonic()
        await jobs.put(TreeId("t"), nodes("a"))
        await jobs.claim()
        assert clock.monotonic() - before >= LINGER * 0.99

    run_virtually(main())


def test_a_tree_has_no_more_than_its_limit_at_once_and_goes_on_when_one_is_done() -> None:
    async def main() -> None:
        jobs = InProcessSummaryJobs(LoopClock(), tree_max=2)
        await jobs.put(TreeId("busy"), nodes("abcdef"))
        first = [await jobs.claim() for _ in range(2)]
        third = asyncio.create_task(jobs.claim())
        await asyncio.sleep(1)
        assert not third.done()
        await jobs.put(TreeId("calm"), nodes("a"))
        assert (await third).tree == "calm"
        fourth = asyncio.create_task(jobs.claim())
        await asyncio.sleep(1)
        assert not fourth.done()
        await jobs.done(first[0])
        assert (await fourth).tree == "busy"
        await jobs.retry(first[1], after=5.0)
        assert (await jobs.claim()).tree == "busy"

    run_virtually(main())
