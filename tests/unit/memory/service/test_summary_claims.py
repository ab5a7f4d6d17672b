"""Several pools over one store: each node's summary is paid for once, whoever dies."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from datetime import timedelta

import pytest

from memory.adapters.embedded.claims import InProcessClaims
from memory.errors import SettingError, StoreUnavailableError
from memory.model import NodeId, TreeId
from memory.ports.claims import Claim
from memory.ports.jobs import SummaryJob
from memory.ports.summarizer import Summary, SummaryRequest
from memory.service.claiming import TTL
from memory.service.pool import SummaryPool
from memory.service.summarize import JobOutcome
from memory.settings import MemorySettings, SummarySettings
from tests.fakes.summarizer import FakeSummarizer, SummarizerFault
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld

WORKERS = MemorySettings(summaries=SummarySettings(workers=4, attempts_max=3))


class Shared:
    """Several processes with one summarizer, one store and one set of claims."""

    def __init__(self, make_world: MakeWorld, count: int = 3, **summarizer: object) -> None:
        self.claims = InProcessClaims(LoopClock())
        self.summarizer = FakeSummarizer(LoopClock(), **{"delay": 5.0, **summarizer})  # type: ignore[arg-type]
        self.worlds: list[World] = [
            make_world(summarizer=self.summarizer, claims=self.claims, settings=WORKERS) for _ in range(count)
        ]

    async def put_everywhere(self) -> int:
        """The same jobs in every process's queue; returns how many nodes."""
        dirty = await self.worlds[0].store.dirty(TREE)
        for world in self.worlds:
            await world.jobs.put(TREE, [node.node for node in dirty])
        return len(dirty)

    async def idle(self) -> None:
        for world in self.worlds:
            assert await world.idle()


async def test_workers_that_have_the_same_jobs_pay_for_each_once(make_world: MakeWorld) -> None:
    shared = Shared(make_world)
    await shared.worlds[0].put(*turns(range(60)))
    count = await shared.put_everywhere()
    for world in shared.worlds:
        world.pool.start()
    await shared.idle()
    assert len(shared.summarizer.requests) == count
    assert (await shared.worlds[0].store.stats(TREE)).dirty == 0
    assert sum(world.summarize.counts.busy for world in shared.worlds) > 0


async def test_a_dead_workers_node_is_taken_over_when_its_time_is_over(make_world: MakeWorld) -> None:
    shared = Shared(make_world, 1)
    world = shared.worlds[0]
    await world.put(*turns(range(3)))
    for dirty in await world.store.dirty(TREE):
        await shared.claims.claim(TREE, dirty.node, ttl=TTL)
    await shared.put_everywhere()
    world.pool.start()
    assert not await world.idle(TTL.total_seconds() - 1)
    assert shared.summarizer.requests == []
    assert await world.idle(10)
    assert (await world.store.stats(TREE)).dirty == 0


async def test_a_call_that_lasts_longer_than_a_claim_keeps_it(make_world: MakeWorld) -> None:
    shared = Shared(make_world, 2, delay=TTL.total_seconds() * 3)
    await shared.worlds[0].put(*turns(range(3)))
    count = await shared.put_everywhere()
    for world in shared.worlds:
        world.pool.start()
    await shared.idle()
    assert len(shared.summarizer.requests) == count


async def test_a_worker_that_is_stopped_gives_its_claims_back(make_world: MakeWorld) -> None:
    shared = Shared(make_world, 2, delay=20.0)
    await shared.worlds[0].put(*turns(range(3)))
    await shared.put_everywhere()
    shared.worlds[0].pool.start()
    await asyncio.sleep(10)
    await shared.worlds[0].pool.stop()
    shared.worlds[1].pool.start()
    assert await shared.worlds[1].idle(TTL.total_seconds() - 1)


async def test_failures_count_whichever_worker_they_happen_to(make_world: MakeWorld) -> None:
    shared = Shared(make_world, 3, poison=lambda _: True)
    await shared.worlds[0].put(turn("a", "the same words"), turn("b", "the same words!"))
    assert await shared.put_everywhere() == 1
    for world in shared.worlds:
        world.pool.start()
    await shared.idle()
    given_up = sum(world.summarize.counts.given_up for world in shared.worlds)
    # The first three attempts are the budget; each of the other workers' jobs may then try once more.
    assert len(shared.summarizer.requests) == 3 + given_up - 1
    assert 1 <= given_up <= 3
    [failure] = await shared.claims.failures(TREE)
    assert failure.failures == len(shared.summarizer.requests)
    assert "never likes" in failure.reason
    assert (await shared.worlds[0].store.stats(TREE)).dirty == 1


async def test_an_outage_is_no_failure_of_a_node(make_world: MakeWorld) -> None:
    shared = Shared(make_world, 1, delay=0.0, faults=[SummarizerFault.AWAY] * 20)
    world = shared.worlds[0]
    await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    await shared.put_everywhere()
    world.pool.start()
    await asyncio.sleep(5)
    assert world.summarize.counts.failed > 0
    assert await shared.claims.failures(TREE) == []
    shared.summarizer.faults.clear()
    assert await world.idle()


