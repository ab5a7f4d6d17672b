"""
The plan of a micro-batch: pure decisions, ready to be compared and applied (design section 3, steps 1 and 4).

Items are planned one after the other on the same view, each seeing the ones before. The plan says which nodes it relied on, by
the routing number they had before the batch: it can be applied if and only if those still hold, because then every child set and
every vector on every path is what the planner saw.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from memory.changes import Create, Expectation, Grow, Move, Step
from memory.model import EventId, Item, NodeId, NodeKind, Vector
from memory.tree.routing import Route, Router
from memory.tree.similarity import merge_means
from memory.tree.view import Cosines, View

WIDE_ROOT = 256
"""Children of the root from which one matrix product for the batch beats a vector product an item (measured: 2.5 times at 1,000
children and batches of 64, break-even near 200)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Insertion:
    """One item to plan."""

    item: Item
    vector: Vector
    """(d,) float32, quantized."""
    labels: tuple[str, ...] = ()
    """What a model said the item belongs to, from the general to the particular, for structures that place by it (H-MEM: domain,
    category, trace); empty where none was asked, and the vector decides alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one item is put."""

    leaf: NodeId
    parent: NodeId
    depth: int
    expands: NodeId | None
    """The leaf whose place the new summary `parent` takes; None when the item is attached below an existing node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A batch of insertions as steps of a commit."""

    steps: tuple[Step, ...]
    expects: tuple[Expectation, ...]
    placements: tuple[Placement, ...]

    @property
    def summaries(self) -> tuple[NodeId, ...]:
        """The summary nodes that get contributions, each once, in order of first appearance: those to be brought up to date."""
        return tuple(dict.fromkeys(node for step in self.steps if isinstance(step, Grow) for node in step.nodes))


def leaf_id(event: EventId, chunk: int) -> NodeId:
    """Id of the leaf that a chunk of an event becomes: 72 bits of its hash, so that any worker and any replay makes the same."""
    return NodeId("l" + hashlib.blake2b(f"{event}\x00{chunk}".encode(), digest_size=9).hexdigest())


def summary_id(expanded: NodeId, leaf: NodeId) -> NodeId:
    """Id of the summary that takes the place of a leaf when another one joins it."""
    return NodeId("s" + hashlib.blake2b(f"{expanded}\x00{leaf}".encode(), digest_size=9).hexdigest())


class _RootCosines:
    """Cosines of a whole batch with the root's children: one matrix product, then only the rows that the batch itself changes."""

    def __init__(self, view: View, vectors: Sequence[Vector]) -> None:
        self._root = view.root
        self._vectors = np.stack(vectors) if len(view.root) >= WIDE_ROOT and len(vectors) > 1 else None
        self._rows: Cosines | None = None
        self._used = 0

    def of(self, index: int) -> Cosines | None:
        """Cosines of the batch's index-th item, or None when a plain product is as good."""
        if self._vectors is None:
            return None
        if self._rows is None:
            self._used = len(self._root)
            self._rows = np.empty((len(self._vectors), self._used + len(self._vectors)), dtype=np.float32)
            self._rows[:, : self._used] = self._root.cosines_of_all(self._vectors)
        while self._used < len(self._root):
            self._rows[:, self._used] = self._vectors @ self._root.row(self._used)
            self._used += 1
        return self._rows[index, : self._used]

    def changed(self, slot: int) -> None:
        """A row of the root's block has another vector now."""
        if self._vectors is not None and self._rows is not None and slot < self._used:
            self._rows[:, slot] = self._vectors @ self._root.row(slot)


def plan(view: View, router: Router, insertions: Sequence[Insertion]) -> Plan:
    """
    Plan a batch in turn.

    The view is left with the plan applied to it, but with its old `seq`: when the commit succeeds the caller sets it, when it is
    refused the caller calls `view.undo(plan.steps)`.

    Args:
        view: the tree as it stands.
        router: the descent.
        insertions: the batch, in order.
    """
    steps: list[Step] = []
    reads: dict[NodeId, int] = {}
    made: set[NodeId] = set()
    placements: list[Placement] = []
    shared = _RootCosines(view, [insertion.vector for insertion in insertions])
    for index, insertion in enumerate(insertions):
        route = router.route(view, insertion.vector, root_cosines=shared.of(index))
        for branch, _, _ in route.path:
            if branch.id not in made:
                reads.setdefault(branch.id, branch.routing)
        fresh, placement = _place(route, insertion)
        for step in fresh:
            view.apply(step)
        if route.expands is not None:
            made.add(placement.parent)
            if route.branch is view.root:
                shared.changed(route.expands_slot)
        steps.extend(fresh)
        placements.append(placement)
    expects = tuple(Expectation(node=node, routing=routing) for node, routing in reads.items())
    return Plan(steps=tuple(steps), expects=expects, placements=tuple(placements))


def _place(route: Route, insertion: Insertion) -> tuple[list[Step], Placement]:
    """The steps of one insertion (section 3.1: attach, or expand the leaf that was reached)."""
    branch, item = route.branch, insertion.item
    leaf = leaf_id(item.event_id, item.chunk)
    above = [node.id for node, _, _ in route.path[:0:-1]]  # the root holds no text
    steps: list[Step] = []
    parent, depth = branch.id, branch.depth + 1
    if route.expands is not None:
        parent = summary_id(route.expands, leaf)
        direction, length = merge_means([(branch.row(route.expands_slot), 1.0, 1), (insertion.vector, 1.0, 1)])
        steps.append(
            Create(
                id=parent,
                parent=branch.id,
                kind=NodeKind.SUMMARY,
                depth=depth,
                vector=direction,
                cohesion=length,
                provisional=True,
            )
        )
        depth += 1
        steps.append(Move(node=route.expands, old_parent=branch.id, parent=parent, depth=depth))
        steps.append(Grow(leaf=route.expands, nodes=(parent,)))
        above = [parent, *above]
    steps.append(
        Create(id=leaf, parent=parent, kind=NodeKind.LEAF, depth=depth, vector=insertion.vector, text=item.text, item=item)
    )
    steps.append(Grow(leaf=leaf, nodes=tuple(above)))
    placement = Placement(leaf=leaf, parent=parent, depth=depth, expands=route.expands)
    return steps, placement
