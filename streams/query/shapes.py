"""What the service says of nodes, commits, routes and the past, as JSON values; the rest is in `streams.answers`."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from memory.changes import Create, LogEntry, Move, Remove, Rewrite, forgotten
from memory.model import MARK_BITS, ROOT, EventId, Node, NodeId, NodeKind
from memory.results import EventResult, EventStatus
from memory.service.history import EventRoute
from memory.service.outline import Outline
from memory.tree.routing import Decision


def ingest_json(results: Sequence[EventResult]) -> dict[str, Any]:
    """`{"events": […], "seq": …}`."""
    return {"events": [event_json(each) for each in results], "seq": max((each.seq for each in results), default=0) or None}


def event_json(result: EventResult) -> dict[str, Any]:
    """What became of one record."""
    return {"id": result.id, "status": result.status.value, "seq": result.seq or None, "reason": result.reason or None}


def outcomes(results: Sequence[EventResult]) -> Iterator[tuple[str, int]]:
    """How many became what."""
    for status in EventStatus:
        yield status.value, sum(each.status is status for each in results)


def child_json(node: Node) -> dict[str, Any]:
    """A node in brief."""
    item = node.item
    return {
        "id": node.id,
        "kind": node.kind.value,
        "depth": node.depth,
        "text": node.text,
        "descendants": node.descendants,
        "pending": node.pending,
        "provisional": node.provisional,
        "event_id": item.event_id if item else None,
        "speaker": item.speaker if item else None,
        "at": item.at if item else None,
    }


def node_json(node: Node, path: Sequence[Node], children: Sequence[Node], sources: Sequence[EventId]) -> dict[str, Any]:
    """A node, what lies above it, and some of its children."""
    item = node.item
    return {
        **child_json(node),
        "parent": node.parent,
        "version": node.version,
        "chunk": item.chunk if item else None,
        "chunks": item.chunks if item else None,
        "conversation": item.conversation if item else None,
        "title": item.title if item else None,
        "source": item.source if item else None,
        "url": item.url if item else None,
        "metadata": dict(item.metadata) if item else {},
        "attributes": dict(node.attributes),
        "sources": list(sources),
        "created_seq": node.mark >> MARK_BITS,
        "path": [{"id": each.id, "text": each.text} for each in path],
        "children": [child_json(child) for child in children],
    }


def decisions_json(decisions: Sequence[Decision], *, expanded: bool | None = None) -> list[dict[str, Any]]:
    """
    The comparisons of one descent.

    Args:
        decisions: from the root down.
        expanded: whether the last one ended in an expansion, where the log says so; else it does as the decision itself says.
    """
    return [
        {
            "node": each.node,
            "depth": each.depth,
            "best": each.best,
            "similarity": each.similarity,
            "threshold": each.threshold,
            "decision": _decision(each, last=place == len(decisions) - 1, expanded=expanded),
            "note": each.note,
        }
        for place, each in enumerate(decisions)
    ]


def _decision(decision: Decision, *, last: bool, expanded: bool | None) -> str:
    if decision.note:
        return "stay"
    if not last:
        return "enter"
    return "expand" if (decision.expands if expanded is None else expanded) else "attach"


def route_json(route: EventRoute) -> dict[str, Any]:
    """How an event was placed."""
    return {
        "event_id": route.event,
        "seq": route.seq,
        "leaves": [
            {
                "leaf": each.leaf,
                "parent": each.parent,
                "expanded": each.expanded,
                "decisions": decisions_json(each.decisions, expanded=each.expanded is not None),
            }
            for each in route.leaves
        ],
    }


def commit_json(entry: LogEntry) -> dict[str, Any]:
    """One commit."""
    created = [
        {"id": step.id, "parent": step.parent, "kind": step.kind.value, "depth": step.depth}
        for step in entry.steps
        if isinstance(step, Create)
    ]
    moved = [
        {"id": step.node, "parent": step.parent, "kind": None, "depth": step.depth}
        for step in entry.steps
        if isinstance(step, Move)
    ]
    return {
        "seq": entry.seq,
        "at": entry.at,
        "events": list(entry.events),
        "created": created,
        "moved": moved,
        "rewritten": list(dict.fromkeys(step.node for step in entry.steps if isinstance(step, Rewrite))),
        "removed": [step.node for step in entry.steps if isinstance(step, Remove)],
        "forgotten": forgotten(entry),
    }


class Past:
    """
    Draws the shape of a tree of the past.

    Args:
        outline: the tree as it was.
        depth: levels below the root.
        children: most children shown of a node, those with most leaves first.
    """

    def __init__(self, outline: Outline, *, depth: int, children: int) -> None:
        self._below_of = outline.children()
        self._depth = depth
        self._children = children
        self._leaves: dict[NodeId, int] = {}
        order: list[NodeId] = [ROOT]
        for node in order:
            order.extend(child for child in self._below_of[node] if child in self._below_of)
        for node in reversed(order):
            self._leaves[node] = sum(self._leaves.get(child, 1) for child in self._below_of[node])

    @property
    def leaves(self) -> int:
        """All that there were."""
        return self._leaves[ROOT]

    def shown_leaves(self) -> list[NodeId]:
        """The leaves that are drawn."""
        return [node for node in self._shown(ROOT, 0) if node not in self._below_of]

    def json(self, leaves: Mapping[NodeId, Node]) -> dict[str, Any]:
        """The drawing; `leaves` has the texts of those that are shown, and are still there."""
        return self._node(ROOT, 0, leaves)

    def _shown(self, node: NodeId, level: int) -> Iterator[NodeId]:
        yield node
        if level < self._depth:
            for child in self._largest(node):
                yield from self._shown(child, level + 1)

    def _largest(self, node: NodeId) -> list[NodeId]:
        """Those below a node that are drawn; a node may have all others of its tree below it."""
        below = self._below_of.get(node, ())
        return heapq.nsmallest(self._children, below, key=lambda child: (-self._leaves.get(child, 0), child))

    def _node(self, node: NodeId, level: int, leaves: Mapping[NodeId, Node]) -> dict[str, Any]:
        shown = self._largest(node) if level < self._depth else []
        is_leaf = node not in self._below_of
        found = leaves.get(node)
        kind = NodeKind.LEAF if is_leaf else NodeKind.ROOT if level == 0 else NodeKind.SUMMARY
        return {
            "id": node,
            "kind": kind.value,
            "depth": level,
            "leaves": self._leaves.get(node, 0),
            "event_id": found.item.event_id if found is not None and found.item is not None else None,
            "text": found.text if found is not None else None,
            "children": [self._node(child, level + 1, leaves) for child in shown],
            "hidden": len(self._below_of.get(node, ())) - len(shown),
        }
