"""What the script of a commit is asked, as it is sent (`scripts/apply.lua`): one demand a node, and the request made of all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, encode_item
from memory.adapters.redis.codec import encode_attributes, encode_content, encode_link, encode_receipt, for_lua
from memory.adapters.redis.keys import TreeKeys
from memory.changes import EventEntry, Link
from memory.model import ROOT, Attributes, EventId, NodeId
from memory.ports.store import Create


class Request(msgspec.Struct):
    """The script's first argument; nodes, grows and keys are places in their lists, from 1, and rows are flat for speed."""

    dimension: int
    """Of the set's vectors; 0 when it has none."""
    leaves: int
    """The first so many names are of the leaves made."""
    events: list[str]
    receipts: list[msgspec.Raw]
    """Of the events, without their numbers."""
    forgets: list[str]
    """Events; their receipts become tombstones."""
    expects: list[int]
    """Node, version or false, routing or false, …"""
    contradictions: list[int]
    """Nodes that cannot be as the set wants them, whatever the store has."""
    present: list[int]
    """Nodes that must be there."""
    parents: list[int]
    """Node, the parent it must have, …"""
    summaries: list[int]
    """Nodes that must be summaries if they are there."""
    taken: list[int]
    """Nodes that must be leaves if they are there."""
    guarded: list[int]
    """Nodes whose children are added, moved or removed: refused while another's lease has them."""
    new: list[list[Any]]
    """Node, kind, provisional, depth, version, routing, descendants, cohesion, parent, position of its step, content, attributes as
    they stand in a row."""
    over: list[tuple[int, int, int, int]]
    """New node, node whose stored descendants and contributions it takes over, keys of the contributions of this one and of the
    new one."""
    annotated: list[tuple[int, Attributes]]
    """Node, attributes to be set."""
    links: list[tuple[int, int, msgspec.Raw]]
    """Key of edges, position of the step, edges."""
    changed: list[list[Any]]
    """Node, routing +, version +, descendants +, parent or 0, depth, then cohesion (or false), provisional, content."""
    leaving: list[tuple[int, int]]
    """Key of children, node."""
    coming: list[tuple[int, list[int]]]
    """Key of children, nodes."""
    grows: list[tuple[int, int]]
    """Position of the step, leaf."""
    grown: list[tuple[int, int, int, list[int]]]
    """Node, key of contributions, mark through which earlier ones go, then grow and mark through which it goes itself, …"""
    waiting: list[tuple[int, int, list[int]]]
    """Instead of `grown` where leaves are taken out: node, key of contributions, then in the order of the steps 0 and a leaf that
    goes, 1 and the mark through which earlier ones go, 2 and a grow, 3 and a grow that is for a node where nothing waits."""
    removes: list[tuple[int, int, int, int, int, int]]
    """Node, its children that are removed before it, keys of its children and of its contributions (0 where it must be a leaf), of
    its parent's children, of failures."""
    root: int
    """The root, where nodes are removed; else 0."""
    counts: list[Any]
    """Counter, what is added, …"""


@dataclass(slots=True)
class Demand:
    """One node of the set."""

    number: int
    created: Create | None = None
    position: int = 0
    """Of the step that makes it."""
    parent: int | None = None
    """Where it lies as far as the set says; None where nothing was said."""
    required: int | None = None
    """Where it must have lain before."""
    present: bool = False
    summary: bool = False
    routing: int = 0
    version: int = 0
    descendants: int = 0
    depth: int | None = None
    """Where it was moved to."""
    cohesion: float = 1.0
    provisional: bool = False
    text: str = ""
    vector: int = -1
    """Among the set's vectors, or -1."""
    through: int = 0
    grows: list[int] = field(default_factory=list)
    """Grow, mark through which it is trimmed again, …"""
    waiting: list[int] = field(default_factory=list)
    """Where leaves are taken out, as in the request."""
    removed: bool = False
    children_gone: int = 0
    """Children that are removed by the set so far."""
    over: Demand | None = None
    """Whose stored descendants and contributions it takes over."""

    @property
    def changed(self) -> bool:
        """Whether the row of a node that was there is another, wherever it lies."""
        return bool(self.routing or self.version or self.descendants or self.waiting)


@dataclass(slots=True)
class Demands:
    """All of a set, folded; numbers are those of nodes."""

    nodes: dict[NodeId, Demand] = field(default_factory=dict)
    """In the order in which they are first named, which numbers them from 1."""
    contradictions: list[int] = field(default_factory=list)
    guarded: set[int] = field(default_factory=set)
    grows: list[tuple[int, int]] = field(default_factory=list)
    moved: dict[int, int] = field(default_factory=dict)
    """Of the nodes that were there and are moved, the first parent."""
    annotated: list[tuple[int, Attributes]] = field(default_factory=list)
    links: list[tuple[int, Link]] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    removes: list[tuple[Demand, int]] = field(default_factory=list)
    """Node, its children that are removed before it."""
    counts: dict[str, int] = field(default_factory=dict)

    def of(self, name: NodeId) -> Demand:
        """A node's."""
        found = self.nodes.get(name)
        if found is None:
            found = self.nodes[name] = Demand(len(self.nodes) + 1)
        return found

    def count(self, name: str, change: int) -> None:
        """Add to a counter of the tree."""
        self.counts[name] = self.counts.get(name, 0) + change


class KeyList:
    """The keys that a request names by number, from 1."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, key: str) -> int:
        """A key's."""
        return self._numbers.setdefault(key, len(self._numbers) + 1)

    def all(self) -> list[str]:
        """In order of their numbers."""
        return list(self._numbers)


