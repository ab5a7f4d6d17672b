"""The descent through H-MEM's layers: what it finds, and how few nodes it compares with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise

import numpy as np
import pytest

from memory.changes import Create
from memory.errors import QueryError
from memory.model import ROOT, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Scope
from memory.retrieval.descent import Descent, descend
from memory.retrieval.strategy import Question, Ranking
from memory.tree.similarity import quantize
from memory.tree.view import Branch, Cosines, View

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
    return await Descent(One(view), width=width).rank(question)


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
        parents = {node for node, _ in upper.chosen}
        assert len(upper.chosen) == 2
        assert {node.rsplit("/", 1)[0] for node, _ in lower.chosen} <= parents
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
