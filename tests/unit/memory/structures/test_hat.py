"""HAT against layers written out as lists, and what its check and replay find."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.changes import Create, LogEntry, Move, Step
from memory.errors import SettingError
from memory.model import ROOT, EmbeddingModel, EventId, Item, Mark, Node, NodeId, NodeKind, mark
from memory.structures import registry
from memory.structures.hat import LEAF_DEPTH, Hat
from memory.structures.parameters import HatParameters
from memory.tree.check import Stored
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.view import View
from tests.fakes.change_sets import change_set
from tests.fakes.plain_tree import PlainTree

MODEL = EmbeddingModel(name="fake:model", dimension=4, unrelated_cosine=0.0)
AT = datetime(2026, 1, 1, tzinfo=UTC)


def hat(memory_length: int) -> Hat:
    return Hat(MODEL, HatParameters(memory_length=memory_length))


def insertion(number: int) -> Insertion:
    vector = np.random.default_rng(number).standard_normal(4).astype(np.float32)
    return Insertion(item=Item(event_id=EventId(f"e{number}"), text=f"text {number}"), vector=quantize(vector))


def leaf(number: int) -> NodeId:
    return leaf_id(EventId(f"e{number}"), 0)


def grown(structure: Hat, *batches: int) -> tuple[View, list[Step]]:
    """A view after so many items a batch, and all steps."""
    view, number = View(4), 0
    steps: list[Step] = []
    for size in batches:
        plan = structure.plan(view, [insertion(each) for each in range(number, number + size)])
        steps.extend(plan.steps)
        number += size
    return view, steps


def shape(view: View, node: NodeId = ROOT) -> object:
    """Nested tuples of leaves, in the view's order."""
    branch = view.branches.get(node)
    return node if branch is None else tuple(shape(view, child) for child in branch.ids)


def layers(count: int, length: int) -> object:
    """The paper's tree as plainly as it can be written: each layer is cut into runs, until one is left."""
    layer: list[object] = [leaf(number) for number in range(count)]
    while True:
        layer = [tuple(layer[start : start + length]) for start in range(0, len(layer), length)]
        if len(layer) <= 1:
            return tuple(layer)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(length=st.integers(2, 5), batches=st.lists(st.integers(1, 9), max_size=8))
def test_every_layer_is_cut_into_runs_of_the_memory_length(length: int, batches: list[int]) -> None:
    view, _ = grown(hat(length), *batches)
    assert shape(view) == (layers(sum(batches), length) if batches else ())


@settings(max_examples=40, deadline=None, derandomize=True)
@given(length=st.integers(2, 4), count=st.integers(1, 30))
def test_what_a_store_makes_of_the_steps_is_sound(length: int, count: int) -> None:
    structure = hat(length)
    _, steps = grown(structure, count)
    plain = PlainTree()
    plain.apply(change_set(*steps))
    nodes = plain.nodes
    assert structure.check(Stored(nodes, {}, {})) == []
    assert {node.depth for node in nodes.values() if node.kind is NodeKind.LEAF} == {LEAF_DEPTH}
    for node in nodes.values():
        if node.kind is NodeKind.SUMMARY:
            below = [each for each in nodes.values() if node.id in _above(nodes, each)]
            leaves = [each.id for each in below if each.kind is NodeKind.LEAF]
            assert node.descendants == len(leaves)
            assert sorted(name for _, name in plain.waiting[node.id]) == sorted(leaves)


def _above(nodes: dict[NodeId, Node], node: Node) -> list[NodeId]:
    found: list[NodeId] = []
    while node.parent is not None:
        found.append(node.parent)
        node = nodes[node.parent]
    return found


@pytest.mark.parametrize("batch", [1, 3, 20])
def test_a_refused_plan_is_undone(batch: int) -> None:
    structure = hat(2)
    for before in range(9):
        view, _ = grown(structure, before) if before else (View(4), [])
        was, routings = shape(view), {node: branch.routing for node, branch in view.branches.items()}
        plan = structure.plan(view, [insertion(100 + number) for number in range(batch)])
        view.undo(plan.steps)
        assert shape(view) == was
        assert {node: branch.routing for node, branch in view.branches.items()} == routings


def test_a_plan_expects_the_full_nodes_and_the_one_with_room() -> None:
    structure = hat(2)
    view, _ = grown(structure, 3)
    low = view.homes[leaf(2)]
    plan = structure.plan(view, [insertion(3)])
    assert [(one.node, one.routing) for one in plan.expects] == [(low.id, 1)], "it has room: nothing above was looked at"
    top = view.root.ids[0]
    plan = structure.plan(view, [insertion(4)])
    assert [one.node for one in plan.expects] == [low.id, top, ROOT], "all are full: a new root comes"
    assert [type(step) for step in plan.steps[:2]] == [Create, Move]
    assert isinstance(plan.steps[0], Create)
    assert plan.steps[0].above == top


