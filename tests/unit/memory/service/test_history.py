"""A tree's past: its shape after each commit, and the way that each event took."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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
from tests.fakes.inline_store import InlineStore
from tests.fakes.world import TREE, World, turn, turns


def shape(view: View) -> dict[NodeId, NodeId | None]:
    return {node: parent.id if (parent := view.parent(node)) is not None else None for node in (*view.branches, *view.homes)}


def outlined(outline: Outline) -> dict[NodeId, NodeId | None]:
    below = {child: node for node, children in outline.children().items() for child in children}
    assert below == outline.parents
    return {NodeId("root"): None, **below}


class Counting(InlineStore):
    """Counts the commits that are read, and gives none of a tree's after one where it is stuck."""

    read = 0
    stuck: tuple[TreeId, int] | None = None

    async def changes(self, tree: TreeId, after: int, *, limit: int = 1000) -> list[LogEntry]:
        if self.stuck is not None and tree == self.stuck[0] and after >= self.stuck[1]:
            await asyncio.Event().wait()
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
    view = View((await store.tree(TREE)).model.dimension)
    view.catch_up(await store.changes(TREE, 0, limit=50))
    little = History(store, shapes_bytes_max=40 * NODE_BYTES, view_bytes_max=view.bytes)
    for seq in (64, 3, 20, 64, 10):
        assert outlined(await little.as_of(TREE, seq)) == outlined(await history.as_of(TREE, seq))
        assert little._outlines.bytes <= 40 * NODE_BYTES
    with pytest.raises(QueryError, match="too many for a route"):
        await little.route(TREE, EventId("e63"))
    assert await little.route(TREE, EventId("e45")) is not None
    least = History(store, shapes_bytes_max=10 * NODE_BYTES, view_bytes_max=20 * NODE_BYTES)
    with pytest.raises(QueryError, match="too many for its past"):
        await least.as_of(TREE, 64)
    assert outlined(await least.as_of(TREE, 10)) == outlined(await history.as_of(TREE, 10))
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


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "LOG_PER_READ", 4)


@pytest.mark.real_time
@pytest.mark.usefixtures("quick")
async def test_a_route_that_is_cut_off_leaves_what_was_replayed(tmp_path: Path) -> None:
    world = World(tmp_path / "store.db")
    for number in range(48):
        await world.put(turn(number))
    store = Counting.make(tmp_path / "store.db", leases=None)
    history = History(store)
    store.stuck = TREE, 40
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await history.route(TREE, EventId("e47"))
    store.stuck, store.read = None, 0
    found = await history.route(TREE, EventId("e47"))
    assert store.read <= 48 - 40 + 1
    assert found == await History(world.store).route(TREE, EventId("e47"))
    await store.close()
    await world.close()


@pytest.mark.real_time
@pytest.mark.usefixtures("quick")
async def test_a_thread_that_goes_on_changes_nothing_that_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path / "store.db")
    for number in range(24):
        await world.put(turn(number))
    history = History(world.store)
    kept: list[bool] = []

    async def later(catch_up: Callable[[Sequence[LogEntry]], None], entries: Sequence[LogEntry]) -> None:
        async def work() -> None:
            await asyncio.sleep(1)
            kept.append(history._last is not None and history._last[1] is view)
            catch_up(entries)

        view = catch_up.__self__  # type: ignore[attr-defined]
        # As of a thread: whoever waits for it can be cut off, and it goes on.
        await asyncio.shield(asyncio.ensure_future(work()))

    with monkeypatch.context() as slow:
        slow.setattr(history_module, "_aside", later)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2.5):
                await history.route(TREE, EventId("e23"))
        found = await history.route(TREE, EventId("e20"))
    assert len(kept) > 5
    assert not any(kept), "what changes in a thread is nobody else's to begin from"
    assert found == await History(world.store).route(TREE, EventId("e20"))
    assert await history.route(TREE, EventId("e23")) == await History(world.store).route(TREE, EventId("e23"))
    await world.close()


async def test_a_tree_that_takes_long_holds_up_no_other(tmp_path: Path) -> None:
    world, other = World(tmp_path / "store.db"), TreeId("other")
    await world.put(*turns(range(8)), *(turn(number, tree=other) for number in range(8)))
    store = Counting.make(tmp_path / "store.db", leases=None)
    store.stuck = TREE, 0
    history = History(store)
    slow = [asyncio.create_task(history.as_of(TREE, 1)) for _ in range(5)]
    await asyncio.sleep(1)
    async with asyncio.timeout(60):
        assert len(await history.as_of(other, 1)) > 1
    for each in slow:
        each.cancel()
    await asyncio.gather(*slow, return_exceptions=True)
    await store.close()
    await world.close()
