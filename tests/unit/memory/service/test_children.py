"""Summaries that are made of their children's: in which order, how often, and what need not be asked again (HAT)."""

from __future__ import annotations

import asyncio

import pytest

from memory.changes import ChangeSet, Grow, Move
from memory.model import Node, NodeKind
from memory.ports.store import Applied
from memory.ports.summarizer import Summary, SummaryRequest
from memory.results import EventStatus
from memory.service.children import ANSWER_CHARACTERS_MAX, Answers, NotReady
from memory.settings import MemorySettings, SummarySettings
from memory.structures.hat import LEAF_DEPTH
from tests.fakes.summarizer import FakeSummarizer, SummarizerFault
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld

TWO = {"structure": "hat", "parameters": {"memory_length": 2.0}}


@pytest.fixture
def hat(make_world: MakeWorld) -> World:
    return make_world(**TWO)


def asked(world: World) -> list[SummaryRequest]:
    """Calls so far."""
    assert isinstance(world.summarizer, FakeSummarizer)
    return world.summarizer.requests


async def layers(world: World) -> dict[int, list[Node]]:
    """Summaries by layer, the root's first, each from left to right."""
    found: dict[int, list[Node]] = {}
    nodes = [node async for node in world.store.all_nodes(TREE)]
    for node in sorted(nodes, key=lambda node: node.mark):
        if node.kind is NodeKind.SUMMARY:
            found.setdefault(node.depth, []).append(node)
    return dict(sorted(found.items()))


async def test_every_summary_is_made_once_of_its_childrens_texts(hat: World) -> None:
    await hat.put(*turns(range(8)))
    assert await hat.drain() == 7
    assert len(asked(hat)) == 7
    assert {len(request.new) for request in asked(hat)} == {2}
    assert {(request.existing, request.covered) for request in asked(hat)} == {("", 0)}
    found = await layers(hat)
    assert [len(nodes) for nodes in found.values()] == [1, 2, 4]
    texts = {node.text for node in found[LEAF_DEPTH - 1]}
    assert {text for request in asked(hat) for text in request.new} >= texts
    assert all(node.pending == 0 and not node.provisional for nodes in found.values() for node in nodes)
    assert (await hat.inspect.check(TREE)).clean


async def test_a_new_root_says_what_the_old_one_said_until_it_is_made(hat: World) -> None:
    await hat.put(*turns(range(4)))
    await hat.drain()
    [old] = (await layers(hat))[LEAF_DEPTH - 2]
    await hat.put(turn(4))
    found = await layers(hat)
    [top] = found[LEAF_DEPTH - 3]
    assert (top.text, top.covered, top.pending, top.descendants) == (old.text, 4, 1, 5)
    assert found[LEAF_DEPTH - 2][0].id == old.id
    assert (await hat.inspect.check(TREE)).clean
    await hat.drain()
    assert (await hat.inspect.check(TREE)).clean


async def test_an_only_child_is_repeated_without_a_call(hat: World) -> None:
    await hat.put(turn(0, text="Ana moved to Porto.", speaker="Ana"))
    await hat.drain()
    [top] = (await layers(hat))[LEAF_DEPTH - 1]
    assert top.text == "Ana: Ana moved to Porto."
    await hat.put(turn(1), turn(2))
    await hat.drain()
    calls = len(asked(hat))
    assert calls == 2, "the pair, and the root over the pair and the new one: the new one's parent has one child"


async def moved(world: World, leaf: str, old: Node, new: Node) -> None:
    """Take a leaf from one parent to another, which then have something to be brought up to date."""
    steps = (
        Move(node=leaf, old_parent=old.id, parent=new.id, depth=LEAF_DEPTH),  # type: ignore[arg-type]
        Grow(leaf=leaf, nodes=(old.id, new.id)),  # type: ignore[arg-type]
    )
    assert isinstance(await world.store.apply(ChangeSet(tree=TREE, steps=steps, at=world.clock.now())), Applied)


async def test_taking_a_child_away_and_putting_it_back_costs_no_call(hat: World) -> None:
    await hat.put(*turns(range(4)))
    await hat.drain()
    left, right = (await layers(hat))[LEAF_DEPTH - 1]
    before = await hat.texts()
    [leaf] = [child.id for child in await hat.store.children(TREE, right.id)][1:]
    await moved(hat, leaf, right, left)
    await hat.drain()
    changed = len(asked(hat))
    assert await hat.texts() != before
    await moved(hat, leaf, left, right)
    await hat.drain()
    assert len(asked(hat)) == changed, "these children were summarized before"
    assert await hat.texts() == before


