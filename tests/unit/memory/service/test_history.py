"""A tree's past: its shape after each commit, and the way that each event took."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.errors import QueryError
from memory.model import EventId, NodeId
from memory.service.history import History
from memory.tree.view import View
from tests.fakes.world import TREE, World, turns


def shape(view: View) -> dict[NodeId, NodeId | None]:
    return {node: parent.id if (parent := view.parent(node)) is not None else None for node in (*view.branches, *view.homes)}


@pytest.mark.parametrize("structure", ["memtree", "hat"])
async def test_the_past_is_as_it_was_and_routes_lead_where_events_went(tmp_path: Path, structure: str) -> None:
    world = World(tmp_path / "store.db", structure=structure)
    shapes: dict[int, dict[NodeId, NodeId | None]] = {0: {NodeId("root"): None}}
    for first in range(0, 40, 5):
        await world.put(*turns(range(first, first + 5)))
        async with world.views.hold(TREE) as view:
            shapes[view.seq] = shape(view)
        await world.drain()
    history = History(world.store)
    for seq, expected in shapes.items():
        assert shape(await history.as_of(TREE, seq)) == expected
    for number in range(40):
        route = await history.route(TREE, EventId(f"e{number}"))
        assert route is not None
        [leaf] = route.leaves
        if structure == "memtree":
            *above, last = leaf.decisions
            assert all(each.similarity >= each.threshold for each in above)
            assert (leaf.expanded is not None) == (last.best is not None and last.similarity >= last.threshold)
            assert leaf.parent == last.node if leaf.expanded is None else leaf.expanded == last.best
    await world.close()


async def test_what_never_was(tmp_path: Path) -> None:
    world = World(tmp_path / "store.db")
    await world.put(*turns(range(3)))
    history = History(world.store)
    for seq in (-1, 99):
        with pytest.raises(QueryError, match="must be between"):
            await history.as_of(TREE, seq)
    assert await history.route(TREE, EventId("no such")) is None
    await world.close()
