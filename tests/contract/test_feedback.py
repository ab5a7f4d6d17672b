"""Feedback over every store: an effect once, in any order, from several writers; and who takes none."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memory.changes import Annotate
from memory.errors import NoWeightsError, TreeNotFoundError
from memory.model import Attributes, EventId, NodeId, TreeId
from memory.ports.store import TreeStore
from memory.records import Document, Feedback, Verdict
from memory.results import EventStatus
from memory.settings import IngestSettings, MemorySettings
from memory.structures import registry
from memory.structures.weights import APPROVALS, APPROVED_AT, REBUTTALS
from memory.tree.view import AT, View
from tests.fakes.world import TREE, World, turn

START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def world(store: TreeStore, tmp_path: Path) -> AsyncIterator[World]:
    made = _world(store, tmp_path)
    yield made
    await made.pool.stop()


def _world(store: TreeStore, folder: Path, structure: str = "hmem") -> World:
    settings = MemorySettings(ingest=IngestSettings(lease_after=1_000_000))
    return World(folder / "unused.db", store=store, structure=structure, settings=settings)


def said(number: int, about: int | str, verdict: Verdict = "approval", *, days: float = 1.0, chunk: int | None = None) -> Feedback:
    event = f"e{about}" if isinstance(about, int) else about
    return Feedback(tree=TREE, id=f"f{number}", event=event, verdict=verdict, at=START + timedelta(days=days), chunk=chunk)


async def attributes(world: World, event: str) -> list[Attributes]:
    receipt = (await world.store.receipts(TREE, [EventId(event)]))[EventId(event)]
    nodes = await world.store.nodes(TREE, receipt.leaves)
    return [nodes[leaf].attributes for leaf in receipt.leaves]


async def test_it_has_its_effect_once(world: World) -> None:
    await world.put(*(turn(number, at=START) for number in range(6)))
    given = [said(1, 2), said(2, 2, days=3), said(3, 4, "rebuttal")]
    first = await world.weighing.take(TREE, given)
    assert [(each.id, each.status) for each in first] == [(f"f{number}", EventStatus.ACCEPTED) for number in (1, 2, 3)]
    again = await world.weighing.take(TREE, [*given, said(3, 4, "approval")])
    assert [each.status for each in again] == [*[EventStatus.DUPLICATE] * 3, EventStatus.CONFLICT]
    assert [each.seq for each in again[:3]] == [each.seq for each in first]
    assert await attributes(world, "e2") == [
        {AT: START.timestamp(), APPROVALS: 2.0, APPROVED_AT: (START + timedelta(days=3)).timestamp()}
    ]
    assert await attributes(world, "e4") == [{AT: START.timestamp(), REBUTTALS: 1.0}]
    assert await attributes(world, "e0") == [{AT: START.timestamp()}]
    assert (await world.inspect.check(TREE)).violations == ()


async def test_the_same_id_twice_in_one_call(world: World) -> None:
    await world.put(turn(0))
    results = await world.weighing.take(TREE, [said(1, 0), said(1, 0), said(1, 0, "rebuttal")])
    assert [each.status for each in results] == [EventStatus.ACCEPTED, EventStatus.DUPLICATE, EventStatus.CONFLICT]


async def test_an_id_that_a_turn_has_is_a_conflict(world: World) -> None:
    await world.put(turn(0), turn(1))
    taken = Feedback(tree=TREE, id="e1", event="e0", verdict="approval", at=START)
    assert [each.status for each in await world.weighing.take(TREE, [taken])] == [EventStatus.CONFLICT]


async def test_a_document_is_weighed_whole_or_by_chunk(world: World) -> None:
    text = " ".join(f"Sentence number {number} speaks of the harbour and its many ships." for number in range(60))
    await world.put(Document(tree=TREE, id="d", text=text, published_at=START))
    results = await world.weighing.take(TREE, [said(1, "d"), said(2, "d", chunk=1), said(3, "d", chunk=99)])
    assert [each.status for each in results] == [EventStatus.ACCEPTED, EventStatus.ACCEPTED, EventStatus.REJECTED]
    assert "the last is" in results[2].reason
    counts = [each[APPROVALS] for each in await attributes(world, "d")]
    assert len(counts) > 2
    assert counts == [1.0, 2.0, *[1.0] * (len(counts) - 2)]


async def test_a_commit_weighs_a_bounded_number_of_leaves(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.service.weighing.LEAVES_MAX", 3)
    await world.put(*(turn(number, at=START) for number in range(8)))
    seq = (await world.store.tree(TREE)).seq
    given = [said(number, number) for number in range(8)]
    results = await world.weighing.take(TREE, given)
    assert [(each.id, each.status) for each in results] == [(each.id, EventStatus.ACCEPTED) for each in given]
    weighed = [
        sum(isinstance(step, Annotate) for step in commit.steps) for commit in await world.store.changes(TREE, seq, limit=100)
    ]
    assert weighed == [2, 2, 2, 2]
    again = await world.weighing.take(TREE, given)
    assert [each.seq for each in again] == [each.seq for each in results]
    same = await world.weighing.take(TREE, [said(10 + number, 0) for number in range(8)])
    assert len({each.seq for each in same}) == 1, "of one leaf there is no more than one, however much is said of it"


async def test_what_is_not_there_can_be_weighed_once_it_is(world: World) -> None:
    await world.put(turn(0))
    given = [said(1, 0), said(2, 7), said(3, "f1")]
    results = await world.weighing.take(TREE, given)
    assert [each.status for each in results] == [EventStatus.ACCEPTED, EventStatus.REJECTED, EventStatus.REJECTED]
    assert "'e7' is not in the tree" in results[1].reason
    assert "of 'f1' there is no leaf" in (await world.weighing.take(TREE, [said(3, "f1")]))[0].reason
    await world.put(turn(7))
    assert [each.status for each in await world.weighing.take(TREE, given[:2])] == [EventStatus.DUPLICATE, EventStatus.ACCEPTED]


async def test_several_who_weigh_the_same_lose_nothing(world: World, tmp_path: Path) -> None:
    await world.put(turn(0), turn(1))
    others = [_world(world.store, tmp_path) for _ in range(3)]
    # Each piece is sent by two of them: redelivered.
    given = [said(number, number % 2, "approval" if number % 3 else "rebuttal", days=number) for number in range(18)]
    shares = [[each for place, each in enumerate(given) if who in (place % 3, (place + 1) % 3)] for who in range(3)]
    answered = await asyncio.gather(
        *(other.weighing.take(TREE, [each]) for other, share in zip(others, shares, strict=True) for each in share)
    )
    accepted = [result.id for results in answered for result in results if result.status is EventStatus.ACCEPTED]
    assert sorted(accepted) == sorted(each.id for each in given)
    for event in (0, 1):
        [found] = await attributes(world, f"e{event}")
        mine = [each for each in given if each.event == f"e{event}"]
        assert found[APPROVALS] == sum(each.verdict == "approval" for each in mine)
        assert found[REBUTTALS] == sum(each.verdict == "rebuttal" for each in mine)
        assert found[APPROVED_AT] == max(each.at for each in mine if each.verdict == "approval").timestamp()
    assert (await world.inspect.check(TREE)).violations == ()


async def test_another_order_and_the_log_give_the_same_weights(world: World) -> None:
    copy = TreeId("copy")
    given = [said(number, number % 5, "approval" if number % 4 else "rebuttal", days=number * 2.5) for number in range(20)]
    shuffled = random.Random(7).sample(given, len(given))
    for tree, order, batch in ((TREE, given, 1), (copy, shuffled, 6)):
        await world.put(*(turn(number, tree=tree, at=START + timedelta(days=number)) for number in range(5)))
        for start in range(0, len(order), batch):
            await world.weighing.take(tree, [_of(each, tree) for each in order[start : start + batch]])
    views = []
    for tree in (TREE, copy):
        view = View(world.embedder.model.dimension)
        view.catch_up(await world.store.changes(tree, 0))
        views.append(view)
    weights = [await _weights(world, tree) for tree in (TREE, copy)]
    assert weights[0] == weights[1]
    assert {node: view_attributes for node, view_attributes in views[0].attributes.items() if node in weights[0]} == weights[0]
    assert views[0].latest == views[1].latest == (START + timedelta(days=4)).timestamp()


def _of(feedback: Feedback, tree: TreeId) -> Feedback:
    return Feedback(tree=tree, id=feedback.id, event=feedback.event, verdict=feedback.verdict, at=feedback.at)


async def _weights(world: World, tree: TreeId) -> dict[NodeId, Attributes]:
    return {node.id: node.attributes async for node in world.store.all_nodes(tree) if node.item is not None}


async def test_a_copy_has_the_weights(world: World) -> None:
    await world.put(turn(0, at=START), turn(1, at=START))
    await world.weighing.take(TREE, [said(1, 0), said(2, 0, "rebuttal")])
    lines = [line async for line in world.transfer.export(TREE)]
    copy = TreeId("copy")
    await world.transfer.import_(lines, tree=copy, model=world.embedder.model)
    assert await _weights(world, copy) == await _weights(world, TREE)
    assert [each.status for each in await world.weighing.take(copy, [_of(said(1, 0), copy)])] == [EventStatus.DUPLICATE]


@pytest.mark.parametrize("structure", [name for name, kind in registry.KINDS.items() if not kind.structure.keeps_weights])
async def test_a_structure_without_weights_refuses_it(store: TreeStore, structure: str, tmp_path: Path) -> None:
    world = _world(store, tmp_path, structure)
    await world.put(turn(0))
    with pytest.raises(NoWeightsError, match=f"is a {structure} tree, which keeps no weights; feedback is taken by hmem"):
        await world.weighing.take(TREE, [said(1, 0)])
    assert (await store.tree(TREE)).seq == 1


async def test_feedback_makes_no_tree(world: World) -> None:
    with pytest.raises(TreeNotFoundError):
        await world.weighing.take(TREE, [said(1, 0)])
    assert await world.store.trees() == []
