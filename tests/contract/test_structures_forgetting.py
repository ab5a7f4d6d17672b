"""What every structure must pass, over every store, when something is forgotten (P6)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import numpy as np
import pytest

from memory.model import ROOT, EventId, Node, NodeId, NodeKind, TreeId
from memory.ports.index import Scope
from memory.ports.store import TreeStore
from memory.ports.summarizer import Summary, SummaryRequest
from memory.results import EventStatus
from memory.settings import IngestSettings, MemorySettings
from memory.structures import registry
from memory.structures.memgas import GRANULARITY
from memory.tree.view import View
from tests.fakes.memory_index import MemoryIndex
from tests.fakes.plain_tree import fields_of
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.world import TREE, World, turn

SMALL = {"hat": {"memory_length": 2.0}}
"""Parameters under which few items make a tree of many levels."""
COUNT = 36


class Telltale(FakeSummarizer):
    """Says every word it was told, so that a summary shows what it was made of."""

    async def summarize(self, request: SummaryRequest) -> Summary:
        words = {word for text in (request.existing, *request.new) for word in text.split()}
        return Summary(text=" ".join(sorted(words)), calls=1)


@pytest.fixture(params=registry.NAMES)
def structure(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
async def world(store: TreeStore, structure: str, tmp_path: Path) -> AsyncIterator[World]:
    made = process(store, structure, tmp_path)
    yield made
    await made.pool.stop()


def process(store: TreeStore, structure: str, folder: Path) -> World:
    """Views, jobs and an index of its own over the shared store."""
    settings = MemorySettings(ingest=IngestSettings(batch_items=5, lease_after=1_000_000, attempts_max=1_000))
    return World(
        folder / "unused.db",
        store=store,
        structure=structure,
        parameters=SMALL.get(structure),
        settings=settings,
        summarizer=Telltale(),
    )


def said(numbers: Iterable[int]) -> list:  # type: ignore[type-arg]
    """Turns of three sessions, each with a word of its own."""
    return [
        turn(number, f"topic{number % 4} subject{number % 3} only{number}x", conversation=f"c{number % 3}", speaker="Ana")
        for number in numbers
    ]


async def nodes(store: TreeStore, tree: TreeId = TREE) -> dict[NodeId, Node]:
    return {node.id: node async for node in store.all_nodes(tree, vectors=True)}


async def nothing_is_left_of(world: World, numbers: Iterable[int]) -> None:
    """In texts, items, the index, and by the tree's own account."""
    found = await nodes(world.store)
    words = {f"only{number}x" for number in numbers}
    for node in found.values():
        assert not words & set(node.text.replace(",", " ").split()), node
    await world.indexing.catch_up(TREE)
    assert isinstance(world.index, MemoryIndex)
    entries = world.index.trees[TREE].entries if TREE in world.index.trees else {}
    assert entries.keys() == found.keys() - {ROOT}
    for name, entry in entries.items():
        assert not words & set(entry.text.replace(",", " ").split()), entry
        stored = found[name].vector
        assert stored is not None
        assert np.array_equal(entry.vector, stored)
    report = await world.inspect.check(TREE)
    assert report.violations == ()


async def all_is_said_above(world: World, left: Iterable[int]) -> None:
    """Every summary tells of each leaf below it, and lies where these lie."""
    found = await nodes(world.store)
    leaves = {node.item.event_id: node for node in found.values() if node.item is not None}
    assert set(leaves) == {f"e{number}" for number in left}
    below: dict[NodeId, list[Node]] = {}
    for leaf in leaves.values():
        at = leaf.parent
        while at is not None and at != ROOT:
            below.setdefault(at, []).append(leaf)
            at = found[at].parent
    for name, under in below.items():
        node = found[name]
        assert (node.provisional, node.pending, node.descendants) == (False, 0, len(under))
        if node.attributes.get(GRANULARITY) == "keyword":
            continue
        assert node.vector is not None
        mean = np.mean([leaf.vector for leaf in under if leaf.vector is not None], axis=0)
        assert float(node.vector @ mean) / float(np.linalg.norm(mean)) > 0.99
        for leaf in under:
            assert set(leaf.text.split()) <= set(node.text.split()), (node, leaf)


async def test_what_is_forgotten_is_gone_and_the_tree_grows_on(world: World) -> None:
    """Some, then those of whole summaries, then all; in between and afterwards others come."""
    drawn = random.Random(3)
    left = list(range(COUNT))
    await world.put(*said(left))
    await world.drain()
    gone: list[int] = []
    come = COUNT
    for share in (0.1, 0.5, 1.0):
        some = sorted(drawn.sample(left, round(len(left) * share)))
        report = await world.forget(*(f"e{number}" for number in some))
        assert (report.forgotten, report.leaves, report.unknown, report.already) == (len(some), len(some), 0, 0)
        gone += some
        left = [number for number in left if number not in some]
        await nothing_is_left_of(world, gone)
        for node in (await nodes(world.store)).values():
            assert node.kind is not NodeKind.SUMMARY or not node.provisional or node.pending, "made anew by nobody"
        assert {result.status for result in await world.put(*said(gone[-3:]))} == {EventStatus.FORGOTTEN}
        fresh = list(range(come, come + 6))
        come += 6
        await world.put(*said(fresh))
        left += fresh
        await world.drain()
        await nothing_is_left_of(world, gone)
        await all_is_said_above(world, left)
    report = await world.forget(*(f"e{number}" for number in gone))
    assert (report.forgotten, report.leaves, report.already) == (0, 0, len(gone))


