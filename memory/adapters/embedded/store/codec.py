"""How values become bytes in the store and back: items, log entries, vectors, counters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, KINDS, decode_rows
from memory.model import EventId, NodeId, NodeKind
from memory.ports.store import (
    Annotate,
    ChangeSet,
    Cost,
    Create,
    Grow,
    Link,
    LogEntry,
    Move,
    Recall,
    Remove,
    Rewrite,
    Shrink,
    Step,
)

CONTRIBUTION = struct.Struct("<QI")
"""One packed contribution: its mark, and the leaf's number in its tree."""


class Tally(msgspec.Struct, array_like=True):
    """Counters of a tree, kept with each commit so that `stats` reads one row."""

    leaves: int = 0
    summaries: int = 0
    events: int = 0
    pending: int = 0
    dirty: int = 0
    rewrites: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    summary_depths: dict[int, int] = {}
    leaf_depths: dict[int, int] = {}
    floor: int = 0
    redacted: int = 0

    def count(self, kind: int, depth: int, change: int) -> None:
        """So many nodes more of a kind at a depth."""
        depths = self.leaf_depths if kind == KIND_NUMBER[NodeKind.LEAF] else self.summary_depths
        depths[depth] = depths.get(depth, 0) + change
        if not depths[depth]:
            del depths[depth]


class StoredCreate(msgspec.Struct, array_like=True, tag=0, gc=False):
    """`Create` without text and item, and without the vector where it is a leaf's: that never changes and is read from its node."""

    id: str
    parent: str
    kind: int
    depth: int
    vector: bytes
    cohesion: float
    provisional: bool
    attributes: dict[str, str | float] | None = None
    above: str = ""


class StoredMove(msgspec.Struct, array_like=True, tag=1, gc=False):
    """`Move`."""

    node: str
    old_parent: str
    parent: str
    depth: int


class StoredGrow(msgspec.Struct, array_like=True, tag=2, gc=False):
    """`Grow`."""

    leaf: str
    nodes: tuple[str, ...]


class StoredRewrite(msgspec.Struct, array_like=True, tag=3, gc=False):
    """`Rewrite` without its text."""

    node: str
    parent: str
    vector: bytes
    cohesion: float
    through: int
    provisional: bool
    calls: int
    tokens_in: int
    tokens_out: int


class StoredAnnotate(msgspec.Struct, array_like=True, tag=4, gc=False):
    """`Annotate`."""

    node: str
    attributes: dict[str, str | float]


class StoredLink(msgspec.Struct, array_like=True, tag=5, gc=False):
    """`Link`."""

    node: str
    others: tuple[str, ...]
    weights: tuple[float, ...]


class StoredShrink(msgspec.Struct, array_like=True, tag=6, gc=False):
    """`Shrink`."""

    leaf: str
    nodes: tuple[str, ...]


class StoredRemove(msgspec.Struct, array_like=True, tag=7, gc=False):
    """`Remove`."""

    node: str
    parent: str


class StoredRecall(msgspec.Struct, array_like=True, tag=8, gc=False):
    """`Recall`."""

    leaf: str
    nodes: tuple[str, ...]


StoredStep = (
    StoredCreate
    | StoredMove
    | StoredGrow
    | StoredRewrite
    | StoredAnnotate
    | StoredLink
    | StoredShrink
    | StoredRemove
    | StoredRecall
)


class StoredEntry(msgspec.Struct, array_like=True):
    """One commit in the log."""

    at: datetime
    first: int
    """Key of the first node made; the others follow in order of their steps."""
    steps: list[StoredStep]
    events: list[str]
    forgets: list[str] = []


