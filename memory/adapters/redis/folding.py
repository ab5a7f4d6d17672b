"""
What a change set asks of the script: pure, before anything is sent.

The steps of a set are folded to one demand a node, so that the script, which everybody's commits wait for, looks at each node once:
what must be so before (there, new, below which parent, a summary), what is added to its counters, where it goes, what is written.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, encode_item, encode_vectors
from memory.adapters.redis.codec import (
    MARK_MAX,
    encode,
    encode_attributes,
    encode_commit,
    encode_content,
    encode_link,
    encode_receipt,
    for_lua,
)
from memory.adapters.redis.keys import TreeKeys
from memory.changes import check_attributes, check_link
from memory.model import MARK_BITS, ROOT, Attributes, NodeId, NodeKind
from memory.ports.store import Annotate, ChangeSet, Create, Grow, Link, Move, Rewrite, Step

DEPTH_MAX = (1 << 16) - 1


class Request(msgspec.Struct):
    """The script's first argument; nodes, grows and keys are places in their lists, from 1, and rows are flat for speed."""

    dimension: int
    """Of the set's vectors; 0 when it has none."""
    leaves: int
    """The first so many names are of the leaves made."""
    events: list[str]
    receipts: list[msgspec.Raw]
    """Of the events, without their numbers."""
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
    guarded: list[int]
    """Nodes whose children are added or moved: refused while another's lease has them."""
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
    over: Demand | None = None
    """Whose stored descendants and contributions it takes over."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Arguments of the script."""

    request: bytes
    names: bytes
    body: bytes
    keys: list[str]
    """Of children and contributions."""


def fold(changes: ChangeSet, keys: TreeKeys) -> Folded:
    """
    The script's arguments.

    Raises:
        ValueError: the set contradicts its own contract.
    """
    return _Folding(changes, keys).folded()


