"""Summaries: folded together, never worse than before, never dropped."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from memory.changes import ChangeSet
from memory.errors import SummarizerAnswerError, SummarizerError
from memory.model import ROOT, Node, NodeId, TreeId
from memory.ports.leases import Lease
from memory.ports.store import Applied, Seen, Stale
from memory.service.summarize import JobOutcome
from memory.settings import MemorySettings, SummarySettings
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.fakes.families import assert_fresh_and_sound, family, node_of, summaries
from tests.fakes.summarizer import FakeSummarizer, SummarizerFault
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, World, turn
from tests.unit.memory.service.conftest import MakeWorld

POOL = MemorySettings(summaries=SummarySettings(workers=4, attempts_max=3))


async def test_a_fresh_summary_is_provisional_until_it_was_written(world: World) -> None:
    top = await family(world, 2)
    before = await node_of(world, top)
    assert before.provisional
    assert before.text
    assert (before.pending, before.descendants) == (2, 2)
    assert await world.summarize.refresh(TREE, top) is JobOutcome.WRITTEN
    after = await node_of(world, top)
    assert not after.provisional
    assert after.text.startswith("2 of 2\n")
    assert (after.pending, after.version) == (0, before.version + 1)
    assert await world.summarize.refresh(TREE, top) is JobOutcome.FRESH


async def test_all_contributions_that_wait_are_folded_into_one_call(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer()
    world = make_world(summarizer=summarizer)
    top = await family(world, 40)
    assert await world.summarize.refresh(TREE, top) is JobOutcome.WRITTEN
    [request] = summarizer.requests
    assert (len(request.new), request.descendants, request.covered, request.existing) == (40, 40, 0, "")
    await family(world, 5, start=40)
    await world.summarize.refresh(TREE, top)
    request = summarizer.requests[-1]
    assert (len(request.new), request.descendants, request.covered) == (5, 45, 40)
    assert request.existing.startswith("40 of 40")


async def test_a_provisional_text_is_never_shown_to_the_summarizer(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer()
    world = make_world(summarizer=summarizer)
    await world.summarize.refresh(TREE, await family(world, 2))
    assert summarizer.requests[0].existing == ""


async def test_more_than_the_budget_holds_is_taken_in_parts(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(tokens_max=40)
    world = make_world(summarizer=summarizer)
    top = await family(world, 30)
    outcomes = [await world.summarize.refresh(TREE, top)]
    while outcomes[-1] is JobOutcome.MORE:
        outcomes.append(await world.summarize.refresh(TREE, top))
    assert outcomes[-1] is JobOutcome.WRITTEN
    assert len(outcomes) > 3
    assert sum(len(request.new) for request in summarizer.requests) == 30
    assert (await node_of(world, top)).text.startswith("30 of 30")
    await world.drain()
    await assert_fresh_and_sound(world)


async def test_children_are_folded_when_more_waits_than_the_budget_holds(make_world: MakeWorld) -> None:
    """All below is up to date and fits: one call instead of many."""
    summarizer = FakeSummarizer(tokens_max=150)
    world = make_world(summarizer=summarizer)
    top = await family(world, 60)
    assert len(await summaries(world)) > 1, "the shape this test needs"
    written = await world.drain()
    children = await world.store.children(TREE, top)
    request = summarizer.requests[-1]
    assert len(children) < 60
    assert len(request.new) == len(children)
    assert (request.covered, request.existing) == (0, "")
    assert written == len(summarizer.requests)
    await assert_fresh_and_sound(world)


async def test_what_comes_during_a_call_stays_pending_and_is_done_next(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=10.0))
    top = await family(world, 4)
    call = asyncio.create_task(world.summarize.refresh(TREE, top))
    await asyncio.sleep(5)
    await family(world, 3, start=4)
    assert await call is JobOutcome.WRITTEN
    node = await node_of(world, top)
    assert (node.descendants, node.pending) == (7, 3)
    assert node.text.startswith("4 of 4")
    await world.drain()
    assert (await node_of(world, top)).text.startswith("7 of 7")
    await assert_fresh_and_sound(world)


async def test_an_insertion_never_waits_for_a_call(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=1_000.0), settings=POOL)
    await family(world, 4)
    await world.start()
    await asyncio.sleep(1)
    started = world.clock.monotonic()
    for start in range(4, 40, 4):
        await family(world, 4, start=start)
    assert world.clock.monotonic() - started < 1.0


async def test_a_node_that_was_rewritten_meanwhile_is_read_again(make_world: MakeWorld) -> None:
    slow, quick = make_world(summarizer=FakeSummarizer(LoopClock(), delay=10.0)), make_world()
    top = await family(slow, 4)
    call = asyncio.create_task(slow.summarize.refresh(TREE, top))
    await asyncio.sleep(5)
    assert await quick.summarize.refresh(TREE, top) is JobOutcome.WRITTEN
    version = (await node_of(slow, top)).version
    assert await call is JobOutcome.CHANGED
    assert (await node_of(slow, top)).version == version
    assert slow.summarize.counts.written == 0
    assert await slow.summarize.refresh(TREE, top) is JobOutcome.FRESH


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (SummarizerFault.EMPTY, SummarizerAnswerError),
        (SummarizerFault.HUGE, SummarizerAnswerError),
        (SummarizerFault.SURROGATE, SummarizerAnswerError),
        (SummarizerFault.LIES, SummarizerAnswerError),
        (SummarizerFault.AWAY, SummarizerError),
        (SummarizerFault.HANG, SummarizerError),
    ],
)
@pytest.mark.parametrize("written_before", [False, True])
async def test_a_bad_answer_leaves_text_and_count(
    make_world: MakeWorld, fault: SummarizerFault, error: type[Exception], written_before: bool
) -> None:
    summarizer = FakeSummarizer()
    world = make_world(summarizer=summarizer)
    top = await family(world, 4)
    if written_before:
        await world.summarize.refresh(TREE, top)
        await family(world, 3, start=4)
    before = await node_of(world, top)
    summarizer.faults.append(fault)
    with pytest.raises(error):
        await world.summarize.refresh(TREE, top)
    after = await node_of(world, top)
    assert (after.text, after.version, after.pending, after.provisional) == (
        before.text,
        before.version,
        before.pending,
        before.provisional,
    )
    await world.drain()
    await assert_fresh_and_sound(world)


@pytest.mark.parametrize("fault", [EmbedderFault.NAN, EmbedderFault.DIMENSION, EmbedderFault.FEW, EmbedderFault.BUSY])
async def test_a_summary_whose_vector_is_bad_is_not_written(make_world: MakeWorld, fault: EmbedderFault) -> None:
    embedder = FakeEmbedder()
    world = make_world(embedder=embedder, summarizer=FakeSummarizer(vector_from_text=True), settings=POOL)
    top = await family(world, 4)
    before = await node_of(world, top)
    embedder.faults.append(fault)
    await world.start()
    await asyncio.sleep(0.5)
    assert world.summarize.counts.failed == 1
    assert "fake" in world.summarize.counts.last_error
    assert (await node_of(world, top)).version >= before.version
    assert await world.idle()
    await world.put(turn("again", "the same few words about a boat 0"))
    assert await world.idle()
    await world.drain()
    await assert_fresh_and_sound(world)


def lose(world: World, monkeypatch: pytest.MonkeyPatch, lost: Collection[NodeId]) -> None:
    """Have leaves missing from the store's answers, as after a store lost them."""
    nodes = world.store.nodes

    async def fewer(tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> dict[NodeId, Node]:
        return await nodes(tree, [node for node in ids if node not in lost], vectors=vectors)

    monkeypatch.setattr(world.store, "nodes", fewer)


async def test_a_leaf_that_is_gone_is_passed_over_and_no_other_is_left_out(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarizer = FakeSummarizer(tokens_max=40)
    world = make_world(summarizer=summarizer)
    top = await family(world, 20)
    waiting = [contribution.leaf for contribution in await world.store.contributions(TREE, top)]
    lost = {*waiting[:3], waiting[9], waiting[-1]}
    lose(world, monkeypatch, lost)
    while await world.summarize.refresh(TREE, top) is JobOutcome.MORE:
        pass
    assert sum(len(request.new) for request in summarizer.requests) == 20 - len(lost)
    assert await world.store.contributions(TREE, top) == []


async def test_when_all_that_wait_are_gone_the_summary_stays_as_it_is(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    summarizer = FakeSummarizer()
    world = make_world(summarizer=summarizer)
    top = await family(world, 4)
    await world.summarize.refresh(TREE, top)
    before = await node_of(world, top)
    await family(world, 3, start=4)
    lose(world, monkeypatch, {contribution.leaf for contribution in await world.store.contributions(TREE, top)})
    assert await world.summarize.refresh(TREE, top) is JobOutcome.WRITTEN
    after = await node_of(world, top)
    assert len(summarizer.requests) == 1, "nothing new, nothing to ask"
    assert (after.text, after.cohesion, after.pending) == (before.text, before.cohesion, 0)
    assert np.array_equal(after.vector, before.vector)  # type: ignore[arg-type]
    assert await world.summarize.refresh(TREE, top) is JobOutcome.FRESH


async def test_no_call_is_made_under_a_lease(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(LoopClock(), delay=100.0)
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 6)
    await world.start()
    await asyncio.sleep(50)
    assert summarizer.running
    everything = [node.id async for node in world.store.all_nodes(TREE)]
    await world.leases.acquire(TREE, exclusive=everything, ttl=timedelta(seconds=1), wait=timedelta(0))


async def test_a_lease_that_cannot_be_had_does_not_keep_a_summary_from_being_written(world: World) -> None:
    top = await family(world, 4)
    await world.leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(hours=1), wait=timedelta(0))
    assert await world.summarize.refresh(TREE, top) is JobOutcome.WRITTEN


async def test_a_lease_that_ended_before_the_commit_costs_no_second_call(make_world: MakeWorld) -> None:
    """A process that was stopped between leasing and committing: its answer is paid for, and still right."""
    summarizer = FakeSummarizer()
    world = make_world(summarizer=summarizer, settings=POOL)
    await family(world, 2)
    apply = world.store.apply
    stops = [60.0]

    async def stopped(changes: ChangeSet, *, lease: Lease | None = None, **given: Any) -> Applied | Seen | Stale:
        if stops:
            await asyncio.sleep(stops.pop())
        return await apply(changes, lease=lease, **given)

    world.store.apply = stopped  # type: ignore[method-assign]
    await world.start()
    assert await world.idle()
    assert len(summarizer.requests) == 1
    assert world.summarize.counts.failed == 0
    await assert_fresh_and_sound(world)
