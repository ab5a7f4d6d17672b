"""Every invariant of a stored tree, by name. Run by `banyan check`, by the tests after each step, and in production on demand."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from memory.changes import Link, check_attributes, check_link
from memory.model import ROOT, EventId, Mark, Node, NodeId, NodeKind
from memory.results import Violation
from memory.tree.planning import leaf_id

INVARIANTS: Mapping[str, str] = {
    "root": "There is one root, at depth 0, without parent, text or vector.",
    "single-parent": "Every node but the root has one parent, and that parent exists and can have children.",
    "no-cycle": "Going up from any node ends at the root.",
    "depth": "A node is one level deeper than its parent; below the root the structure says where depth begins.",
    "descendants": "A summary's count of descendants is the number of leaves below it; a leaf's is 0.",
    "not-empty": "A summary has children.",
    "leaf-is-item": "A leaf holds one item, under the id derived from it; a summary and the root hold none.",
    "event-once": "Every applied event has exactly its leaves, every leaf belongs to exactly one applied event. One that only set "
    "attributes has none.",
    "coverage": "What a summary's text covers and what is pending add up to its descendants, and what is pending lies below it.",
    "attributes": "A node's attributes are few and short; they are those that the change log gives.",
    "links": "An edge joins two nodes that are there; the edges are those that the change log gives.",
    "vector": "Every node but the root has a finite vector of unit length (checked where vectors were read).",
    "serial-replay": "Replaying the change log, each item goes where it is (see `Structure.replay`).",
    "log-shape": "The change log, replayed, gives the stored tree's shape and versions.",
}
"""Names and meanings; the docs list is made from this."""


class Stored(NamedTuple):
    """A whole tree as read from its store."""

    nodes: Mapping[NodeId, Node]
    events: Mapping[EventId, tuple[NodeId, ...]]
    contributions: Mapping[NodeId, Sequence[tuple[Mark, NodeId]]]
    """Of each summary, the leaves that are pending there."""
    links: Sequence[Link] = ()
    """Edges of the association graph, in the order in which they were made."""
    leafless: Collection[EventId] = ()
    """Events that by the change log have no leaves: they set attributes."""


def check(stored: Stored) -> list[Violation]:
    """All violations of the invariants that a stored state can show; empty when it is sound."""
    return [
        Violation(invariant=name, node=node, detail=detail)
        for part in (_shape, _counts, _items, _events, _coverage, _attributes, _links, _vectors)
        for name, node, detail in part(stored)
    ]


_Found = Iterator[tuple[str, NodeId | None, str]]


def _shape(stored: Stored) -> _Found:
    root = stored.nodes.get(ROOT)
    if root is None or root.parent is not None or root.depth != 0 or root.kind is not NodeKind.ROOT or root.text:
        yield "root", ROOT, "missing or not as a root should be"
    for node in stored.nodes.values():
        if node.id == ROOT:
            continue
        parent = stored.nodes.get(node.parent) if node.parent is not None else None
        if parent is None or node.kind is NodeKind.ROOT:
            yield "single-parent", node.id, f"its parent is {node.parent}, which does not exist"
        elif parent.kind is NodeKind.LEAF:
            yield "single-parent", node.id, f"its parent {parent.id} is a leaf"
        elif node.depth != parent.depth + 1 and (node.parent != ROOT or node.depth < 1):
            yield "depth", node.id, f"is at depth {node.depth}, its parent {parent.id} at {parent.depth}"
    sound: set[NodeId] = {ROOT}
    for start in stored.nodes:
        trail: dict[NodeId, None] = {}
        at: NodeId | None = start
        while at is not None and at not in sound and at not in trail and at in stored.nodes:
            trail[at] = None
            at = stored.nodes[at].parent
        if at is not None and at in trail:
            yield "no-cycle", start, f"going up from it comes back to {at}"
        sound.update(trail)


def _leaves_below(stored: Stored) -> dict[NodeId, int]:
    counts: dict[NodeId, int] = {}
    for node in stored.nodes.values():
        if node.kind is NodeKind.LEAF:
            at, steps = node.parent, 0
            while at is not None and steps <= len(stored.nodes):
                counts[at] = counts.get(at, 0) + 1
                above = stored.nodes.get(at)
                at, steps = (above.parent if above else None), steps + 1
    return counts


def _counts(stored: Stored) -> _Found:
    below = _leaves_below(stored)
    for node in stored.nodes.values():
        if node.kind is NodeKind.SUMMARY and node.descendants != below.get(node.id, 0):
            yield "descendants", node.id, f"says {node.descendants}, {below.get(node.id, 0)} leaves are below it"
        if node.kind is NodeKind.SUMMARY and node.id not in below:
            yield "not-empty", node.id, "has no leaf below it"
        if node.kind is NodeKind.LEAF and (node.descendants or node.pending):
            yield "descendants", node.id, "is a leaf and counts descendants"


def _items(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        if (node.kind is NodeKind.LEAF) != (node.item is not None):
            yield "leaf-is-item", node.id, f"is a {node.kind} and {'has no' if node.item is None else 'has an'} item"
        elif node.item is not None and node.id != leaf_id(node.item.event_id, node.item.chunk):
            yield (
                "leaf-is-item",
                node.id,
                f"holds chunk {node.item.chunk} of event {node.item.event_id!r}, whose leaf has another id",
            )


def _events(stored: Stored) -> _Found:
    owners: dict[NodeId, EventId] = {}
    for event, leaves in stored.events.items():
        if not leaves and event not in stored.leafless:
            yield "event-once", None, f"event {event!r} was applied, and has no leaf"
        for chunk, leaf in enumerate(leaves):
            node = stored.nodes.get(leaf)
            if node is None or node.item is None:
                yield "event-once", leaf, f"event {event!r} was applied, its chunk {chunk} is not in the tree"
            elif node.item.event_id != event or node.item.chunk != chunk:
                yield "event-once", leaf, f"is chunk {chunk} of event {event!r} by its receipt, and another by its item"
            elif node.item.chunks != len(leaves):
                yield "event-once", leaf, f"is one of {node.item.chunks} chunks of event {event!r}, whose receipt has {len(leaves)}"
            if leaf in owners:
                yield "event-once", leaf, f"belongs to the events {owners[leaf]!r} and {event!r}"
            owners[leaf] = event
    for node in stored.nodes.values():
        if node.kind is NodeKind.LEAF and node.id not in owners:
            yield "event-once", node.id, "is in the tree, but no applied event has it"


def _coverage(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        waiting = stored.contributions.get(node.id, ())
        if node.pending != len(waiting):
            yield "coverage", node.id, f"counts {node.pending} pending, {len(waiting)} contributions wait"
        if not 0 <= node.pending <= node.descendants:
            yield "coverage", node.id, f"{node.pending} pending of {node.descendants} descendants"
        if len({leaf for _, leaf in waiting}) != len(waiting):
            yield "coverage", node.id, "a leaf is pending twice"
        for _, leaf in waiting:
            at: NodeId | None = leaf
            for _ in range(128):
                if at is None or at == node.id:
                    break
                above = stored.nodes.get(at)
                at = above.parent if above else None
            if at != node.id:
                yield "coverage", node.id, f"the leaf {leaf} is pending there and does not lie below it"


def _attributes(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        try:
            check_attributes(node.attributes)
        except ValueError as error:
            yield "attributes", node.id, str(error)


def _links(stored: Stored) -> _Found:
    for link in stored.links:
        try:
            check_link(link)
        except ValueError as error:
            yield "links", link.node, str(error)
        for end in (link.node, *link.others):
            if end not in stored.nodes:
                yield "links", end, f"is an end of an edge of {link.node}, and is not in the tree"


def _vectors(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        if node.vector is not None:
            length = float(node.vector @ node.vector) ** 0.5
            if not abs(length - 1.0) < 0.01:
                yield "vector", node.id, f"has length {length}"