async def test_a_key_that_is_refused_is_no_failure_of_a_node(make_world: MakeWorld) -> None:
    class Refused(FakeSummarizer):
        async def summarize(self, request: SummaryRequest) -> Summary:
            del request
            raise SettingError("the key is refused")

    claims = InProcessClaims(LoopClock())
    world = make_world(summarizer=Refused(LoopClock()), claims=claims, settings=WORKERS)
    await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    await world.jobs.put(TREE, [node.node for node in await world.store.dirty(TREE)])
    world.pool.start()
    assert await world.idle()
    assert world.summarize.counts.given_up == 1
    assert await claims.failures(TREE) == [], "a restart with the right key has the whole budget"


async def test_after_an_outage_one_bad_answer_is_not_the_last(make_world: MakeWorld) -> None:
    faults = [*[SummarizerFault.AWAY] * 6, SummarizerFault.LIES]
    shared = Shared(make_world, 1, delay=0.0, faults=faults)
    world = shared.worlds[0]
    await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    await shared.put_everywhere()
    world.pool.start()
    assert await world.idle()
    assert world.summarize.counts.given_up == 0
    assert (await world.store.stats(TREE)).dirty == 0


async def test_a_job_whose_commit_is_covered_costs_no_call(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(), settings=WORKERS)
    first = await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    [dirty] = await world.store.dirty(TREE)
    assert await world.summarize.refresh(TREE, dirty.node, seq=first[-1].seq) is JobOutcome.WRITTEN
    second = await world.put(turn("c", "the same words?"))
    assert await world.summarize.refresh(TREE, dirty.node, seq=first[-1].seq) is JobOutcome.COVERED
    assert await world.summarize.refresh(TREE, dirty.node, seq=second[-1].seq) is JobOutcome.WRITTEN


async def test_what_is_skipped_is_made_all_the_same_when_no_other_job_comes(make_world: MakeWorld) -> None:
    """Compaction may have kept the job of the older commit of two whose jobs were sent the wrong way round."""
    world = make_world(summarizer=FakeSummarizer(), settings=WORKERS, linger=10.0)
    first = await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    [top] = await world.store.dirty(TREE)
    await world.drain()
    await world.put(turn("c", "the same words?"))
    while world.jobs.backlog():
        await world.jobs.done(await world.jobs.claim())  # lost
    await world.jobs.put(TREE, [top.node], seq=first[-1].seq)
    world.pool.start()
    assert await world.idle()
    assert (world.summarize.counts.skipped, world.summarize.counts.calls) == (1, 2)
    assert top.node not in {dirty.node for dirty in await world.store.dirty(TREE)}


class FailingClaims(InProcessClaims):
    """Away now and then."""

    def __init__(self, seed: int) -> None:
        super().__init__(LoopClock())
        self._random = random.Random(seed)
        self.share = 0.3

    def _maybe(self) -> None:
        if self._random.random() < self.share:
            raise StoreUnavailableError("the claims are away")

    async def claim(self, tree: TreeId, node: NodeId, *, ttl: timedelta) -> Claim:
        self._maybe()
        return await super().claim(tree, node, ttl=ttl)

    async def renew(self, claim: Claim, *, ttl: timedelta) -> bool:
        self._maybe()
        return await super().renew(claim, ttl=ttl)

    async def done(self, claim: Claim) -> None:
        self._maybe()
        await super().done(claim)

    async def failed(self, claim: Claim, reason: str) -> int:
        self._maybe()
        return await super().failed(claim, reason)


@pytest.mark.parametrize("seed", range(5))
async def test_claims_that_are_away_now_and_then_lose_no_summary(make_world: MakeWorld, seed: int) -> None:
    summarizer = FakeSummarizer(LoopClock(), delay=12.0, faults=[SummarizerFault.LIES] * 2)
    world = make_world(summarizer=summarizer, claims=FailingClaims(seed), settings=WORKERS)
    await world.put(*turns(range(30)))
    await world.start()
    assert await world.idle()
    assert world.summarize.counts.given_up == 0
    assert (await world.store.stats(TREE)).dirty == 0


async def test_whoever_is_told_of_a_node_that_was_given_up_learns_how_often_it_failed(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(poison=lambda _: True), settings=WORKERS)
    told: Counter[int] = Counter()

    def given_up(job: SummaryJob, error: Exception) -> None:
        del error
        told[job.attempt + 1] += 1

    world.pool = SummaryPool(
        jobs=world.jobs, claims=world.claims, summarize=world.summarize, settings=WORKERS.summaries, given_up=given_up
    )
    await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    await world.start()
    assert await world.idle()
    assert told == {3: 1}
    await world.put(turn("c", "the same words?"))
    assert await world.idle()
    assert told == {3: 2, 4: 1}, "the new node had its own three attempts, the old one a single one"
