"""The descent through H-MEM's layers: what it finds, and how few nodes it compares with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import numpy as np
import pytest

from memory.changes import Annotate, Create
from memory.errors import QueryError
from memory.model import ROOT, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Scope
from memory.retrieval.descent import WEIGHT_SHARE, Descent, descend
from memory.retrieval.strategy import Question, Ranking
from memory.structures.parameters import HMemParameters
from memory.structures.weights import APPROVALS, REBUTTALS, weight
from memory.tree.similarity import quantize
from memory.tree.view import AT, Branch, Cosines, View

TREE = TreeId("t")
DIMENSION = 16


def nested(fan: int) -> View:
    """A tree in which every node has so many children, near to it."""
    view = View(DIMENSION)
    random = np.random.default_rng(1)
    above: list[tuple[NodeId, Vector]] = [(ROOT, np.zeros(DIMENSION, np.float32))]
    for depth in range(1, 5):
        below: list[tuple[NodeId, Vector]] = []
        for parent, centre in above:
            for place in range(fan):
                node = NodeId(f"{'' if parent == ROOT else parent}/{place:02}")
                vector = quantize(centre + 2.0**-depth * random.standard_normal(DIMENSION).astype(np.float32))
                kind = NodeKind.LEAF if depth == 4 else NodeKind.SUMMARY
                view.apply(Create(id=node, parent=parent, kind=kind, depth=depth, vector=vector))
                below.append((node, vector))
        above = below
    view.seq = 7
    return view


class One:
    def __init__(self, view: View) -> None:
        self.view = view

    @asynccontextmanager
    async def hold(self, tree: TreeId) -> AsyncIterator[View]:
        assert tree == TREE
        yield self.view


async def ask(view: View, vector: Vector, *, k: int = 5, width: int = 10, explain: bool = False, **scope: object) -> Ranking:
    question = Question(tree=TREE, text="?", vector=vector, k=k, scope=Scope(**scope), explain=explain)  # type: ignore[arg-type]
    return await Descent(One(view), width=width, room=0).rank(question)


def of(view: View, node: NodeId) -> Vector:
    return view.homes[node].row(view.slot(node))


def flat(view: View, vector: Vector, k: int) -> list[NodeId]:
    cosines = {node: float(of(view, node) @ vector) for node in view.homes}
    return sorted(cosines, key=lambda node: (-cosines[node], node))[:k]


async def test_what_was_said_is_found_under_its_trace() -> None:
    view = nested(4)
    for node in list(view.homes)[::37]:
        ranking = await ask(view, of(view, node), k=3)
        assert ranking.ranked[0].node == node
        assert ranking.seq == 7


async def test_with_all_chosen_it_is_a_flat_search() -> None:
    view = nested(4)
    vector = quantize(np.random.default_rng(9).standard_normal(DIMENSION))
    ranking = await ask(view, vector, k=8, width=64)
    assert [ranked.node for ranked in ranking.ranked] == flat(view, vector, 8)


async def test_only_children_of_what_was_chosen_are_looked_at() -> None:
    view = nested(4)
    layers = descend(view, of(view, NodeId("/01/02/03/00")), width=2, episodes=3)
    for upper, lower in pairwise(layers):
        parents = {found.node for found in upper.chosen}
        assert len(upper.chosen) == 2
        assert {found.node.rsplit("/", 1)[0] for found in lower.chosen} <= parents
        assert lower.compared == 2 * 4


async def test_comparisons_grow_with_the_children_of_a_node_and_not_with_the_episodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """a + 3 · k · fan: sixteen times the episodes, twice the comparisons."""
    counted: list[int] = []

    def cosines(branch: Branch, vector: Vector) -> Cosines:
        counted.append(len(branch))
        return plain(branch, vector)

    plain = Branch.cosines
    monkeypatch.setattr(Branch, "cosines", cosines)
    for fan in (5, 10):
        view = nested(fan)
        counted.clear()
        ranking = await ask(view, quantize(np.ones(DIMENSION)), width=3, explain=True)
        assert sum(counted) == fan + 3 * 3 * fan
        assert ranking.trace[-1] == f"{sum(counted)} similarities computed; a flat search computes {fan**4}"
        assert ranking.trace[0].startswith(f"domain: compared with {fan}, chose 3, best /")


async def test_equals_are_taken_by_id() -> None:
    view = View(DIMENSION)
    same = quantize(np.ones(DIMENSION))
    for parent, node in ((ROOT, "d"), ("d", "c"), ("c", "t")):
        kind = NodeKind.SUMMARY
        view.apply(Create(id=NodeId(node), parent=NodeId(parent), kind=kind, depth=1, vector=same))
    for node in ("z", "b", "y", "a"):
        view.apply(Create(id=NodeId(node), parent=NodeId("t"), kind=NodeKind.LEAF, depth=4, vector=same))
    assert [ranked.node for ranked in (await ask(view, same, k=3)).ranked] == ["a", "b", "y"]


async def test_kinds_are_those_asked_for() -> None:
    view = nested(3)
    vector = of(view, NodeId("/01/01/01/01"))
    for kinds, leaves in ((None, {True}), ({NodeKind.SUMMARY}, {False}), (set(NodeKind), {True, False})):
        ranking = await ask(view, vector, k=12, kinds=None if kinds is None else frozenset(kinds))
        assert {ranked.node in view.homes for ranked in ranking.ranked} == leaves
        assert [ranked.score for ranked in ranking.ranked] == sorted((ranked.score for ranked in ranking.ranked), reverse=True)


async def test_an_empty_tree_has_no_answer_and_item_filters_are_refused() -> None:
    assert (await ask(View(DIMENSION), np.ones(DIMENSION, np.float32))).ranked == ()
    with pytest.raises(QueryError, match="use hybrid or collapsed"):
        await ask(View(DIMENSION), np.ones(DIMENSION, np.float32), speaker="Ana")


def weighed(view: View, seed: int) -> None:
    """Every third episode has a time, some were approved of, some rebutted."""
    random = np.random.default_rng(seed)
    for node in list(view.homes)[::3]:
        told = {AT: float(random.integers(0, 4) * 86_400 * 200)}
        said = {APPROVALS: float(random.integers(0, 6)), REBUTTALS: float(random.integers(0, 3))}
        view.apply(Annotate(node=node, attributes=told | said))
        view._latest = max(view.latest, told[AT])


@pytest.mark.parametrize("seed", range(8))
async def test_with_all_chosen_the_best_by_cosine_and_weight_are_found(seed: int) -> None:
    view = nested(4)
    weighed(view, seed)
    vector = quantize(np.random.default_rng(seed).standard_normal(DIMENSION))
    heavy = {node: weight(view.attributes.get(node, {}), view.latest, HMemParameters()) for node in view.homes}
    scores = {node: float(of(view, node) @ vector) + WEIGHT_SHARE * (w - 1) / (w + 1) for node, w in heavy.items()}
    ranking = await ask(view, vector, k=8, width=64, explain=True)
    assert [each.node for each in ranking.ranked] == sorted(scores, key=lambda node: (-scores[node], node))[:8]
    assert [each.node for each in ranking.ranked] != flat(view, vector, 8), "weights did nothing"
    for each in ranking.ranked:
        assert each.score == pytest.approx(scores[each.node])
        assert each.parts["cosine"] == pytest.approx(float(of(view, each.node) @ vector))
        assert each.parts["cosine"] + each.parts["weight"] == pytest.approx(each.score)


async def test_an_approval_lifts_and_a_rebuttal_lowers() -> None:
    view = nested(3)
    ranking = await ask(view, quantize(np.ones(DIMENSION)), k=3, explain=True)
    first, second, _ = (each.node for each in ranking.ranked)
    gap = ranking.ranked[0].score - ranking.ranked[1].score
    assert 0 < gap < 0.1
    wide = Descent(One(view), share=gap * 4)
    question = Question(tree=TREE, text="?", vector=quantize(np.ones(DIMENSION)), k=2, explain=True)
    view.apply(Annotate(node=second, attributes={APPROVALS: 3.0}))
    lifted = (await wide.rank(question)).ranked
    assert [each.node for each in lifted] == [second, first]
    assert lifted[0].parts["weight"] > 0 == lifted[1].parts["weight"]
    view.apply(Annotate(node=second, attributes={APPROVALS: 0.0, REBUTTALS: 1.0}))
    assert (await wide.rank(question)).ranked[0].node == first
    assert [each.node for each in (await Descent(One(view), share=0.0).rank(question)).ranked] == [first, second]


async def test_silence_is_counted_up_to_the_latest_event_with_the_tree_s_parameters() -> None:
    view = nested(3)
    node = next(iter(view.homes))
    view.apply(Annotate(node=node, attributes={AT: 0.0}))
    view._latest = 86_400.0 * 30
    for days in (10.0, 30.0):
        question = Question(tree=TREE, text="?", vector=of(view, node), k=1, parameters={"strength_days": days}, explain=True)
        ranking = await Descent(One(view)).rank(question)
        w = np.exp(-30 / days)
        assert ranking.ranked[0].parts["weight"] == pytest.approx(WEIGHT_SHARE * (w - 1) / (w + 1))
        assert "weights as of 1970-01-31 00:00" in ranking.trace[-2]


@pytest.mark.parametrize("room", [0, 5, 16, 17, 39, 40, 1_000])
def test_more_are_chosen_while_their_children_fit(room: int) -> None:
    view = nested(4)
    layers = descend(view, of(view, NodeId("/01/02/03/00")), width=2, episodes=3, room=room)
    for upper, lower in pairwise(layers):
        fits = min(room // 4, upper.compared)
        assert len(upper.chosen) == max(2, fits)
        assert lower.compared == 4 * len(upper.chosen)
        scores = [found.score for found in upper.chosen]
        assert scores == sorted(scores, reverse=True)


def test_one_node_with_many_children_is_chosen_though_they_do_not_fit() -> None:
    view = nested(5)
    layers = descend(view, of(view, NodeId("/01/02/03/00")), width=1, episodes=1, room=3)
    assert [len(layer.chosen) for layer in layers] == [1, 1, 1, 1]
