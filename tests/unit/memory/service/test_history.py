"""A tree's past: its shape after each commit, and the way that each event took."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.changes import LogEntry
from memory.errors import QueryError
from memory.model import EventId, NodeId, TreeId
from memory.service import history as history_module
from memory.service.history import History
from memory.service.outline import NODE_BYTES, Outline
from memory.tree.view import View
from tests.fakes.clock import FakeClock
from tests.fakes.embedder import FakeEmbedder
from tests.fakes.inline_store import InlineStore
from tests.fakes.world import TREE, World, turns


def shape(view: View) -> dict[NodeId, NodeId | None]:
    return {node: parent.id if (parent := view.parent(node)) is not None else None for node in (*view.branches, *view.homes)}


def outlined(outline: Outline) -> dict[NodeId, NodeId | None]:
    below = {child: node for node, children in outline.children().items() for child in children}
    assert below == outline.parents
    return {NodeId("root"): None, **below}


class Counting(InlineStore):
    """Counts the commits that are read."""

    read = 0

    async def changes(self, tree: TreeId, after: int, *, limit: int = 1000) -> list[LogEntry]:
        found = await super().changes(tree, after, limit=limit)
        self.read += len(found)
        return found


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
    for seq, expected in [*shapes.items(), *reversed(shapes.items())]:
        assert outlined(await history.as_of(TREE, seq)) == expected
    for number in [*range(40), *range(39, -1, -7)]:
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


async def test_the_log_is_not_read_from_its_beginning_each_time_and_little_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_module, "LOG_PER_READ", 4)
    world = World(tmp_path / "store.db")
    for number in range(64):
        await world.put(*turns(range(number, number + 1)))
    store = Counting.make(tmp_path / "store.db", leases=None)
    history = History(store)
    expected = outlined(await history.as_of(TREE, 64))
    store.read = 0
    assert outlined(await history.as_of(TREE, 64)) == expected
    assert outlined(await history.as_of(TREE, 60)) != expected
    assert store.read <= 30, "from the one kept on the way"
    await history.route(TREE, EventId("e40"))
    store.read = 0
    await history.route(TREE, EventId("e42"))
    assert store.read <= 4
    little = History(store, shapes_bytes_max=40 * NODE_BYTES, view_bytes_max=70 * (2 * FakeEmbedder().model.dimension + NODE_BYTES))
    for seq in (64, 3, 20, 64, 10):
        assert outlined(await little.as_of(TREE, seq)) == outlined(await history.as_of(TREE, seq))
        assert little._outlines.bytes <= 40 * NODE_BYTES
    with pytest.raises(QueryError, match="too many for a route"):
        await little.route(TREE, EventId("e63"))
    assert await little.route(TREE, EventId("e5")) is not None
    await store.close()
    await world.close()


async def test_what_was_kept_of_another_history_is_not_believed(tmp_path: Path) -> None:
    first = World(tmp_path / "a.db", clock=FakeClock())
    second = World(tmp_path / "b.db", clock=FakeClock(datetime(2026, 2, 1, tzinfo=UTC)))
    await first.put(*turns(range(8)))
    await first.put(*turns(range(8, 16)))
    await second.put(*turns(range(20, 28)))
    await second.put(*turns(range(28, 36)))
    history, fresh = History(first.store), History(second.store)
    await history.as_of(TREE, 2)
    await history.route(TREE, EventId("e9"))
    history._store = second.store  # as after a failover that lost commits
    assert outlined(await history.as_of(TREE, 2)) == outlined(await fresh.as_of(TREE, 2))
    assert await history.route(TREE, EventId("e30")) == await fresh.route(TREE, EventId("e30"))
    await first.close()
    await second.close()
