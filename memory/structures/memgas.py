"""
MemGAS: units at four granularities, and an association graph between them.

Source: "From Single to Multi-Granularity: Toward Long-Term Memory Association and Selection of Conversational Agents", sections 2.1
and 2.2. A session (a conversation; a document; an item that is of neither) is kept at four granularities (equations 1 and 2): the
session itself, a summary of it, its keywords, and its turns. In the tree the first three lie one below the other and cover the same
turns, which hang below the last. An arriving turn is compared with the units of other sessions, at all granularities; a Gaussian
mixture tells the accept set from the rest, and the accept set becomes its edges.

Two things differ from the paper, because sessions here grow while they are read (decision 0014). It compares a session when it is
over; here a turn is compared when it comes, with the units as they are then, and the session, summary and keyword units get their
edges from turns that come later, instead of from what their first turn says. It compares with all units; here with those of the
nearest `neighbourhood` sessions, which is the same where there are no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from memory.changes import Create, Expectation, Grow, Link, LogEntry, Step
from memory.model import ROOT, EmbeddingModel, Item, Node, NodeId, NodeKind, Vector
from memory.results import Violation
from memory.structures import mixture
from memory.structures.base import Aggregation, Structure
from memory.structures.parameters import MemGasParameters
from memory.tree.check import Stored
from memory.tree.planning import Insertion, Placement, Plan, leaf_id
from memory.tree.routing import Decision
from memory.tree.similarity import TIE
from memory.tree.view import Branch, View

GRANULARITIES = ("session", "summary", "keyword")
"""Of the units that are summaries, from the root down; the fourth granularity, `turn`, are the leaves."""
GRANULARITY = "granularity"
"""Name of the attribute."""
LEAF_DEPTH = len(GRANULARITIES) + 1
DECIMALS = 4
"""Similarities are fitted as rounded to so many, so that the last bits of a float sum do not reach the border."""
_AGGREGATIONS: Mapping[object, Aggregation] = {"session": Aggregation.ITEMS, "keyword": Aggregation.KEYWORDS}
BORDER_TIE = 5e-4
"""A unit this near the border may lie on either side in a replay: one similarity that is rounded the other way moves it so far."""


@dataclass(frozen=True, slots=True)
class _Association:
    """What one turn is associated with."""

    accepted: tuple[NodeId, ...] = ()
    """The accept set, nearest first, at most `links_max`."""
    border: float = float("inf")
    """Cosine from which on a unit is accepted."""
    near: Mapping[NodeId, float] = field(default_factory=dict)
    """Cosines with all units that were compared."""
    farthest: float = -1.0
    """Cosine with the farthest session whose units were compared."""
    reads: tuple[Branch, ...] = ()


class MemGas(Structure):
    """
    MemGAS' insertion.

    Args:
        model: of the tree's vectors; the mixture needs no zero, so that cosines are not calibrated.
        parameters: the neighbourhood, and how many edges a turn gets.
    """

    name = "memgas"
    invariants: ClassVar[Mapping[str, str]] = {
        "granularity": "From the root down come a session, its summary, its keywords, each alone below the one above, and turns.",
        "own-session": "A turn lies below the units of its own conversation or document.",
        "association": "An edge joins a turn with a unit of another session.",
    }

    def __init__(self, model: EmbeddingModel, parameters: MemGasParameters | None = None) -> None:  # noqa: ARG002
        self._parameters = parameters or MemGasParameters()

    def parameters(self) -> Mapping[str, float]:
        """The neighbourhood and the number of edges."""
        return self._parameters.as_mapping()

    def plan(self, view: View, insertions: Sequence[Insertion]) -> Plan:
        """See `Structure.plan`."""
        steps: list[Step] = []
        made: set[NodeId] = set()
        before: dict[NodeId, int] = {}
        """Routing numbers before the batch, of nodes that it read or changed."""
        read: dict[NodeId, None] = {}
        placements: list[Placement] = []
        for insertion in insertions:
            units = unit_ids(insertion.item)
            association = self._associate(view, insertion.vector, units[0])
            fresh = _steps(view, units, insertion, association)
            for branch in (*association.reads, *_changed(view, fresh)):
                before.setdefault(branch.id, branch.routing)
            read |= dict.fromkeys(branch.id for branch in association.reads if branch.id not in made)
            for step in fresh:
                view.apply(step)
            made.update(step.id for step in fresh if isinstance(step, Create) and step.kind is NodeKind.SUMMARY)
            steps.extend(fresh)
            leaf = leaf_id(insertion.item.event_id, insertion.item.chunk)
            placements.append(Placement(leaf=leaf, parent=units[-1], depth=LEAF_DEPTH, expands=None))
        expects = tuple(Expectation(node=node, routing=before[node]) for node in read)
        return Plan(steps=tuple(steps), expects=expects, placements=tuple(placements))

    def route(self, view: View, vector: Vector) -> tuple[Decision, ...]:
        """See `Structure.route`: what a turn of a new session would be associated with."""
        return _decisions(self._associate(view, vector, None))

    def replay(self, view: View, entry: LogEntry) -> tuple[int, list[Violation]]:
        """See `Structure.replay`. Each turn's edges are found again on the tree as it was; its place is checked by its item."""
        checked = 0
        found: list[Violation] = []
        waiting: tuple[NodeId, _Association] | None = None
        for step in entry.steps:
            if isinstance(step, Create) and step.kind is NodeKind.LEAF:
                if waiting is not None:
                    found.extend(self._judge(view, waiting, (), entry.seq))
                waiting = (step.id, self._associate(view, step.vector, _session_of(view, step.parent)))
                checked += 1
            elif isinstance(step, Link) and waiting is not None and step.node == waiting[0]:
                found.extend(self._judge(view, waiting, step.others, entry.seq))
                waiting = None
            view.apply(step)
        if waiting is not None:
            found.extend(self._judge(view, waiting, (), entry.seq))
        view.seq = entry.seq
        return checked, found

    def check(self, stored: Stored) -> list[Violation]:
        """See `Structure.check`."""
        found = (*_ranks(stored), *_strays(stored), *_edges(stored))
        return [Violation(invariant=name, node=node, detail=detail) for name, node, detail in found]

    def aggregation(self, node: Node) -> Aggregation:
        """See `Structure.aggregation`: a session's turns word for word, its summary, its keywords (equation 1)."""
        return _AGGREGATIONS.get(node.attributes.get(GRANULARITY), Aggregation.CONTRIBUTIONS)

    def _associate(self, view: View, vector: Vector, own: NodeId | None) -> _Association:
        """The accept set among the units of the nearest sessions other than `own` (section 2.2)."""
        root = view.root
        cosines = root.cosines(vector)
        nearest = sorted((-float(cosine), node) for cosine, node in zip(cosines, root.ids, strict=True) if node != own)
        chosen = nearest[: self._parameters.neighbourhood]
        if not chosen:
            return _Association(reads=(root,))
        reads = [root]
        near: dict[NodeId, float] = {}
        for distance, session in chosen:
            near[session] = -distance
            below: Branch | None = view.branches[session]
            while below is not None:
                reads.append(below)
                near.update(zip(below.ids, below.cosines(vector).tolist(), strict=True))
                below = view.branches.get(below.ids[0]) if below.ids else None
        fitted = mixture.fit(np.round(np.fromiter(near.values(), np.float64, len(near)), DECIMALS))
        border = float("inf") if fitted is None else fitted.threshold()
        accepted = sorted((-cosine, node) for node, cosine in near.items() if round(cosine, DECIMALS) >= border)
        return _Association(
            accepted=tuple(node for _, node in accepted[: self._parameters.links_max]),
            border=border,
            near=near,
            farthest=-chosen[-1][0],
            reads=tuple(reads),
        )

    def _judge(self, view: View, waiting: tuple[NodeId, _Association], linked: Sequence[NodeId], seq: int) -> Iterator[Violation]:
        """What the edges of a turn should not be or should be, ties left out."""
        leaf, association = waiting
        expected = set(association.accepted)
        # A cut among equals, and a session at the rim of the neighbourhood, may go either way.
        full = len(association.accepted) == self._parameters.links_max
        cut = association.near[association.accepted[-1]] if full else -1.0
        for other in sorted(expected.symmetric_difference(linked)):
            cosine = association.near.get(other)
            if cosine is None:
                session = _session_of(view, other)
                near = session is not None and session in view and abs(_cosine(view, leaf, session) - association.farthest) <= TIE
            else:
                near = abs(cosine - association.border) <= BORDER_TIE or abs(cosine - cut) <= TIE
            if not near:
                has = "has an edge to" if other in linked else "has no edge to"
                detail = f"seq {seq}: {has} {other}, with cosine {cosine} against a border of {association.border:.5f}"
                yield Violation(invariant="serial-replay", node=leaf, detail=detail)