def test_a_route_says_who_was_asked_for_room_and_changes_nothing() -> None:
    structure = hat(2)
    view, _ = grown(structure, 4)
    notes = [decision.note for decision in structure.route(view, insertion(9).vector)]
    assert notes == ["2 of 2 children: is full", "2 of 2 children: is full", "1 of 2 children: is above all"]
    assert shape(view) == layers(4, 2)


def entries(steps: list[Step]) -> list[LogEntry]:
    """One leaf a commit, as the log gives it."""
    found: list[LogEntry] = []
    held: list[Step] = []
    for step in steps:
        held.append(step)
        if isinstance(step, Create) and step.kind is NodeKind.LEAF:
            found.append(LogEntry(seq=len(found) + 1, at=AT, steps=tuple(held), events=()))
            held = []
    return found


def test_a_replay_finds_every_leaf_in_its_turn() -> None:
    structure = hat(2)
    _, steps = grown(structure, 11)
    view = View(4)
    for entry in entries([step for step in steps if isinstance(step, Create | Move)]):
        assert structure.replay(view, entry) == (1, [])
    assert shape(view) == layers(11, 2)


def test_a_replay_finds_a_leaf_that_went_elsewhere() -> None:
    structure = hat(2)
    _, steps = grown(structure, 4)
    log = entries([step for step in steps if isinstance(step, Create | Move)])
    view = View(4)
    for entry in log[:3]:
        structure.replay(view, entry)
    first = view.homes[leaf(0)].id
    [last] = log[3].steps
    assert isinstance(last, Create)
    _, found = structure.replay(view, replace(log[3], steps=(replace(last, parent=first),)))
    assert [violation.invariant for violation in found] == ["serial-replay"]
    _, found = structure.replay(view, replace(log[3], seq=5, steps=(replace(last, id=NodeId("s"), kind=NodeKind.SUMMARY),)))
    assert [violation.invariant for violation in found] == ["serial-replay"], "a layer that no leaf asked for"


def stored(count: int = 5) -> dict[NodeId, Node]:
    _, steps = grown(hat(2), count)
    plain = PlainTree()
    plain.apply(change_set(*steps))
    return plain.nodes


@pytest.mark.parametrize(
    ("name", "node", "changes"),
    [
        ("one-top", leaf(4), {"parent": ROOT}),
        ("leaf-layer", leaf(4), {"depth": 3}),
        ("memory-length", leaf(4), {"parent": "the first's"}),
        ("time-order", leaf(0), {"mark": mark(9, 9)}),
    ],
)
def test_what_is_broken_is_found_by_name(name: str, node: NodeId, changes: dict[str, object]) -> None:
    nodes = stored()
    if changes.get("parent") == "the first's":
        changes = {"parent": nodes[leaf(0)].parent}
    nodes[node] = replace(nodes[node], **changes)  # type: ignore[arg-type]
    assert name in Hat.invariants
    assert name in {violation.invariant for violation in hat(2).check(Stored(nodes, {}, {}))}


def test_a_cycle_does_not_keep_the_check_busy() -> None:
    nodes = stored()
    low = nodes[leaf(0)].parent
    assert low is not None
    nodes[low] = replace(nodes[low], parent=low, mark=Mark(1))
    assert {violation.invariant for violation in hat(2).check(Stored(nodes, {}, {}))} == {"memory-length"}


def test_leaves_that_go_take_emptied_layers_with_them() -> None:
    structure = hat(2)
    view, _ = grown(structure, 5)
    removal = structure.removal(view, [leaf(4), leaf(0), NodeId("unknown")])
    gone = view.homes[leaf(4)]
    assert removal.nodes[:2] == tuple(sorted([leaf(4), leaf(0)]))
    assert set(removal.nodes[2:]) == {gone.id, gone.parent.id if gone.parent else None}
    assert [view.branches[node].depth for node in removal.rewritten] == [LEAF_DEPTH - 1, LEAF_DEPTH - 2, LEAF_DEPTH - 3]


def test_parameters_out_of_bounds_are_refused() -> None:
    assert registry.make("hat", MODEL).parameters() == {"memory_length": 4.0}
    assert registry.make("hat", MODEL, {"memory_length": 2.0}).parameters() == {"memory_length": 2.0}
    for wrong in ({"memory_length": 1.0}, {"memory_length": 33.0}, {"memory_length": 2.5}, {"length": 2.0}):
        with pytest.raises(SettingError, match="hat"):
            registry.make("hat", MODEL, wrong)
