"""Forgetting beside other use cases: how summaries are made anew, what history still knows."""

from __future__ import annotations

import pytest

from memory.errors import ContentionError, QueryError
from memory.model import EventId, Node, NodeKind
from memory.ports.store import Stale
from memory.service.children import NotReady, lost_its_sources
from memory.service.forgetting import ATTEMPTS_MAX
from memory.service.history import History
from memory.service.summarize import JobOutcome
from tests.fakes.world import TREE, World, turn, turns


async def summaries(world: World) -> list[Node]:
    """The deepest first."""
    found = [node async for node in world.store.all_nodes(TREE) if node.kind is NodeKind.SUMMARY]
    return sorted(found, key=lambda node: -node.depth)


async def forgetful(world: World) -> list[Node]:
    """The summaries that are to be made anew in a tree that has forgotten."""
    await world.put(*turns(range(40)))
    await world.drain()
    await world.forget("e0", "e7", "e14")
    lost = [node for node in await summaries(world) if lost_its_sources(node)]
    assert len({node.depth for node in lost}) > 1
    return lost


async def test_what_is_made_anew_waits_for_children_that_are_too_and_for_no_others(world: World) -> None:
    lost = await forgetful(world)
    above = next(node for node in reversed(lost) if any(child.parent == node.id for child in lost))
    with pytest.raises(NotReady):
        await world.summarize.refresh(TREE, above.id)
    for node in lost[: lost.index(above)]:
        await world.summarize.refresh(TREE, node.id)
    await world.put(turn(700), turn(707), batch=1)  # go where what was forgotten lay
    busy = [node for node in await summaries(world) if node.pending and node.depth > above.depth]
    assert busy, "children are not up to date"
    assert await world.summarize.refresh(TREE, above.id) is JobOutcome.WRITTEN
    now = (await world.store.nodes(TREE, [above.id]))[above.id]
    assert (now.provisional, now.pending) == (False, 0)
    await world.drain()
    assert (await world.inspect.check(TREE)).violations == ()


async def test_a_call_for_each_summary_and_not_for_each_leaf(world: World) -> None:
    await forgetful(world)
    dirty, before = await world.store.dirty(TREE), world.summarize.counts.calls
    await world.drain()
    assert world.summarize.counts.calls - before <= len(dirty)
    assert not [node for node in await summaries(world) if node.provisional]


async def test_history_says_of_what_it_knows_no_longer_that_it_does_not(world: World) -> None:
    await world.put(*turns(range(20)), batch=5)
    history = History(world.store)
    before = await history.as_of(TREE, 4)
    assert await history.route(TREE, EventId("e12")) is not None
    await world.forget("e3")
    await world.put(turn(20))
    assert await history.route(TREE, EventId("e3")) is None
    with pytest.raises(QueryError, match="something was forgotten"):
        await history.route(TREE, EventId("e12"))
    found = await history.route(TREE, EventId("e20"))
    assert found is not None
    assert found.leaves[0].decisions
    assert (await history.as_of(TREE, 4)).parents == before.parents, "ids stay"
    seq = (await world.store.tree(TREE)).seq
    stored = {node.id: node.parent async for node in world.store.all_nodes(TREE) if node.parent is not None}
    assert (await history.as_of(TREE, seq)).parents == stored


async def test_refused_too_often_it_says_so_and_forgets_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.put(*turns(range(5)))
    asked = 0

    async def refuse(*_: object, **__: object) -> Stale:
        nonlocal asked
        asked += 1
        return Stale(nodes=(), seq=0)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "apply", refuse)
        with pytest.raises(ContentionError, match="try again"):
            await world.forget("e3")
    assert asked == ATTEMPTS_MAX
    assert (await world.forget("e3")).forgotten == 1
