"""
What every structure must pass, over every store: effect once, concurrent writers as one by one, replay, copies, forgetting.

A structure that is added to the registry is held to all of it; kill -9 is in tests/chaos/test_kill.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from memory.changes import Create, Grow, Move
from memory.errors import QueryError
from memory.model import ROOT, EventId, Node, NodeId, NodeKind, TreeId
from memory.ports.index import Scope
from memory.ports.store import TreeStore
from memory.results import EventStatus
from memory.retrieval.catalogue import STRATEGIES, works_on
from memory.settings import IngestSettings, MemorySettings
from memory.structures import registry
from memory.structures.base import Structure
from memory.tree.planning import Insertion
from memory.tree.view import View
from tests.fakes.plain_tree import fields_of
from tests.fakes.world import TREE, World, turn, turns

SMALL: Mapping[str, Mapping[str, float]] = {"hat": {"memory_length": 2.0}}
"""Parameters under which few items make a tree of many levels."""
COUNT = 48


@pytest.fixture(params=registry.NAMES)
def structure(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def world(store: TreeStore, structure: str, tmp_path: Path) -> AsyncIterator[World]:
    made = _world(store, structure, tmp_path)
    yield made
    await made.pool.stop()


def _world(store: TreeStore, structure: str, folder: Path) -> World:
    """A process: views, jobs and a search index of its own over the shared store."""
    # Leases only keep writers from refusing one another; without them every commit must be right by what it expects.
    settings = MemorySettings(ingest=IngestSettings(batch_items=5, lease_after=1_000_000, attempts_max=1_000))
    return World(folder / "unused.db", store=store, structure=structure, parameters=SMALL.get(structure), settings=settings)


def conversation(first: int, last: int) -> list:  # type: ignore[type-arg]
    """Turns of two sessions."""
    return [turn(number, conversation=f"c{number // 24}", speaker=("Ana", "Ben")[number % 2]) for number in range(first, last)]


async def made(world: World) -> Structure:
    return registry.of(await world.store.tree(TREE))


async def nodes(store: TreeStore, tree: TreeId = TREE) -> dict[NodeId, Node]:
    return {node.id: node async for node in store.all_nodes(tree, vectors=True)}


async def test_the_tree_remembers_its_structure(world: World, structure: str) -> None:
    await world.put(*conversation(0, 3))
    info = await world.store.tree(TREE)
    assert info.structure == structure
    assert info.parameters == registry.make(structure, info.model, SMALL.get(structure)).parameters()


async def test_an_event_has_its_effect_once(world: World) -> None:
    await world.put(*conversation(0, 20))
    before = await nodes(world.store)
    results = await world.put(*conversation(0, 20), turn(3, text="other words"))
    assert {result.status for result in results[:20]} == {EventStatus.DUPLICATE}
    assert results[20].status is EventStatus.CONFLICT
    assert set(await nodes(world.store)) == set(before)
    assert (await world.inspect.check(TREE)).violations == ()


async def test_concurrent_writers_equal_a_serial_order(world: World, structure: str, tmp_path: Path) -> None:
    """What they made is, commit by commit, what one planner makes that is given the items in the order of the commits."""
    other = _world(world.store, structure, tmp_path)
    results = await asyncio.gather(
        world.put(*conversation(0, 30), batch=3),
        other.put(*conversation(18, COUNT), batch=4),
        other.put(*conversation(10, 20), batch=1),
    )
    accepted = [result.id for some in results for result in some if result.status is EventStatus.ACCEPTED]
    assert sorted(accepted) == sorted(f"e{number}" for number in range(COUNT))
    stored = await nodes(world.store)
    planner = await made(world)
    view = View(world.embedder.model.dimension)
    for entry in await world.store.changes(TREE, 0):
        leaves = [step.id for step in entry.steps if isinstance(step, Create) and step.kind is NodeKind.LEAF]
        insertions = []
        for leaf in leaves:
            node = stored[leaf]
            assert node.item is not None
            assert node.vector is not None
            insertions.append(Insertion(item=node.item, vector=node.vector))
        plan = planner.plan(view, insertions)
        assert list(map(_outline, plan.steps)) == list(map(_outline, entry.steps))
        view.seq = entry.seq
    assert (await world.inspect.check(TREE)).violations == ()


def _outline(step: object) -> object:
    """A step without what is filled in when it is committed."""
    if isinstance(step, Create):
        return "create", step.id, step.parent, step.kind, step.depth, step.above, dict(step.attributes)
    return step if isinstance(step, Move | Grow) else repr(step)


async def test_a_replay_agrees_with_summaries_made_in_between(world: World) -> None:
    for start in range(0, COUNT, 12):
        await world.put(*conversation(start, start + 12))
        await world.drain()
    report = await world.inspect.check(TREE)
    assert (report.violations, report.replayed) == ((), COUNT)
    assert await world.store.dirty(TREE) == []
    found = await nodes(world.store)
    assert all(node.text for name, node in found.items() if name != ROOT)
    assert sum(node.kind is NodeKind.LEAF for node in found.values()) == COUNT


async def test_a_view_that_is_loaded_is_the_view_that_grew(world: World) -> None:
    await world.put(*conversation(0, 24))
    await world.drain()
    await world.put(*conversation(24, COUNT))
    loaded = View.load(await world.store.skeleton(TREE))
    async with world.views.hold(TREE) as grown:
        assert grown.seq == loaded.seq
        assert set(grown.homes) == set(loaded.homes)
        assert (grown.attributes, grown.links) == (loaded.attributes, loaded.links)
        for name, branch in grown.branches.items():
            other = loaded.branches[name]
            assert (branch.version, branch.routing, branch.depth) == (other.version, other.routing, other.depth)
            assert sorted(branch.ids) == sorted(other.ids)
    item = turn("new", text="topic1 words about subject1")
    planner = await made(world)
    vector = (await world.embedder.embed([item.text]))[0]
    assert planner.route(loaded, vector) == planner.route(grown, vector)


async def test_a_copy_is_the_same_tree(world: World) -> None:
    await world.put(*conversation(0, 24))
    await world.drain()
    await world.put(*conversation(24, 30))
    lines = [line async for line in world.transfer.export(TREE)]
    copy = TreeId("copy")
    await world.transfer.import_(lines, tree=copy, model=world.embedder.model)
    await world.transfer.import_(lines, tree=copy, model=world.embedder.model)
    one, two = await nodes(world.store), await nodes(world.store, copy)
    assert {name: fields_of(node, text=False) for name, node in one.items()} == {
        name: fields_of(node, text=False) for name, node in two.items()
    }
    assert await world.store.links(TREE) == await world.store.links(copy)
    assert (await world.inspect.check(copy)).violations == ()


async def test_forgetting_names_what_goes_and_what_is_written_again(world: World) -> None:
    await world.put(*conversation(0, COUNT))
    structure, stored = await made(world), await nodes(world.store)
    by_event = {node.item.event_id: node.id for node in stored.values() if node.item is not None}
    for numbers in ([5], range(24), [47, 46, 45, 0], range(COUNT)):
        leaves = {by_event[EventId(f"e{number}")] for number in numbers}
        async with world.views.hold(TREE) as view:
            seq = view.seq
            removal = structure.removal(view, [*leaves, NodeId("unknown")])
            assert (view.seq, len(view)) == (seq, len(stored)), "nothing was changed"
        left = {name for name, node in stored.items() if node.kind is NodeKind.LEAF} - leaves
        above = {name for leaf in leaves for name in _above(stored, leaf)}
        full = {name for leaf in left for name in _above(stored, leaf)}
        assert set(removal.nodes) == leaves | (above - full)
        assert set(removal.rewritten) == above & full
        depths = [stored[name].depth for name in removal.nodes]
        assert depths == sorted(depths, reverse=True)


def _above(stored: Mapping[NodeId, Node], node: NodeId) -> list[NodeId]:
    found: list[NodeId] = []
    parent = stored[node].parent
    while parent is not None and parent != ROOT:
        found.append(parent)
        parent = stored[parent].parent
    return found


async def test_hybrid_finds_on_every_structure_and_others_say_where_they_work(world: World, structure: str) -> None:
    await world.put(*turns(range(20)))
    await world.drain()
    answer = await world.query.search(TREE, "number7", k=3, scope=Scope(kinds=frozenset({NodeKind.LEAF})))
    assert answer.hits[0].event_id == "e7"
    for name in STRATEGIES:
        if works_on(name, structure):
            assert (await world.query.search(TREE, "number7", k=3, strategy=name, scope=Scope())).hits
        else:
            with pytest.raises(QueryError, match=f"on a {structure} tree; there .*hybrid"):
                await world.query.search(TREE, "number7", k=3, strategy=name, scope=Scope())


async def test_hits_say_how_deep_they_lie_counted_from_the_top(world: World) -> None:
    await world.put(*turns(range(20)))
    answer = await world.query.search(TREE, "number7", k=3, scope=Scope())
    assert all(hit.depth == len(hit.path) + 1 for hit in answer.hits)
    stats = await world.inspect.stats(TREE)
    assert min(stats.depths) == 1
    assert stats.depth_max == max(stats.depths)
    drawn = await world.inspect.draw(TREE, depth=None, children=100)
    assert [child.depth for child in drawn.children] == [1] * len(drawn.children)
