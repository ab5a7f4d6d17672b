"""Fewer calls than levels (P5): what lingering folds together, and what it may cost."""

from __future__ import annotations

import asyncio

from memory.settings import MemorySettings, SummarySettings
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, World, turn
from tests.unit.memory.service.conftest import MakeWorld

LINGER = 10.0


async def trickle(world: World, count: int) -> None:
    """An item a second, all below one node."""
    for number in range(count):
        await world.put(turn(f"x{number}", f"the same few words about a boat {number % 2}"))
        await asyncio.sleep(1.0)


async def calls(make_world: MakeWorld, linger: float) -> float:
    summarizer = FakeSummarizer(LoopClock(), delay=1.0)
    world = make_world(
        f"linger-{linger}", summarizer=summarizer, linger=linger, settings=MemorySettings(summaries=SummarySettings(workers=16))
    )
    world.pool.start()
    await trickle(world, 60)
    assert await world.idle()
    assert (await world.store.stats(TREE)).dirty == 0
    return len(summarizer.requests) / 60


async def test_lingering_saves_most_calls_of_a_slow_stream(make_world: MakeWorld) -> None:
    assert await calls(make_world, LINGER) < 0.4 * await calls(make_world, 0.0)


async def test_a_summary_lags_behind_by_no_more_than_the_linger_and_a_call(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=1.0), linger=LINGER)
    world.pool.start()
    feeding = asyncio.create_task(trickle(world, 60))
    await asyncio.sleep(0.5)
    while not feeding.done():
        await asyncio.sleep(1.0)
        for dirty in await world.store.dirty(TREE):
            assert dirty.pending <= LINGER + 3
    await feeding
