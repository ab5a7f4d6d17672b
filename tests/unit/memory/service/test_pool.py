"""The pool that makes summaries: what fails is tried again, put off or given up, and nothing is dropped."""

from __future__ import annotations

import asyncio

import pytest

from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.errors import StoreUnavailableError
from memory.ports.jobs import SummaryJob
from memory.service.pool import SummaryPool
from memory.settings import MemorySettings, SummarySettings
from tests.fakes.families import assert_fresh_and_sound, family, summaries
from tests.fakes.summarizer import FakeSummarizer, SummarizerFault
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, turn
from tests.unit.memory.service.conftest import MakeWorld

POOL = MemorySettings(summaries=SummarySettings(workers=4, attempts_max=3))


async def test_an_outage_is_waited_for_and_nothing_is_dropped(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.AWAY] * 200)
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 10)
    await world.start()
    assert not await world.idle(60)
    assert world.summarize.counts.given_up == 0
    assert world.summarize.counts.failed > POOL.summaries.attempts_max * len(await summaries(world))
    summarizer.faults.clear()
    assert await world.idle()
    assert world.summarize.counts.given_up == 0
    await assert_fresh_and_sound(world)


async def test_an_outage_is_not_hammered(make_world: MakeWorld) -> None:
    """Waits grow to `backoff_max`, so that an hour of outage costs each node about a call a minute."""
    summarizer = FakeSummarizer(faults=[SummarizerFault.AWAY] * 100_000)
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 10)
    await world.start()
    await asyncio.sleep(3_600)
    assert len(summarizer.requests) <= 75 * len(await summaries(world))


async def test_retry_after_is_honoured(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.AWAY], retry_after=300.0)
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 2)
    await world.start()
    await asyncio.sleep(299)
    assert len(summarizer.requests) == 1
    assert await world.idle()
    await assert_fresh_and_sound(world)


@pytest.mark.parametrize("fault", [SummarizerFault.LIES, SummarizerFault.CRASH, SummarizerFault.EMPTY])
async def test_a_poisoned_node_is_given_up_visibly_and_others_go_on(make_world: MakeWorld, fault: SummarizerFault) -> None:
    summarizer = FakeSummarizer(
        poison=lambda request: fault is SummarizerFault.LIES and any("poison" in text for text in request.new)
    )
    if fault is not SummarizerFault.LIES:
        summarizer.faults.extend([fault] * POOL.summaries.attempts_max)
    world = make_world(summarizer=summarizer, settings=MemorySettings(summaries=SummarySettings(workers=1, attempts_max=3)))
    await world.put(turn("p1", "poison poison poison"), turn("p2", "poison poison poison!"))
    await world.start()
    assert await world.idle()
    assert (world.summarize.counts.given_up, world.summarize.counts.failed) == (1, 3)
    stats = await world.store.stats(TREE)
    assert (stats.dirty, stats.pending) == (1, 2)
    assert (await world.inspect.check(TREE)).clean
    await world.put(turn("a", "harmless words here"), turn("b", "harmless words here!"))
    assert await world.idle()
    assert (await world.store.stats(TREE)).dirty == 1


async def test_a_node_that_was_given_up_is_tried_again_with_its_next_contribution(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.LIES] * 3)
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 2)
    await world.start()
    assert await world.idle()
    assert world.summarize.counts.given_up == 1
    await family(world, 1, start=2)
    assert await world.idle()
    await assert_fresh_and_sound(world)


async def test_a_summarizer_that_hangs_is_cut_off_and_asked_again(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.HANG])
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 2)
    await world.start()
    await asyncio.sleep(POOL.summaries.time_limit.total_seconds() - 1)
    assert summarizer.running == 1
    assert await world.idle()
    assert summarizer.running == 0
    await assert_fresh_and_sound(world)


async def test_the_pool_runs_as_many_calls_as_it_was_told(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(LoopClock(), delay=1.0)
    world = make_world(summarizer=summarizer, settings=MemorySettings(summaries=SummarySettings(workers=7)))
    await world.put(*(turn(f"{group}-{number}", f"word{group} " * 5) for group in range(20) for number in range(3)))
    await world.start()
    assert await world.idle()
    assert summarizer.running_most == 7
    await assert_fresh_and_sound(world)


async def test_stopping_in_the_middle_loses_nothing(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=10.0), settings=POOL)
    await family(world, 12)
    for _ in range(3):
        await world.start()
        await asyncio.sleep(5)
        await world.pool.stop()
        assert world.jobs.backlog() == len(await summaries(world))
    await world.start()
    assert await world.idle()
    await assert_fresh_and_sound(world)


class _FailingJobs(InProcessSummaryJobs):
    """Fails, for as often as it was told, at what it was told."""

    def __init__(self, **faults: int) -> None:
        super().__init__(LoopClock())
        self.faults = faults

    def _fail(self, name: str) -> None:
        if self.faults.get(name, 0):
            self.faults[name] -= 1
            raise StoreUnavailableError(f"the queue is away at {name}")

    async def claim(self) -> SummaryJob:
        self._fail("claim")
        return await super().claim()

    async def retry(self, job: SummaryJob, *, after: float, failed: bool = True) -> None:
        self._fail("retry")
        await super().retry(job, after=after, failed=failed)

    async def done(self, job: SummaryJob) -> None:
        self._fail("done")
        await super().done(job)


@pytest.mark.parametrize("method", ["claim", "retry", "done"])
async def test_a_queue_that_fails_ends_no_worker(make_world: MakeWorld, method: str) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.AWAY])
    world = make_world(summarizer=summarizer, settings=MemorySettings(summaries=SummarySettings(workers=1)))
    world.jobs = _FailingJobs(**{method: 1})
    world.pool = SummaryPool(jobs=world.jobs, claims=world.claims, summarize=world.summarize, settings=world.settings.summaries)
    await family(world, 6)
    await world.start()
    assert await world.idle(600)
    assert world.summarize.counts.failed == 2
    await assert_fresh_and_sound(world)


async def test_who_cannot_be_told_of_a_node_that_was_given_up_ends_no_worker_and_costs_no_call(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.LIES] * 3)
    world = make_world(summarizer=summarizer, settings=MemorySettings(summaries=SummarySettings(workers=1, attempts_max=3)))

    def given_up(job: SummaryJob, error: Exception) -> None:
        raise ZeroDivisionError(job, error)

    world.pool = SummaryPool(
        jobs=world.jobs, claims=world.claims, summarize=world.summarize, settings=world.settings.summaries, given_up=given_up
    )
    top = await family(world, 2)
    await world.start()
    assert await world.idle()
    assert (world.summarize.counts.given_up, len(summarizer.requests)) == (1, 3)
    assert "ZeroDivisionError" in world.summarize.counts.last_error
    await world.jobs.put(TREE, [top])
    assert await world.idle()
    await assert_fresh_and_sound(world)