class _Folding:
    def __init__(self, changes: ChangeSet, keys: TreeKeys) -> None:
        self._changes = changes
        self._tree_keys = keys
        self._demands: dict[NodeId, Demand] = {}
        self._contradictions: list[int] = []
        self._guarded: set[int] = set()
        self._grows: list[tuple[int, int]] = []
        self._vectors = 0
        self._keys: dict[str, int] = {}
        self._moved: dict[int, int] = {}
        """Of the nodes that were there and are moved, the first parent."""
        self._counts: dict[str, int] = {}
        self._annotated: list[tuple[int, Attributes]] = []
        self._links: list[tuple[int, Link]] = []

    def folded(self) -> Folded:
        changes = self._changes
        if len(changes.steps) >= 1 << MARK_BITS:
            raise ValueError(f"a change set has at most {(1 << MARK_BITS) - 1} steps, got {len(changes.steps)}")
        if len({event.id for event in changes.events}) != len(changes.events):
            raise ValueError("a change set names each event once")
        leaves = [step.id for step in changes.steps if isinstance(step, Create) and step.kind is NodeKind.LEAF]
        for leaf in leaves:
            self._demand(leaf)
        first_leaves = len(self._demands)
        for position, step in enumerate(changes.steps):
            self._fold(step, position)
        if leaves:
            self._there(ROOT).descendants += len(leaves)
        expects = [
            number
            for expected in changes.expects
            for number in (
                self._demand(expected.node).number,
                expected.version is not None and expected.version,
                expected.routing is not None and expected.routing,
            )
        ]
        given = [step.vector for step in changes.steps if isinstance(step, Create | Rewrite)]
        vectors = encode_vectors(given, len(given[0])) if given else []
        numbers = {name: demand.number for name, demand in self._demands.items()}
        request = self._request(vectors, expects, first_leaves, len(given[0]) if given else 0)
        return Folded(
            request=encode(request),
            names=encode(list(numbers)),
            body=encode_commit(changes.steps, [event.id for event in changes.events], vectors, numbers, at=changes.at),
            keys=list(self._keys),
        )

    # ------------------------------------------------------------------------------------------------------------- steps

    def _fold(self, step: Step, position: int) -> None:
        match step:
            case Create():
                self._create(step, position)
            case Move():
                self._move(step)
            case Grow():
                self._grow(step, position)
            case Rewrite():
                self._rewrite(step)
            case Annotate():
                self._annotate(step)
            case Link():
                self._link(step, position)

    def _demand(self, name: NodeId) -> Demand:
        found = self._demands.get(name)
        if found is None:
            found = self._demands[name] = Demand(len(self._demands) + 1)
        return found

    def _there(self, name: NodeId) -> Demand:
        """A node that must exist at this step."""
        demand = self._demand(name)
        if demand.created is None:
            demand.present = True
        return demand

    def _create(self, step: Create, position: int) -> None:
        vector = self._vectors
        self._vectors += 1
        if step.kind is NodeKind.ROOT or (step.kind is NodeKind.LEAF) != (step.item is not None):
            raise ValueError(f"node {step.id}: a leaf has an item, a summary has none, and the root is not made by a step")
        _check_depth(step.id, step.depth)
        check_attributes(step.attributes)
        if step.above is not None and step.kind is not NodeKind.SUMMARY:
            raise ValueError(f"node {step.id}: only a summary is put above another")
        if "\0" in step.parent:
            raise ValueError(f"node {step.id}: the parent's id has a zero byte")
        demand = self._demand(step.id)
        if demand.created is not None or demand.present:
            self._contradictions.append(demand.number)
            return
        parent = self._there(step.parent)
        parent.routing += 1
        self._guarded.add(parent.number)
        demand.created, demand.position, demand.parent, demand.vector = step, position, parent.number, vector
        demand.version, demand.depth = 1, step.depth
        demand.cohesion, demand.provisional, demand.text = step.cohesion, step.provisional, step.text
        if step.above is not None:
            below = self._summary(step.above)
            demand.over = below.over if below.created is not None else below
            demand.descendants, demand.grows, demand.through = below.descendants, list(below.grows), below.through
        self._count(f"{_letter(step)}{step.depth}", 1)
        self._count("leaves" if step.kind is NodeKind.LEAF else "summaries", 1)

    def _move(self, step: Move) -> None:
        _check_depth(step.node, step.depth)
        demand, old, new = self._there(step.node), self._there(step.old_parent), self._there(step.parent)
        if not self._lies_below(demand, old):
            return
        if demand.created is None:
            self._moved.setdefault(demand.number, old.number)
        else:
            self._count(f"{_letter(demand.created)}{demand.depth}", -1)
            self._count(f"{_letter(demand.created)}{step.depth}", 1)
        for parent in (old, new):
            parent.routing += 1
            self._guarded.add(parent.number)
        demand.parent, demand.depth = new.number, step.depth

    def _grow(self, step: Grow, position: int) -> None:
        if len(set(step.nodes)) != len(step.nodes):
            raise ValueError(f"growth by {step.leaf}: the nodes must be summaries, each named once")
        self._grows.append((position, self._there(step.leaf).number))
        for node in step.nodes:
            demand = self._summary(node)
            demand.descendants += 1
            demand.grows += [len(self._grows), 0]

    def _rewrite(self, step: Rewrite) -> None:
        vector = self._vectors
        self._vectors += 1
        demand, parent = self._summary(step.node), self._there(step.parent)
        if not self._lies_below(demand, parent):
            return
        parent.routing += 1
        demand.version += 1
        demand.vector, demand.text = vector, step.text
        demand.cohesion, demand.provisional = step.cohesion, step.provisional
        through = min(step.through, MARK_MAX)
        demand.through = max(demand.through, through)
        for index in range(1, len(demand.grows), 2):
            demand.grows[index] = max(demand.grows[index], through)
        for field_, change in (
            ("rewrites", 1),
            ("calls", step.cost.calls),
            ("tokens_in", step.cost.tokens_in),
            ("tokens_out", step.cost.tokens_out),
        ):
            self._count(field_, change)

    def _annotate(self, step: Annotate) -> None:
        check_attributes(step.attributes)
        if step.node == ROOT:
            raise ValueError("the root has no attributes")
        demand = self._there(step.node)
        demand.version += 1
        if step.attributes:
            self._annotated.append((demand.number, step.attributes))

    def _link(self, step: Link, position: int) -> None:
        check_link(step)
        for node in (step.node, *step.others):
            self._there(node)
        if step.others:
            self._links.append((position, step))

    def _summary(self, name: NodeId) -> Demand:
        demand = self._there(name)
        if name == ROOT or (demand.created is not None and demand.created.kind is not NodeKind.SUMMARY):
            raise ValueError(f"node {name}: only a summary grows or is rewritten")
        demand.summary = True
        return demand

    def _lies_below(self, demand: Demand, parent: Demand) -> bool:
        if demand.parent is None:
            demand.parent = demand.required = parent.number
        if demand.parent != parent.number:
            self._contradictions.append(demand.number)
            return False
        return True

    def _count(self, name: str, change: int) -> None:
        self._counts[name] = self._counts.get(name, 0) + change

    # ----------------------------------------------------------------------------------------------------------- request

    def _key(self, key: str) -> int:
        return self._keys.setdefault(key, len(self._keys) + 1)

    def _request(self, vectors: list[bytes], expects: list[int], leaves: int, dimension: int) -> Request:
        names = list(self._demands)
        keys = self._tree_keys
        events = self._changes.events
        new: list[list[Any]] = []
        changed: list[list[Any]] = []
        leaving: list[tuple[int, int]] = []
        coming: dict[int, list[int]] = {}
        grown: list[tuple[int, int, int, list[int]]] = []
        over: list[tuple[int, int, int, int]] = []
        for name, demand in self._demands.items():
            number, made = demand.number, demand.created
            content = None
            if demand.vector >= 0:
                item = None if made is None or made.item is None else encode_item(made.item, demand.text)
                content = for_lua(vectors[demand.vector] + encode_content(demand.text, item))
            moved = number in self._moved
            if made is not None:
                new.append(_new_row(demand, made, content))
            elif demand.routing or demand.version or demand.descendants or moved:
                row = [
                    number,
                    demand.routing,
                    demand.version,
                    demand.descendants,
                    *((demand.parent, demand.depth) if moved else (0, 0)),
                ]
                changed.append([*row, *((demand.cohesion, int(demand.provisional), content) if content is not None else (False,))])
            if moved:
                leaving.append((self._key(keys.children(names[self._moved[number] - 1])), number))
            if made is not None or moved:
                assert demand.parent is not None
                coming.setdefault(self._key(keys.children(names[demand.parent - 1])), []).append(number)
            if demand.grows or demand.through or moved:
                grown.append((number, self._key(keys.contributions(name)), demand.through, demand.grows))
            if demand.over is not None:
                other = names[demand.over.number - 1]
                over.append((number, demand.over.number, self._key(keys.contributions(other)), self._key(keys.contributions(name))))
        if events:
            self._count("events", len(events))
        new.sort(key=lambda row: int(row[9]))  # nodes are kept in the order of their steps
        return Request(
            dimension=dimension,
            leaves=leaves,
            events=[event.id for event in events],
            receipts=[for_lua(encode_receipt(event.digest, event.leaves)) for event in events],
            expects=expects,
            contradictions=self._contradictions,
            present=[demand.number for demand in self._demands.values() if demand.present],
            parents=[
                number
                for demand in self._demands.values()
                if demand.required is not None and demand.created is None
                for number in (demand.number, demand.required)
            ],
            summaries=[demand.number for demand in self._demands.values() if demand.summary and demand.created is None],
            guarded=[
                demand.number for demand in self._demands.values() if demand.created is None and demand.number in self._guarded
            ],
            new=new,
            over=over,
            annotated=self._annotated,
            links=[(self._key(keys.links), position, for_lua(encode_link(link))) for position, link in self._links],
            changed=changed,
            leaving=leaving,
            coming=list(coming.items()),
            grows=self._grows,
            grown=grown,
            counts=[part for pair in self._counts.items() if pair[1] for part in pair],
        )


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


def _letter(made: Create) -> str:
    return "l" if made.kind is NodeKind.LEAF else "s"


def _check_depth(node: NodeId, depth: int) -> None:
    if not 0 < depth <= DEPTH_MAX:
        raise ValueError(f"node {node}: the depth is 1 to {DEPTH_MAX}, got {depth}")