def request_of(
    demands: Demands,
    *,
    tree: TreeKeys,
    keys: KeyList,
    vectors: Sequence[bytes],
    dimension: int,
    leaves: int,
    expects: list[int],
    events: Sequence[EventEntry],
    forgets: Sequence[EventId],
) -> Request:
    """
    What the script is asked.

    Args:
        demands: the set's.
        tree: the tree's keys.
        keys: takes those that are needed.
        vectors: as stored.
        dimension: of the vectors; 0 when there are none.
        leaves: how many of the first nodes are leaves that are made.
        expects: as in the request.
        events: the set's.
        forgets: the set's.
    """
    if events:
        demands.count("events", len(events))
    nodes = list(demands.nodes.values())
    root = demands.of(ROOT).number if demands.removes else 0
    new: list[list[Any]] = []
    changed: list[list[Any]] = []
    for demand in nodes:
        made = demand.created
        if demand.removed:
            continue
        if made is not None:
            new.append(_new_row(demand, made, _content(demand, vectors)))
        elif demand.changed or demand.number in demands.moved or demand.number == root:
            changed.append(_changed_row(demand, _content(demand, vectors), moved=demand.number in demands.moved))
    new.sort(key=lambda row: int(row[9]))  # nodes are kept in the order of their steps
    leaving, coming, grown, over = _lists(demands, tree, keys)
    return Request(
        dimension=dimension,
        leaves=leaves,
        events=[event.id for event in events],
        receipts=[for_lua(encode_receipt(event.digest, event.leaves)) for event in events],
        forgets=list(forgets),
        expects=expects,
        contradictions=demands.contradictions,
        present=[demand.number for demand in nodes if demand.present],
        parents=[
            number
            for demand in nodes
            if demand.required is not None and demand.created is None
            for number in (demand.number, demand.required)
        ],
        summaries=[demand.number for demand in nodes if demand.summary and demand.created is None],
        taken=demands.taken,
        guarded=[demand.number for demand in nodes if demand.created is None and demand.number in demands.guarded],
        new=new,
        over=over,
        annotated=demands.annotated,
        links=[(keys.number(tree.links), position, for_lua(encode_link(link))) for position, link in demands.links],
        changed=changed,
        leaving=leaving,
        coming=coming,
        grows=demands.grows,
        grown=grown,
        waiting=[
            (demand.number, keys.number(tree.contributions(name)), demand.waiting)
            for name, demand in demands.nodes.items()
            if demand.waiting and not demand.removed
        ],
        removes=_removes(demands, tree, keys),
        root=root,
        counts=[part for pair in demands.counts.items() if pair[1] for part in pair],
    )


def _lists(
    demands: Demands, tree: TreeKeys, keys: KeyList
) -> tuple[
    list[tuple[int, int]], list[tuple[int, list[int]]], list[tuple[int, int, int, list[int]]], list[tuple[int, int, int, int]]
]:
    """What changes in children and contributions: leaving, coming, grown, over."""
    names = list(demands.nodes)
    leaving: list[tuple[int, int]] = []
    coming: dict[int, list[int]] = {}
    grown: list[tuple[int, int, int, list[int]]] = []
    over: list[tuple[int, int, int, int]] = []
    for name, demand in demands.nodes.items():
        number, moved = demand.number, demand.number in demands.moved
        if moved:
            leaving.append((keys.number(tree.children(names[demands.moved[number] - 1])), number))
        if demand.created is not None or moved:
            assert demand.parent is not None
            coming.setdefault(keys.number(tree.children(names[demand.parent - 1])), []).append(number)
        if demand.grows or demand.through or moved:
            grown.append((number, keys.number(tree.contributions(name)), demand.through, demand.grows))
        if demand.over is not None:
            other = tree.contributions(names[demand.over.number - 1])
            over.append((number, demand.over.number, keys.number(other), keys.number(tree.contributions(name))))
    return leaving, list(coming.items()), grown, over


def _removes(demands: Demands, tree: TreeKeys, keys: KeyList) -> list[tuple[int, int, int, int, int, int]]:
    names, leaves = list(demands.nodes), set(demands.taken)
    found = []
    for demand, children in demands.removes:
        assert demand.parent is not None
        name = names[demand.number - 1]
        # A leaf has neither children nor contributions; the script makes sure that it is one.
        own = (0, 0) if demand.number in leaves else (keys.number(tree.children(name)), keys.number(tree.contributions(name)))
        others = (keys.number(tree.children(names[demand.parent - 1])), keys.number(tree.failures))
        found.append((demand.number, children, *own, *others))
    return found


def _content(demand: Demand, vectors: Sequence[bytes]) -> msgspec.Raw | None:
    if demand.vector < 0:
        return None
    made = demand.created
    item = None if made is None or made.item is None else encode_item(made.item, demand.text)
    return for_lua(vectors[demand.vector] + encode_content(demand.text, item))


def _new_row(demand: Demand, made: Create, content: msgspec.Raw | None) -> list[Any]:
    return [
        demand.number,
        KIND_NUMBER[made.kind],
        int(demand.provisional),
        demand.depth,
        demand.version,
        demand.routing,
        demand.descendants,
        demand.cohesion,
        demand.parent,
        demand.position,
        content,
        for_lua(encode_attributes(made.attributes)),
    ]


def _changed_row(demand: Demand, content: msgspec.Raw | None, *, moved: bool) -> list[Any]:
    place = (demand.parent, demand.depth) if moved else (0, 0)
    written = (demand.cohesion, int(demand.provisional), content) if content is not None else (False,)
    return [demand.number, demand.routing, demand.version, demand.descendants, *place, *written]
