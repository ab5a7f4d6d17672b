"""Each invariant is found broken, by its name, and no other with it where one change breaks one thing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest

from memory.changes import Link, LogEntry
from memory.model import ROOT, EmbeddingModel, EventId, Item, Mark, Node, NodeId, NodeKind
from memory.structures.memtree import MemTree
from memory.tree.check import INVARIANTS, Stored, check
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.thresholds import MemTreeParameters
from memory.tree.view import View

A, B, C = (leaf_id(EventId(name), 0) for name in "abc")
SUMMARY = NodeId("s1")
UNIT = quantize(np.ones(4))
EPOCH = datetime(2026, 1, 1, tzinfo=UTC)


def sound() -> Stored:
    """A summary with two leaves, of which one is pending, and a leaf below the root."""

    def leaf(name: str, parent: NodeId, depth: int) -> Node:
        item = Item(event_id=EventId(name), text=name)
        return Node(
            id=leaf_id(EventId(name), 0), parent=parent, kind=NodeKind.LEAF, depth=depth, mark=Mark(1), vector=UNIT, item=item
        )

    nodes = [
        Node(id=ROOT, parent=None, kind=NodeKind.ROOT, depth=0, mark=Mark(0), descendants=3),
        Node(
            id=SUMMARY, parent=ROOT, kind=NodeKind.SUMMARY, depth=1, mark=Mark(1), vector=UNIT, text="x", descendants=2, pending=1
        ),
        leaf("a", SUMMARY, 2),
        leaf("b", SUMMARY, 2),
        leaf("c", ROOT, 1),
    ]
    events = {EventId(name): (leaf_id(EventId(name), 0),) for name in "abc"}
    return Stored({node.id: node for node in nodes}, events, {SUMMARY: [(Mark(2), B)]})


def broken(node: NodeId, **changes: Any) -> Stored:
    stored = sound()
    return stored._replace(nodes={**stored.nodes, node: replace(stored.nodes[node], **changes)})


def without(node: NodeId) -> Stored:
    stored = sound()
    return stored._replace(nodes={id_: each for id_, each in stored.nodes.items() if id_ != node})


def events(**changes: tuple[NodeId, ...]) -> Stored:
    stored = sound()
    return stored._replace(events={**stored.events, **{EventId(name): leaves for name, leaves in changes.items()}})


def pending(*leaves: NodeId) -> Stored:
    return sound()._replace(contributions={SUMMARY: [(Mark(2 + place), leaf) for place, leaf in enumerate(leaves)]})


def empty_summary() -> Stored:
    stored = sound()
    lonely = Node(id=NodeId("s2"), parent=ROOT, kind=NodeKind.SUMMARY, depth=1, mark=Mark(3), vector=UNIT, text="x")
    return stored._replace(nodes={**stored.nodes, lonely.id: lonely})


def cycle() -> Stored:
    stored = sound()
    ring = {
        NodeId(name): Node(
            id=NodeId(name), parent=NodeId(other), kind=NodeKind.SUMMARY, depth=depth, mark=Mark(3), vector=UNIT, text="x"
        )
        for name, other, depth in (("s2", "s3", 2), ("s3", "s2", 1))
    }
    return stored._replace(nodes={**stored.nodes, **ring})


def test_a_sound_tree_has_no_violation() -> None:
    assert check(sound()) == []


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("root", lambda: broken(ROOT, text="x")),
        ("root", lambda: broken(ROOT, depth=1)),
        ("single-parent", lambda: broken(C, parent=NodeId("nowhere"))),
        ("single-parent", lambda: broken(B, parent=A)),
        ("no-cycle", cycle),
        ("depth", lambda: broken(A, depth=3)),
        ("depth", lambda: broken(C, depth=0)),
        ("descendants", lambda: broken(SUMMARY, descendants=3)),
        ("descendants", lambda: broken(C, descendants=1)),
        ("not-empty", empty_summary),
        ("leaf-is-item", lambda: broken(C, item=None)),
        ("leaf-is-item", lambda: broken(SUMMARY, item=Item(event_id=EventId("z"), text="z"))),
        ("leaf-is-item", lambda: broken(C, item=Item(event_id=EventId("z"), text="z"))),
        ("event-once", lambda: without(C)),
        ("event-once", lambda: events(c=())),
        ("event-once", lambda: events(d=(C,))),
        ("event-once", lambda: sound()._replace(events={})),
        ("event-once", lambda: broken(C, item=Item(event_id=EventId("c"), text="c", chunks=2))),
        ("coverage", lambda: broken(SUMMARY, pending=2)),
        ("coverage", pending),
        ("coverage", lambda: pending(B, B)),
        ("coverage", lambda: pending(C)),
        ("attributes", lambda: broken(C, attributes={"x" * 33: 1.0})),
        ("attributes", lambda: broken(C, attributes={"weight": float("nan")})),
        ("links", lambda: sound()._replace(links=(Link(node=A, others=(NodeId("gone"),)),))),
        ("links", lambda: sound()._replace(links=(Link(node=A, others=(A,)),))),
        ("links", lambda: sound()._replace(links=(Link(node=A, others=(B,), weights=(0.0,)),))),
        ("vector", lambda: broken(C, vector=UNIT * 2)),
        ("vector", lambda: broken(C, vector=UNIT * np.float32("nan"))),
    ],
)
def test_what_is_broken_is_found_by_name(name: str, make: Callable[[], Stored]) -> None:
    assert name in INVARIANTS
    assert name in {violation.invariant for violation in check(make())}


def test_an_event_that_only_set_attributes_has_no_leaf() -> None:
    stored = events(liked=())
    assert [violation.invariant for violation in check(stored)] == ["event-once"]
    assert check(stored._replace(leafless={EventId("liked")})) == []


def test_memtree_begins_at_depth_one() -> None:
    tree = MemTree(EmbeddingModel(name="x", dimension=4, unrelated_cosine=0.0))
    assert tree.check(sound()) == []
    assert [violation.invariant for violation in tree.check(broken(C, depth=2))] == ["depth-from-root"]


def test_an_expansion_below_the_greatest_depth_is_found_in_the_replay() -> None:
    model = EmbeddingModel(name="x", dimension=4, unrelated_cosine=0.0)
    shallow, deeper = (MemTree(model, MemTreeParameters(depth_max=depth)) for depth in (2, 3))
    view, replayed = View(4), View(4)
    for seq, (structure, found) in enumerate([(shallow, 0), (shallow, 0), (deeper, 1)], 1):
        item = Item(event_id=EventId(str(seq)), text="x")
        steps = structure.plan(view, [Insertion(item=item, vector=UNIT)]).steps
        _, violations = shallow.replay(replayed, LogEntry(seq=seq, at=EPOCH, steps=steps, events=()))
        assert [violation.invariant for violation in violations] == ["serial-replay"] * found
