"""Waiting for summaries, whoever makes them."""

from __future__ import annotations

import asyncio

from memory.model import TreeId
from memory.ports.store import DirtyNode
from memory.service.freshness import ADOPT_AFTER, TREES_PER_SECOND, Freshness
from memory.settings import MemorySettings, SummarySettings
from tests.fakes.summarizer import FakeSummarizer, SummarizerFault
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld


def freshness(world: World) -> Freshness:
    return Freshness(store=world.store, jobs=world.jobs, pool=world.pool, clock=world.clock)


async def pending(world: World) -> int:
    return (await world.store.stats(TREE)).dirty


async def test_it_waits_for_all_and_tells_how_many_are_left(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=1.0))
    await world.start()
    await world.put(*turns(range(40)))
    left: list[int] = []
    assert await freshness(world).wait(TREE, progress=left.append, seconds=None)
    assert await pending(world) == 0
    assert left[0] > 1
    assert left[-1] == 0


async def test_it_gives_up_when_the_time_is_over(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=100.0))
    await world.start()
    await world.put(*turns(range(10)))
    assert not await freshness(world).wait(None, progress=None, seconds=5.0)
    assert world.clock.monotonic() < 6.0


async def test_nodes_that_are_given_up_make_it_say_no(make_world: MakeWorld) -> None:
    world = make_world(
        summarizer=FakeSummarizer(poison=lambda _: True), settings=MemorySettings(summaries=SummarySettings(attempts_max=2))
    )
    await world.start()
    await world.put(*turns(range(10)))
    assert not await freshness(world).wait(TREE, progress=None, seconds=None)
    assert await pending(world) > 0


async def test_what_another_process_left_behind_is_made_here(make_world: MakeWorld) -> None:
    dead, alive = make_world(), make_world()
    await alive.start()
    await dead.put(*turns(range(30)))
    assert await pending(alive) > 0
    assert await freshness(alive).wait(TREE, progress=None, seconds=None)
    assert await pending(alive) == 0
    assert ADOPT_AFTER <= alive.clock.monotonic() < 3 * ADOPT_AFTER


async def test_what_another_process_is_at_is_left_to_it(make_world: MakeWorld) -> None:
    ours = FakeSummarizer()
    busy, idle = make_world(summarizer=FakeSummarizer(LoopClock(), delay=2.0)), make_world(summarizer=ours)
    await busy.start()
    await idle.start()
    await busy.put(*turns(range(40)))
    assert await freshness(idle).wait(TREE, progress=None, seconds=None)
    assert ours.requests == []


async def test_without_a_pool_it_waits_for_others(make_world: MakeWorld) -> None:
    busy, ours = make_world(summarizer=FakeSummarizer(LoopClock(), delay=1.0)), make_world()
    await ours.put(*turns(range(20)))
    assert not await freshness(ours).wait(TREE, progress=None, seconds=60.0)
    waiting = asyncio.create_task(freshness(ours).wait(TREE, progress=None, seconds=None))
    await busy.start()
    assert await waiting
    assert await pending(ours) == 0


async def test_a_node_given_up_before_is_tried_again(make_world: MakeWorld) -> None:
    summarizer = FakeSummarizer(faults=[SummarizerFault.LIES] * 1_000)
    world = make_world(summarizer=summarizer, settings=MemorySettings(summaries=SummarySettings(attempts_max=2)))
    await world.start()
    await world.put(*turns(range(10)))
    assert not await freshness(world).wait(TREE, progress=None, seconds=None)
    summarizer.faults.clear()
    assert await freshness(world).wait(TREE, progress=None, seconds=None)
    assert await pending(world) == 0


async def test_a_node_of_another_tree_that_is_given_up_is_no_matter(make_world: MakeWorld) -> None:
    other = TreeId("other")
    world = make_world(
        summarizer=FakeSummarizer(LoopClock(), delay=1.0, poison=lambda request: any("bad" in text for text in request.new)),
        settings=MemorySettings(summaries=SummarySettings(attempts_max=1)),
    )
    await world.start()
    await world.put(*turns(range(40)), turn("a", "bad bad bad", tree=other), turn("b", "bad bad bad!", tree=other))
    ours, theirs, everyone = (
        asyncio.create_task(freshness(world).wait(tree, progress=None, seconds=None)) for tree in (TREE, other, None)
    )
    assert (await ours, await theirs, await everyone) == (True, False, False)


async def test_with_many_trees_the_store_is_read_less_often(make_world: MakeWorld) -> None:
    world = make_world()
    await world.put(*(turn(number, tree=f"t{number}") for number in range(200)), *turns(range(20)))
    reads = 0
    dirty = world.store.dirty

    async def counted(tree: TreeId, *, limit: int = 1_000) -> list[DirtyNode]:
        nonlocal reads
        reads += 1
        return await dirty(tree, limit=limit)

    world.store.dirty = counted  # type: ignore[method-assign]
    assert not await freshness(world).wait(None, progress=None, seconds=10.0)
    assert reads <= 10 * TREES_PER_SECOND + 2 * 201
    assert world.clock.monotonic() < 11.0


async def test_nobody_who_waits_waits_for_the_linger(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(LoopClock(), delay=1.0), linger=600.0)
    await world.start()
    await world.put(*turns(range(40)))
    assert await freshness(world).wait(TREE, progress=None, seconds=None)
    assert await pending(world) == 0
    assert world.clock.monotonic() < 60