def unit_ids(item: Item) -> tuple[NodeId, NodeId, NodeId]:
    """Ids of the session, summary and keyword units of an item: of its conversation, else of its document, else its own."""
    key = item.sequence or f"e:{item.event_id}"
    hashes = (hashlib.blake2b(f"{name}\x00{key}".encode(), digest_size=9).hexdigest() for name in GRANULARITIES)
    session, summary, keyword = (NodeId("s" + each) for each in hashes)
    return session, summary, keyword


def _steps(view: View, units: tuple[NodeId, ...], insertion: Insertion, association: _Association) -> list[Step]:
    item, leaf = insertion.item, leaf_id(insertion.item.event_id, insertion.item.chunk)
    steps: list[Step] = []
    if units[0] not in view.branches:
        steps = [
            Create(
                id=unit,
                parent=parent,
                kind=NodeKind.SUMMARY,
                depth=depth,
                vector=insertion.vector,
                provisional=True,
                attributes={GRANULARITY: granularity},
            )
            for depth, (unit, parent, granularity) in enumerate(zip(units, (ROOT, *units), GRANULARITIES, strict=False), 1)
        ]
    steps.append(
        Create(id=leaf, parent=units[-1], kind=NodeKind.LEAF, depth=LEAF_DEPTH, vector=insertion.vector, text=item.text, item=item)
    )
    steps.append(Grow(leaf=leaf, nodes=units[::-1]))
    if association.accepted:
        steps.append(Link(node=leaf, others=association.accepted))
    return steps