async def test_an_empty_tree_is_left_when_all_is_forgotten(world: World) -> None:
    await world.put(*said(range(12)))
    report = await world.forget(*(f"e{number}" for number in range(12)), "never")
    assert (report.forgotten, report.unknown, report.summaries_remade) == (12, 1, 0)
    assert set(await nodes(world.store)) == {ROOT}
    assert (await world.store.stats(TREE)).events == 0
    assert {result.status for result in await world.put(turn(0, "x"))} == {EventStatus.FORGOTTEN}
    await world.put(*said(range(12, 20)))
    await world.drain()
    await all_is_said_above(world, range(12, 20))
    report_ = await world.inspect.check(TREE)
    assert (report_.violations, report_.replayed, report_.unverifiable) == ((), 8, 12)


async def test_writers_and_forgetters_at_once(world: World, structure: str, tmp_path: Path) -> None:
    other = process(world.store, structure, tmp_path)
    await world.put(*said(range(12)))
    await asyncio.gather(
        world.put(*said(range(12, 30)), batch=3),
        other.put(*said(range(24, COUNT)), batch=2),
        world.forget(*(f"e{number}" for number in range(0, 30, 3))),
        other.forget(*(f"e{number}" for number in range(0, COUNT, 2))),
        other.drain(),
    )
    gone = sorted({*range(0, 30, 3), *range(0, COUNT, 2)})
    await world.forgetting.finish(TREE)
    await nothing_is_left_of(world, gone)
    await other.drain()
    await all_is_said_above(world, sorted(set(range(COUNT)) - set(gone)))
    info = await world.store.tree(TREE)
    assert info.redacted >= info.floor > 0


async def test_what_was_forgotten_while_it_was_embedded_is_not_planned_over_what_outlived_it(
    world: World, structure: str, tmp_path: Path
) -> None:
    """A summary is named by the leaf that it was made for. Planning that leaf again took the living one out of the view."""
    late = said(range(12))
    other = process(world.store, structure, tmp_path)
    await world.put(*said([COUNT]))  # the tree is there
    prepared = await world.ingest.prepare(TREE, late)
    await other.put(*late, *said(range(12, 20)))
    await other.forget(*(f"e{number}" for number in range(0, 12, 2)))
    await world.put(*said(range(20, 24)))  # its view has all that
    statuses = [result.status for result in await world.ingest.commit(prepared, late)]
    assert statuses == [EventStatus.FORGOTTEN, EventStatus.DUPLICATE] * 6
    await world.put(*said(range(24, 28)))
    await world.drain()
    await nothing_is_left_of(world, range(0, 12, 2))
    await all_is_said_above(world, [*range(1, 12, 2), *range(12, 28), COUNT])


async def test_a_view_that_lived_through_it_is_the_view_that_is_loaded(world: World) -> None:
    await world.put(*said(range(24)))
    await world.forget(*(f"e{number}" for number in range(3, 20, 2)))
    await world.drain()
    loaded = View.load(await world.store.skeleton(TREE))
    async with world.views.hold(TREE) as grown:
        assert (grown.seq, grown.latest) == (loaded.seq, loaded.latest)
        assert set(grown.homes) == set(loaded.homes)
        assert (grown.attributes, grown.links) == (loaded.attributes, loaded.links)
        for name, branch in grown.branches.items():
            twin = loaded.branches[name]
            assert (branch.version, branch.routing, branch.depth) == (twin.version, twin.routing, twin.depth)
            assert sorted(branch.ids) == sorted(twin.ids)
            for child in branch.ids:
                assert np.array_equal(branch.row(grown.slot(child)), twin.row(loaded.slot(child)))


async def test_a_copy_has_forgotten_the_same(world: World) -> None:
    await world.put(*said(range(18)))
    await world.drain()
    await world.forget("e3", "e4", "e5", "e99")
    await world.put(*said(range(18, 22)))
    lines = [line async for line in world.transfer.export(TREE)]
    assert not any(f"only{number}x".encode() in line for line in lines for number in (3, 4, 5))
    copy = TreeId("copy")
    for _ in range(2):
        await world.transfer.import_(lines, tree=copy, model=world.embedder.model)
    one, two = await nodes(world.store), await nodes(world.store, copy)
    assert {name: fields_of(node) for name, node in one.items()} == {name: fields_of(node) for name, node in two.items()}
    ids = [EventId(f"e{number}") for number in (*range(22), 99)]
    assert await world.store.receipts(TREE, ids) == await world.store.receipts(copy, ids)
    assert (await world.store.tree(TREE)).floor == (await world.store.tree(copy)).floor
    assert (await world.inspect.check(copy)).violations == ()
    await world.forgetting.finish(copy)
    info = await world.store.tree(copy)
    assert info.redacted == info.floor


async def test_it_cannot_be_found(world: World) -> None:
    await world.put(*said(range(12)))
    await world.drain()
    await world.forget("e7")
    answer = await world.query.search(TREE, "only7x", k=12, scope=Scope())
    assert all(hit.event_id != "e7" and "e7" not in hit.sources and "only7x" not in hit.text for hit in answer.hits)