_encoder = msgspec.msgpack.Encoder()
_entries = msgspec.msgpack.Decoder(StoredEntry)
_tallies = msgspec.msgpack.Decoder(Tally)
_names = msgspec.msgpack.Decoder(tuple[str, ...])
_attributes = msgspec.msgpack.Decoder(dict[str, str | float])
_links = msgspec.msgpack.Decoder(StoredLink)
_parameters = msgspec.msgpack.Decoder(dict[str, float])
encode: Callable[[Any], bytes] = _encoder.encode
decode_tally: Callable[[bytes], Tally] = _tallies.decode
decode_names: Callable[[bytes], tuple[str, ...]] = _names.decode
decode_attributes: Callable[[bytes], dict[str, str | float]] = _attributes.decode
decode_parameters: Callable[[bytes], dict[str, float]] = _parameters.decode


def encode_link(link: Link) -> bytes:
    """Edges as stored."""
    return encode(StoredLink(link.node, link.others, link.weights))


def decode_link(data: bytes) -> Link:
    """Edges."""
    return _link(_links.decode(data))


def without(link: Link, nodes: Set[NodeId]) -> Link | None:
    """The edges that do not end at one of these nodes; None when there are none left."""
    if link.node in nodes:
        return None
    kept = [place for place, other in enumerate(link.others) if other not in nodes]
    if len(kept) == len(link.others):
        return link
    weights = tuple(link.weights[place] for place in kept) if link.weights else ()
    return Link(node=link.node, others=tuple(link.others[place] for place in kept), weights=weights) if kept else None


def _link(stored: StoredLink) -> Link:
    return Link(node=NodeId(stored.node), others=stored.others, weights=stored.weights)  # type: ignore[arg-type]  # NodeId is a str


def pack_contributions(contributions: Iterable[tuple[int, int]]) -> bytes:
    """Contributions as stored: marks and leaves' numbers, oldest first."""
    pack = CONTRIBUTION.pack
    return b"".join([pack(at, leaf) for at, leaf in contributions])


def unpack_contributions(data: bytes) -> list[tuple[int, int]]:
    """Marks and leaves' numbers, oldest first."""
    return list(CONTRIBUTION.iter_unpack(data))


def encode_entry(changes: ChangeSet, vectors: Sequence[bytes], *, first: int) -> bytes:
    """
    A log entry.

    Args:
        changes: the commit.
        vectors: the stored vectors of its `Create` and `Rewrite` steps, in order.
        first: key of the first node made.
    """
    following = iter(vectors)
    stored: list[StoredStep] = []
    for step in changes.steps:
        match step:
            case Create():
                vector = next(following)
                stored.append(
                    StoredCreate(
                        id=step.id,
                        parent=step.parent,
                        kind=KIND_NUMBER[step.kind],
                        depth=step.depth,
                        vector=b"" if step.kind is NodeKind.LEAF else vector,
                        cohesion=step.cohesion,
                        provisional=step.provisional,
                        attributes=dict(step.attributes) or None,
                        above=step.above or "",
                    )
                )
            case Move():
                stored.append(StoredMove(step.node, step.old_parent, step.parent, step.depth))
            case Grow():
                stored.append(StoredGrow(step.leaf, step.nodes))
            case Rewrite():
                stored.append(
                    StoredRewrite(
                        node=step.node,
                        parent=step.parent,
                        vector=next(following),
                        cohesion=step.cohesion,
                        through=step.through,
                        provisional=step.provisional,
                        calls=step.cost.calls,
                        tokens_in=step.cost.tokens_in,
                        tokens_out=step.cost.tokens_out,
                    )
                )
            case Annotate():
                stored.append(StoredAnnotate(step.node, dict(step.attributes)))
            case Link():
                stored.append(StoredLink(step.node, step.others, step.weights))
            case Remove():
                stored.append(StoredRemove(step.node, step.parent))
            case Shrink() | Recall():
                stored.append((StoredShrink if isinstance(step, Shrink) else StoredRecall)(step.leaf, step.nodes))
    events = [str(event.id) for event in changes.events]
    return encode(StoredEntry(at=changes.at, first=first, steps=stored, events=events, forgets=list(changes.forgets)))


