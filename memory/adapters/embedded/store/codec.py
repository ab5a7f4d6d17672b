"""How values become bytes in the store and back: items, log entries, vectors, counters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, KINDS, decode_rows
from memory.model import EventId, NodeId, NodeKind
from memory.ports.store import Annotate, Cost, Create, Grow, Link, LogEntry, Move, Rewrite, Step

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


StoredStep = StoredCreate | StoredMove | StoredGrow | StoredRewrite | StoredAnnotate | StoredLink


class StoredEntry(msgspec.Struct, array_like=True):
    """One commit in the log."""

    at: datetime
    first: int
    """Key of the first node made; the others follow in order of their steps."""
    steps: list[StoredStep]
    events: list[str]


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


def _link(stored: StoredLink) -> Link:
    return Link(node=NodeId(stored.node), others=stored.others, weights=stored.weights)  # type: ignore[arg-type]  # NodeId is a str


def pack_contributions(contributions: Iterable[tuple[int, int]]) -> bytes:
    """Contributions as stored: marks and leaves' numbers, oldest first."""
    pack = CONTRIBUTION.pack
    return b"".join([pack(at, leaf) for at, leaf in contributions])


def unpack_contributions(data: bytes) -> list[tuple[int, int]]:
    """Marks and leaves' numbers, oldest first."""
    return list(CONTRIBUTION.iter_unpack(data))


def encode_entry(steps: Sequence[Step], events: Sequence[EventId], vectors: Sequence[bytes], *, at: datetime, first: int) -> bytes:
    """
    A log entry.

    Args:
        steps: the commit's steps.
        events: the ids of its events.
        vectors: the stored vectors of its `Create` and `Rewrite` steps, in order.
        at: time of the commit.
        first: key of the first node made.
    """
    following = iter(vectors)
    stored: list[StoredStep] = []
    for step in steps:
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
    return encode(StoredEntry(at=at, first=first, steps=stored, events=list(events)))


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
    )


def _step(stored: StoredStep, rows: Any) -> Step:
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
