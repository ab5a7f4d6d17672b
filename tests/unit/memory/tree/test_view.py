"""The view's order of children, attributes and edges: applied, undone, loaded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from memory.changes import Create, Remove, Skeleton, Step
from memory.model import ROOT, Attributes, NodeId
from memory.tree.view import WIDE, View
from tests.fakes.change_sets import DIMENSION, annotate, change_set, leaf, link, move, rewrite, summary, vector
from tests.fakes.plain_tree import PlainTree


def view_of(*steps: Step) -> View:
    view = View(DIMENSION)
    for step in steps:
        view.apply(step)
    return view


def skeleton_of(*steps: Step) -> Skeleton:
    """As a store gives it."""
    plain = PlainTree()
    plain.apply(change_set(*steps))
    nodes = plain.by_mark
    vectors = [np.zeros(DIMENSION) if node.vector is None else node.vector for node in nodes]
    return Skeleton(
        seq=plain.seq,
        ids=[node.id for node in nodes],
        parents=[node.parent for node in nodes],
        kinds=[node.kind for node in nodes],
        depths=np.array([node.depth for node in nodes], np.int32),
        versions=np.array([node.version for node in nodes]),
        routings=np.array([node.routing for node in nodes]),
        descendants=np.array([node.descendants for node in nodes]),
        vectors=np.stack(vectors).astype(np.float16),
        attributes={node.id: node.attributes for node in nodes if node.attributes},
        links=tuple(plain.links),
    )


@pytest.mark.parametrize(("count", "kept"), [(5, True), (WIDE, True), (WIDE + 1, False)])
def test_up_to_a_width_children_keep_their_order_when_one_goes(count: int, kept: bool) -> None:
    names = [f"n{number}" for number in range(count)]
    view = view_of(summary("s"), *(summary(name) for name in names), move("n1", ROOT, "s", 2))
    ids = view.root.ids
    assert set(ids) == {"s", *names} - {"n1"}
    assert (ids == ["s", "n0", *names[2:]]) is kept
    for slot, node in enumerate(ids):
        assert view.slot(node) == slot
        assert np.array_equal(view.root.row(slot), vector(node))


def test_attributes_and_edges_are_applied_and_loaded_alike() -> None:
    steps = (
        summary("s", label="work"),
        leaf("a", "s", 2, weight=1.0),
        leaf("b"),
        link("b", "a", weights=[0.5]),
        leaf("c"),
        link("c", "a", "b"),
        annotate("a", weight=0.25, label="x"),
        annotate("s", label="play"),
    )
    grown, loaded = view_of(*steps), View.load(skeleton_of(*steps))
    assert grown.attributes == loaded.attributes == {"s": {"label": "play"}, "a": {"weight": 0.25, "label": "x"}}
    assert grown.links == loaded.links == {"a": {"b": 0.5, "c": 1.0}, "b": {"a": 0.5, "c": 1.0}, "c": {"a": 1.0, "b": 1.0}}
    assert grown.branches[NodeId("s")].version == loaded.branches[NodeId("s")].version == 2
    assert grown.bytes > view_of(*(step for step in steps if isinstance(step, Create))).bytes


def test_a_plan_with_attributes_and_edges_is_undone_without_a_trace() -> None:
    before = (summary("s"), leaf("a", "s", 2), leaf("b"), link("b", "a"))
    view = view_of(*before)
    plan = (
        leaf("c", "s", 2, weight=1.0),
        link("c", "a", "b"),
        summary("top", label="all", above="s"),
        move("s", ROOT, "top", 1),
        leaf("d", "top", 2),
        link("d", "c"),
        link("d"),
    )
    for step in plan:
        view.apply(step)
    view.undo(plan)
    same = view_of(*before)
    assert (view.links, view.attributes) == (same.links, same.attributes)
    assert {name: (branch.depth, branch.routing, sorted(branch.ids)) for name, branch in view.branches.items()} == {
        name: (branch.depth, branch.routing, sorted(branch.ids)) for name, branch in same.branches.items()
    }


@pytest.mark.parametrize("step", [annotate("b", weight=1.0), rewrite("s")])
def test_what_no_plan_does_is_not_undone(step: Step) -> None:
    view = view_of(summary("s"), leaf("b"))
    with pytest.raises(ValueError, match="never part of a plan"):
        view.undo([step])


class Watched(dict[NodeId, Attributes]):
    """Attributes that count how often all are gone through."""

    passes = 0

    def values(self) -> Any:
        self.passes += 1
        return super().values()


@pytest.mark.parametrize("time", [{}, {"at": 5.0}])
def test_what_stays_is_gone_through_once_however_many_of_the_latest_time_go(time: dict[str, Any]) -> None:
    view = view_of(summary("s"), *(leaf(f"l{number}", "s", trace="x", **time) for number in range(30)))
    view.attributes = watched = Watched(view.attributes)
    for number in range(20):
        view.apply(Remove(node=NodeId(f"l{number}"), parent=NodeId("s")))
    assert view.latest == view.latest == time.get("at", -float("inf"))
    assert watched.passes <= 1


def test_the_latest_time_goes_with_its_leaf_and_comes_back_when_a_plan_is_undone() -> None:
    view = view_of(summary("s"), leaf("old", "s", at=3.0), leaf("new", "s", at=9.0))
    view.apply(Remove(node=NodeId("new"), parent=NodeId("s")))
    plan = [leaf("tried", "s", at=6.0)]
    for step in plan:
        view.apply(step)
    assert view.latest == 6.0
    view.undo(plan)
    assert view.latest == 3.0
    view.apply(Remove(node=NodeId("old"), parent=NodeId("s")))
    assert view.latest == -float("inf")