def decode_entry(data: bytes) -> StoredEntry:
    """A stored log entry; `log_entry` makes the domain's of it."""
    return _entries.decode(data)


def leaf_keys(entry: StoredEntry) -> list[int]:
    """Keys of the leaves that the entry made, in order."""
    made = (step for step in entry.steps if isinstance(step, StoredCreate))
    return [entry.first + index for index, step in enumerate(made) if step.kind == KIND_NUMBER[NodeKind.LEAF]]


def log_entry(seq: int, entry: StoredEntry, leaves: Sequence[bytes]) -> LogEntry:
    """
    The domain's log entry.

    Args:
        seq: the commit.
        entry: as stored.
        leaves: the stored vectors of the leaves it made, in order.
    """
    following = iter(leaves)
    packed = [stored.vector or next(following) for stored in entry.steps if isinstance(stored, StoredCreate | StoredRewrite)]
    rows = iter(decode_rows(packed))
    return LogEntry(
        seq=seq,
        at=entry.at,
        steps=tuple(_step(stored, rows) for stored in entry.steps),
        events=tuple(map(EventId, entry.events)),
        forgets=tuple(map(EventId, entry.forgets)),
    )


FEW = 16
"""Nodes that are looked for in an entry's bytes before it is taken apart."""


def redacted(data: bytes, nodes: Set[str]) -> bytes | None:
    """A stored log entry without the vectors and attributes of these nodes; None when it has none of them."""
    if len(nodes) <= FEW and not any(node.encode() in data for node in nodes):
        return None
    entry = decode_entry(data)
    changed = False
    for step in entry.steps:
        match step:
            case StoredCreate() if step.id in nodes:
                changed = changed or any(step.vector) or bool(step.attributes)
                step.vector, step.attributes = bytes(len(step.vector)), None
            case StoredRewrite() if step.node in nodes:
                changed = changed or any(step.vector)
                step.vector = bytes(len(step.vector))
            case StoredAnnotate() if step.node in nodes:
                changed = changed or bool(step.attributes)
                step.attributes = {}
            case _:
                pass
    return encode(entry) if changed else None


def _step(stored: StoredStep, rows: Any) -> Step:  # noqa: PLR0911  # one a kind of step
    match stored:
        case StoredCreate():
            return Create(
                id=NodeId(stored.id),
                parent=NodeId(stored.parent),
                kind=KINDS[stored.kind],
                depth=stored.depth,
                vector=next(rows),
                cohesion=stored.cohesion,
                provisional=stored.provisional,
                attributes=stored.attributes or {},
                above=NodeId(stored.above) if stored.above else None,
            )
        case StoredMove():
            return Move(
                node=NodeId(stored.node),
                old_parent=NodeId(stored.old_parent),
                parent=NodeId(stored.parent),
                depth=stored.depth,
            )
        case StoredGrow():
            return Grow(leaf=NodeId(stored.leaf), nodes=stored.nodes)  # type: ignore[arg-type]  # NodeId is a str
        case StoredRewrite():
            return Rewrite(
                node=NodeId(stored.node),
                parent=NodeId(stored.parent),
                vector=next(rows),
                cohesion=stored.cohesion,
                through=stored.through,  # type: ignore[arg-type]  # Mark is an int
                provisional=stored.provisional,
                cost=Cost(calls=stored.calls, tokens_in=stored.tokens_in, tokens_out=stored.tokens_out),
            )
        case StoredAnnotate():
            return Annotate(node=NodeId(stored.node), attributes=stored.attributes)
        case StoredLink():
            return _link(stored)
        case StoredShrink():
            return Shrink(leaf=NodeId(stored.leaf), nodes=stored.nodes)  # type: ignore[arg-type]  # NodeId is a str
        case StoredRemove():
            return Remove(node=NodeId(stored.node), parent=NodeId(stored.parent))
        case StoredRecall():
            return Recall(leaf=NodeId(stored.leaf), nodes=stored.nodes)  # type: ignore[arg-type]  # NodeId is a str
