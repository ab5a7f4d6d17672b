"""
HAT, the Hierarchical Aggregate Tree: a layered tree in time order.

Source: A. Aadhithya, "Enhancing Long-Term Memory using Hierarchical Aggregate Tree in Large Language Models" (2023), slides "HAT"
and "Insert(node, L)". The slides have the last node of the layer above collect up to `memory_length` further children and then
lose them to a new node. The outcome is what is built here at once: every node of a layer aggregates at most `memory_length` nodes
of the layer below, in the order in which they came; while the last parent has room it gets the next node, and when it is full the
next node begins a new parent, layer after layer. When the root would get a sibling, a new root is put above both.

Layers are counted from the leaves, which all have the same depth, so that a new root changes no other node's depth (decision 0010).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memory.changes import Create, Expectation, Grow, LogEntry, Move, Step
from memory.model import ROOT, EmbeddingModel, Mark, Node, NodeId, NodeKind, Vector
from memory.results import Violation
from memory.structures.base import Aggregation, Structure
from memory.structures.parameters import MEMORY_LENGTH_MAX, HatParameters
from memory.tree.check import Stored
from memory.tree.planning import Insertion, Placement, Plan, leaf_id, summary_id
from memory.tree.routing import Decision
from memory.tree.view import WIDE, Branch, View

LEAF_DEPTH = 64
"""Depth of every leaf: 63 layers above it hold more items than there are marks, whatever the length."""
assert MEMORY_LENGTH_MAX < WIDE, "a view keeps that many children in the order of their creation"


@dataclass(frozen=True, slots=True)
class _Growth:
    """What one leaf makes of the tree before it is attached."""

    steps: tuple[Create | Move, ...]
    parent: NodeId
    above: tuple[NodeId, ...]
    """Summaries above the leaf, from its parent up."""
    reads: tuple[Branch, ...]
    """Nodes whose children were counted: those that are full, and the first that has room."""


class Hat(Structure):
    """
    HAT's insertion.

    Args:
        model: of the tree's vectors; placement does not look at them.
        parameters: the memory length.
    """

    name = "hat"
    invariants: ClassVar[Mapping[str, str]] = {
        "one-top": "Below the structural root there is one summary, the root of the paper, unless the tree is empty.",
        "leaf-layer": f"All leaves are in one layer, at depth {LEAF_DEPTH}.",
        "memory-length": "A summary has at most `memory_length` children.",
        "time-order": "From left to right, leaves stand in the order in which they came.",
    }

    def __init__(self, model: EmbeddingModel, parameters: HatParameters | None = None) -> None:  # noqa: ARG002
        self._parameters = parameters or HatParameters()

    def parameters(self) -> Mapping[str, float]:
        """The memory length."""
        return self._parameters.as_mapping()

    def aggregation(self, node: Node) -> Aggregation:  # noqa: ARG002
        """A node's text is the aggregate of its children's (slide "Nodes in HAT", aggregator)."""
        return Aggregation.CHILDREN

    def plan(self, view: View, insertions: Sequence[Insertion]) -> Plan:
        """See `Structure.plan`."""
        steps: list[Step] = []
        reads: dict[NodeId, int] = {}
        made: set[NodeId] = set()
        placements: list[Placement] = []
        for insertion in insertions:
            item = insertion.item
            leaf = leaf_id(item.event_id, item.chunk)
            growth = self._growth(view, leaf, insertion.vector)
            for branch in growth.reads:
                if branch.id not in made:
                    reads.setdefault(branch.id, branch.routing)
            fresh: list[Step] = [
                *growth.steps,
                Create(
                    id=leaf,
                    parent=growth.parent,
                    kind=NodeKind.LEAF,
                    depth=LEAF_DEPTH,
                    vector=insertion.vector,
                    text=item.text,
                    item=item,
                ),
                Grow(leaf=leaf, nodes=growth.above),
            ]
            for step in fresh:
                view.apply(step)
            made.update(step.id for step in growth.steps if isinstance(step, Create))
            steps.extend(fresh)
            placements.append(Placement(leaf=leaf, parent=growth.parent, depth=LEAF_DEPTH, expands=None))
        expects = tuple(Expectation(node=node, routing=routing) for node, routing in reads.items())
        return Plan(steps=tuple(steps), expects=expects, placements=tuple(placements))

    def route(self, view: View, vector: Vector) -> tuple[Decision, ...]:
        """See `Structure.route`: the nodes that were asked for room, from the lowest layer up."""
        return tuple(map(self._decision, self._growth(view, NodeId("?"), vector).reads))

    def replay(self, view: View, entry: LogEntry) -> tuple[int, list[Violation]]:
        """See `Structure.replay`. What comes before a leaf, since the leaf before, is what that leaf made of the tree."""
        checked, found = 0, []
        held: list[Create | Move] = []
        for step in entry.steps:
            if isinstance(step, Create | Move) and not (isinstance(step, Create) and step.kind is NodeKind.LEAF):
                held.append(step)
                continue
            if isinstance(step, Create):
                growth = self._growth(view, step.id, step.vector)
                checked += 1
                if _outline([*held, step]) != [*_outline(growth.steps), ("leaf", step.id, growth.parent, LEAF_DEPTH)]:
                    detail = f"seq {entry.seq}: was put below {step.parent}; in turn it would have gone below {growth.parent}"
                    found.append(Violation(invariant="serial-replay", node=step.id, detail=detail))
            for before in (*held, step):
                view.apply(before)
            held = []
        for left in held:
            found.append(Violation(invariant="serial-replay", node=None, detail=f"seq {entry.seq}: a layer without a new leaf"))
            view.apply(left)
        view.seq = entry.seq
        return checked, found

    def check(self, stored: Stored) -> list[Violation]:
        """See `Structure.check`."""
        children: dict[NodeId, list[Node]] = {}
        for node in sorted(stored.nodes.values(), key=lambda node: node.mark):
            if node.parent is not None:
                children.setdefault(node.parent, []).append(node)
        found = (*self._shapes(children), *_disorder(children))
        return [Violation(invariant=name, node=node, detail=detail) for name, node, detail in found]

    def _shapes(self, children: Mapping[NodeId, Sequence[Node]]) -> Iterator[tuple[str, NodeId, str]]:
        length = self._parameters.memory_length
        for parent, below in children.items():
            if parent != ROOT and len(below) > length:
                yield "memory-length", parent, f"has {len(below)} children, at most {length} belong there"
            for node in below:
                if parent == ROOT and (len(below) > 1 or node.kind is NodeKind.LEAF):
                    yield "one-top", node.id, f"is one of {len(below)} nodes below the root, a {node.kind}"
                if node.kind is NodeKind.LEAF and node.depth != LEAF_DEPTH:
                    yield "leaf-layer", node.id, f"is a leaf at depth {node.depth}"

    def _growth(self, view: View, leaf: NodeId, vector: Vector) -> _Growth:
        chain = _last_of_each_layer(view)
        reads: list[Branch] = []
        host: Branch | None = None
        for branch in reversed(chain):
            reads.append(branch)
            if len(branch) < self._parameters.memory_length:
                host = branch
                break
        steps: list[Create | Move] = []
        above: list[NodeId]
        if host is not None:
            depth = host.depth
            above = [branch.id for branch in reversed(chain) if branch.depth <= depth]
        elif chain:
            reads.append(view.root)
            top = chain[0]
            depth = top.depth - 1
            new = summary_id(top.id, leaf)
            steps.append(_summary(new, ROOT, depth, view.root.row(top.slot), over=top.id))
            steps.append(Move(node=top.id, old_parent=ROOT, parent=new, depth=top.depth))
            above = [new]
        else:
            reads.append(view.root)
            depth = LEAF_DEPTH - 1
            above = [_first(leaf, depth)]
            steps.append(_summary(above[0], ROOT, depth, vector))
        while depth < LEAF_DEPTH - 1:
            depth += 1
            steps.append(_summary(_first(leaf, depth), above[0], depth, vector))
            above.insert(0, _first(leaf, depth))
        return _Growth(tuple(steps), above[0], tuple(above), tuple(reads))

    def _decision(self, branch: Branch) -> Decision:
        length = self._parameters.memory_length
        full = "is above all" if branch.id == ROOT else "is full" if len(branch) >= length else "has room"
        return Decision(branch.id, branch.depth, None, 0.0, 0.0, note=f"{len(branch)} of {length} children: {full}")


def _last_of_each_layer(view: View) -> list[Branch]:
    """The last summary of each layer, from the top down: the path to the last leaf."""
    chain: list[Branch] = []
    branch = view.root
    while branch.ids and (last := view.branches.get(branch.ids[-1])) is not None:
        chain.append(last)
        branch = last
    return chain


def _disorder(children: Mapping[NodeId, Sequence[Node]]) -> Iterator[tuple[str, NodeId, str]]:
    """Leaves that stand to the right of later ones."""
    last = Mark(0)
    pending = list(reversed(children.get(ROOT, ())))
    seen: set[NodeId] = set()
    while pending:
        node = pending.pop()
        if node.id in seen:
            continue  # a cycle, which another invariant names
        seen.add(node.id)
        if node.kind is NodeKind.LEAF:
            if node.mark < last:
                yield "time-order", node.id, "came before a leaf that stands to its left"
            last = node.mark
        pending.extend(reversed(children.get(node.id, ())))


def _first(leaf: NodeId, depth: int) -> NodeId:
    """Id of the summary that a leaf begins at a depth."""
    return summary_id(NodeId(f"layer {depth}"), leaf)


def _summary(node: NodeId, parent: NodeId, depth: int, vector: Vector, *, over: NodeId | None = None) -> Create:
    return Create(id=node, parent=parent, kind=NodeKind.SUMMARY, depth=depth, vector=vector, provisional=True, above=over)


def _outline(steps: Sequence[Create | Move]) -> list[tuple[object, ...]]:
    """What a replay compares: everything but vectors and texts."""
    return [
        ("move", step.node, step.old_parent, step.parent, step.depth)
        if isinstance(step, Move)
        else ("leaf", step.id, step.parent, step.depth)
        if step.kind is NodeKind.LEAF
        else ("summary", step.id, step.parent, step.depth, step.above)
        for step in steps
    ]