def _changed(view: View, steps: Sequence[Step]) -> Iterator[Branch]:
    """Nodes that are there and get children."""
    for step in steps:
        if isinstance(step, Create) and step.parent in view.branches:
            yield view.branches[step.parent]


def _decisions(association: _Association) -> tuple[Decision, ...]:
    best = max(association.near, key=lambda node: (association.near[node], node), default=None)
    similarity = 0.0 if best is None else association.near[best]
    note = f"goes below its own session; {len(association.accepted)} of the {len(association.near)} units compared are associated"
    border = association.border if np.isfinite(association.border) else 1.0
    return (Decision(ROOT, 0, best, similarity, border, note=note),)


def _session_of(view: View, node: NodeId) -> NodeId | None:
    """The session unit above a node, or the node itself; None for one that the view does not have."""
    if node not in view:
        return None
    trail = [node, *(branch.id for branch in view.ancestors(node))]
    return trail[-2] if len(trail) > 1 else None


def _cosine(view: View, leaf: NodeId, session: NodeId) -> float:
    vector = view.homes[leaf].row(view.slot(leaf))
    return float(view.root.row(view.branches[session].slot) @ vector)


_Found = Iterator[tuple[str, NodeId, str]]


def _ranks(stored: Stored) -> _Found:
    """Summaries that are not what belongs at their depth, and chains that fork."""
    children: dict[NodeId, int] = {}
    for node in stored.nodes.values():
        if node.parent is not None:
            children[node.parent] = children.get(node.parent, 0) + 1
    for node in stored.nodes.values():
        if node.kind is NodeKind.ROOT:
            continue
        expected = GRANULARITIES[node.depth - 1] if 1 <= node.depth < LEAF_DEPTH else None
        if node.kind is NodeKind.LEAF:
            if node.depth != LEAF_DEPTH:
                yield "granularity", node.id, f"is a turn at depth {node.depth}"
        elif expected is None or node.attributes.get(GRANULARITY) != expected:
            yield "granularity", node.id, f"is a {node.attributes.get(GRANULARITY)!r} unit at depth {node.depth}"
        elif node.depth < LEAF_DEPTH - 1 and children.get(node.id, 0) != 1:
            yield "granularity", node.id, f"is a {expected} unit with {children.get(node.id, 0)} nodes below it"


def _strays(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        if node.item is not None and node.parent != unit_ids(node.item)[-1]:
            yield "own-session", node.id, f"lies below {node.parent}, its session's keywords are {unit_ids(node.item)[-1]}"


def _edges(stored: Stored) -> _Found:
    for link in stored.links:
        own = stored.nodes.get(link.node)
        if own is None or own.kind is not NodeKind.LEAF:
            yield "association", link.node, "has edges of its own and is no turn"
            continue
        for other in link.others:
            if _top(stored.nodes, other) == _top(stored.nodes, link.node):
                yield "association", link.node, f"has an edge to {other} of its own session"


def _top(nodes: Mapping[NodeId, Node], node: NodeId) -> NodeId:
    """The node below the root on the way up."""
    at = node
    for _ in range(LEAF_DEPTH):
        above = nodes[at].parent if at in nodes else None
        if above is None or above == ROOT:
            break
        at = above
    return at
