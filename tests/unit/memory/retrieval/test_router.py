"""The router over a small MemGAS: walks lead to what is associated, weights to the sure granularity."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.errors import QueryError
from memory.model import EmbeddingModel, EventId, Item, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Scope
from memory.retrieval.router import GranularityRouter, RouterRecipe, foremost
from memory.retrieval.strategy import Question, Ranking
from memory.retrieval.units import LEVELS, Units
from memory.structures.memgas import MemGas, unit_ids
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.view import View

TREE = TreeId("t")
DIMENSION = 16
MODEL = EmbeddingModel(name="fake", dimension=DIMENSION, unrelated_cosine=0.0)


class Memory:
    """Sessions of turns about topics."""

    def __init__(self, topics: Sequence[Sequence[int]]) -> None:
        self.structure = MemGas(MODEL)
        self.view = View(DIMENSION)
        self.turns: dict[NodeId, int] = {}
        self.held = 0
        for session, talk in enumerate(topics):
            for place, topic in enumerate(talk):
                self.add(session, place, topic)

    def add(self, session: int, place: int, topic: int) -> None:
        item = Item(event_id=EventId(f"{session}.{place}"), text="x", conversation=f"c{session}")
        self.structure.plan(self.view, [Insertion(item=item, vector=about(topic, 100 * session + place))])
        self.view.seq += 1
        self.turns[leaf_id(item.event_id, 0)] = topic

    @asynccontextmanager
    async def hold(self, tree: TreeId) -> AsyncIterator[View]:
        assert tree == TREE
        self.held += 1
        yield self.view


def about(topic: int, seed: int = 0) -> Vector:
    noise = 0.12 * np.random.default_rng(seed).standard_normal(DIMENSION)
    return quantize((np.eye(DIMENSION)[topic] + noise).astype(np.float32))


async def ask(memory: Memory, topic: int, *, k: int = 5, router: GranularityRouter | None = None, **scope: object) -> Ranking:
    question = Question(tree=TREE, text="?", vector=about(topic), k=k, scope=Scope(**scope), explain=True)  # type: ignore[arg-type]
    return await (router or GranularityRouter(memory)).rank(question)


@given(st.lists(st.sampled_from([-1.0, 0.0, 0.25, 0.5]), min_size=1, max_size=40), st.integers(1, 45))
def test_the_foremost_are_those_of_a_stable_sort_of_all(ranks: list[float], k: int) -> None:
    values = np.array(ranks)
    assert foremost(values, k).tolist() == np.argsort(-values, kind="stable")[:k].tolist()


async def test_the_units_about_it_come_first() -> None:
    memory = Memory([[0, 0, 1], [2, 2, 3], [0, 4, 4]])
    ranking = await ask(memory, 0, k=3, kinds=frozenset({NodeKind.LEAF}))
    assert [memory.turns[ranked.node] for ranked in ranking.ranked] == [0, 0, 0]
    assert ranking.seq == memory.view.seq
    assert [ranked.score for ranked in ranking.ranked] == sorted((ranked.score for ranked in ranking.ranked), reverse=True)


async def test_a_walk_leads_to_what_is_associated() -> None:
    """Started at one turn alone, it comes sooner to the turns that it has an edge with than to those that it has none with."""
    memory = Memory([[0, 5], [7, 8], [0, 6], [9, 10]])
    router = GranularityRouter(memory, recipe=RouterRecipe(seeds=1, damping=0.5, session_power=0.0))
    ranking = await ask(memory, 0, k=100, router=router)
    start, *others = [ranked.node for ranked in ranking.ranked if ranked.node in memory.turns]
    assert memory.turns[start] == 0
    joined = [other in memory.view.links[start] for other in others]
    assert True in joined
    assert False in joined
    assert joined.index(False) >= joined.count(True)


async def test_a_turn_gains_where_its_session_fits() -> None:
    """Five turns fit alike, four of them in one session."""
    memory = Memory([[7, 8, 9, 6], [0, 5, 5, 5], [0, 0, 0, 0]])
    places = {}
    for power in (0.0, 0.5):
        router = GranularityRouter(memory, recipe=RouterRecipe(session_power=power, damping=0.1))
        ranking = await ask(memory, 0, k=100, router=router, kinds=frozenset({NodeKind.LEAF}))
        order = [ranked.node for ranked in ranking.ranked]
        places[power] = order.index(leaf_id(EventId("1.0"), 0))
    assert places[0.0] == 3
    assert places[0.5] == 4, "behind all of the other session, and before what does not fit"


async def test_summaries_alone_can_be_asked_for() -> None:
    memory = Memory([[0, 0], [1, 1]])
    ranking = await ask(memory, 1, kinds=frozenset({NodeKind.SUMMARY}))
    units = unit_ids(Item(event_id=EventId("1.0"), text="x", conversation="c1"))
    assert {ranked.node for ranked in ranking.ranked[:3]} == set(units)


async def test_an_explanation_gives_the_weights_of_the_granularities() -> None:
    ranking = await ask(Memory([[0, 1], [2, 3]]), 0)
    assert all(f"{level} 0." in ranking.trace[0] for level in LEVELS)
    assert {"cosine", "granularity", "seed", "session"} == set(ranking.ranked[0].parts)


async def test_an_empty_tree_has_no_answer() -> None:
    assert (await ask(Memory([]), 0)).ranked == ()


async def test_filters_that_only_items_meet_are_refused() -> None:
    with pytest.raises(QueryError, match="use hybrid"):
        await ask(Memory([[0]]), 0, speaker="Ana")


async def test_columns_follow_the_tree() -> None:
    memory = Memory([[0, 1]])
    router = GranularityRouter(memory)
    before = await ask(memory, 3, k=10, router=router)
    memory.add(1, 0, 3)
    after = await ask(memory, 3, k=10, router=router)
    assert (before.seq, after.seq) == (2, 3)
    assert len(after.ranked) == len(before.ranked) + 4


async def test_columns_that_followed_are_as_those_made_anew() -> None:
    memory = Memory([[0, 1, 2], [3, 4]])
    units = Units(memory.view)
    for number in range(40):
        memory.add(number % 5, 10 + number, number % 7)
        summary = memory.view.root.ids[0]
        memory.view.root.replace(memory.view.branches[summary].slot, about(number % 3, number))
        memory.view.root.routing += 1
        assert units.follow(memory.view)
    anew = Units(memory.view)
    order = [anew.ids.index(node) for node in units.ids]
    assert sorted(units.ids) == sorted(anew.ids)
    assert (units.vectors == anew.vectors[order]).all()
    assert (units.levels == anew.levels[order]).all()
    assert [units.ids[place] for place in units.sessions] == [anew.ids[place] for place in anew.sessions[order]]
    assert units.graph.edges == anew.graph.edges
    seeds = np.random.default_rng(1).random(len(order))
    turned = np.zeros(len(order))
    turned[order] = seeds
    assert units.graph.rank(seeds) == pytest.approx(anew.graph.rank(turned)[order], abs=1e-9)


async def test_columns_are_made_anew_where_nodes_have_gone() -> None:
    memory, other = Memory([[0, 1], [2]]), Memory([[0, 1]])
    router = GranularityRouter(memory)
    await ask(memory, 0, router=router)
    other.view.seq = 50
    memory.view = other.view
    assert not Units(Memory([[0, 1], [2]]).view).follow(other.view)
    ranking = await ask(memory, 0, k=100, router=router)
    assert {ranked.node for ranked in ranking.ranked} <= set(Units(other.view).ids)