async def test_a_parent_waits_for_its_children(hat: World) -> None:
    await hat.put(*turns(range(4)))
    [top] = (await layers(hat))[LEAF_DEPTH - 2]
    with pytest.raises(NotReady):
        await hat.summarize.refresh(TREE, top.id)
    assert asked(hat) == []


async def test_the_pool_makes_layer_after_layer(make_world: MakeWorld) -> None:
    clock = LoopClock()
    world = make_world(clock=clock, summarizer=FakeSummarizer(clock, delay=1.0), **TWO)
    await world.put(*turns(range(16)))
    await world.start()
    assert await world.idle()
    assert len(asked(world)) == 15
    assert world.pool.counts.failed == 0
    assert await world.store.dirty(TREE) == []


async def test_a_model_that_is_away_is_waited_for_by_all_layers(make_world: MakeWorld) -> None:
    faults = [SummarizerFault.AWAY] * 20
    world = make_world(summarizer=FakeSummarizer(faults=faults), **TWO)
    await world.put(*turns(range(8)))
    await world.start()
    assert await world.idle()
    assert await world.store.dirty(TREE) == []
    assert world.pool.counts.given_up == 0


async def test_above_a_node_that_is_given_up_all_is_given_up_and_stays_pending(make_world: MakeWorld) -> None:
    poisoned = FakeSummarizer(poison=lambda request: any("number3" in text for text in request.new))
    settings = MemorySettings(summaries=SummarySettings(attempts_max=2))
    world = make_world(summarizer=poisoned, settings=settings, **TWO)
    await world.put(*turns(range(8)))
    await world.start()
    assert await world.idle()
    left = await world.store.dirty(TREE)
    assert [dirty.depth for dirty in left] == [LEAF_DEPTH - 1, LEAF_DEPTH - 2, LEAF_DEPTH - 3]
    assert world.pool.counts.given_up == 3
    assert "given up" in world.pool.counts.last_error or "never likes" in world.pool.counts.last_error


async def test_children_beyond_the_budget_are_folded_one_after_the_other(make_world: MakeWorld) -> None:
    world = make_world(summarizer=FakeSummarizer(tokens_max=10), structure="hat", parameters={"memory_length": 4.0})
    await world.put(*turns(range(4)))
    await world.drain()
    requests = asked(world)
    assert [len(request.new) for request in requests] == [1, 1, 1, 1]
    assert [request.covered for request in requests] == [0, 1, 2, 3]
    assert [bool(request.existing) for request in requests] == [False, True, True, True]


async def test_writers_in_two_processes_make_the_tree_that_one_would_have_made(make_world: MakeWorld) -> None:
    one, two = make_world(**TWO), make_world(**TWO)
    results = await asyncio.gather(
        one.put(*turns(range(40)), batch=3), two.put(*turns(range(20, 60)), batch=2), one.put(*turns(range(60, 70)), batch=1)
    )
    accepted = [result for some in results for result in some if result.status is EventStatus.ACCEPTED]
    assert len(accepted) == len({result.id for result in accepted}) == 70
    report = await one.inspect.check(TREE)
    assert report.violations == ()
    assert report.replayed == 70
    assert [len(nodes) for nodes in (await layers(one)).values()] == [1, 2, 3, 5, 9, 18, 35]


async def test_an_answer_that_comes_after_something_was_forgotten_is_not_remembered(
    hat: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(hat.summarizer, FakeSummarizer)
    ask = hat.summarizer.summarize

    async def late(request: SummaryRequest) -> Summary:
        made = await ask(request)
        if len(asked(hat)) == 2:  # of the lower two, the later one
            hat.summarize.forget()
        return made

    await hat.put(*turns(range(4)))
    with monkeypatch.context() as patch:
        patch.setattr(hat.summarizer, "summarize", late)
        await hat.drain()
    left, right = (await layers(hat))[LEAF_DEPTH - 1]
    [leaf] = [child.id for child in await hat.store.children(TREE, right.id)][1:]
    await moved(hat, leaf, right, left)
    await hat.drain()
    changed = len(asked(hat))
    await moved(hat, leaf, left, right)
    await hat.drain()
    assert len(asked(hat)) == changed + 2, "what they said before the forgetting, or during it, is not known"


def test_answers_are_bounded() -> None:
    answers = Answers()
    keys = [Answers.key("s", [str(number), "x"]) for number in range(5)]
    assert len({*keys, Answers.key("other", ["0", "x"]), Answers.key("s", ["0x"]), Answers.key("s", ["x", "0"])}) == 8
    for key in keys:
        answers.add(key, "y" * (ANSWER_CHARACTERS_MAX // 3))
    assert [answers.get(key) is not None for key in keys] == [False, False, True, True, True]
    assert answers.hits == 3
