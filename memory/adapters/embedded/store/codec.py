"""How values become bytes in the store and back: items, log entries, vectors, counters."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.model import EventId, Item, NodeId, NodeKind, Vector
from memory.ports.store import Cost, Create, Grow, LogEntry, Move, Rewrite, Step

STORED = np.dtype("<f2")
"""Vectors are kept as little-endian float16."""

KINDS = (NodeKind.ROOT, NodeKind.SUMMARY, NodeKind.LEAF)
KIND_NUMBER = {kind: number for number, kind in enumerate(KINDS)}


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


class StoredItem(msgspec.Struct, array_like=True, gc=False):
    """An item; its text only where it differs from the node's."""

    event_id: str
    text: str | None
    chunk: int
    chunks: int
    conversation: str | None
    speaker: str | None
    source: str | None
    url: str | None
    title: str | None
    at: datetime | None
    metadata: bytes | None
    """JSON: msgpack has no integers beyond 64 bits, and callers' records may."""


class StoredCreate(msgspec.Struct, array_like=True, tag=0, gc=False):
    """`Create` without text and item, and without the vector where it is a leaf's: that never changes and is read from its node."""

    id: str
    parent: str
    kind: int
    depth: int
    vector: bytes
    cohesion: float
    provisional: bool


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


StoredStep = StoredCreate | StoredMove | StoredGrow | StoredRewrite


class StoredEntry(msgspec.Struct, array_like=True):
    """One commit in the log."""

    at: datetime
    first: int
    """Key of the first node made; the others follow in order of their steps."""
    steps: list[StoredStep]
    events: list[str]


_encoder = msgspec.msgpack.Encoder()
_entries = msgspec.msgpack.Decoder(StoredEntry)
_items = msgspec.msgpack.Decoder(StoredItem)
_tallies = msgspec.msgpack.Decoder(Tally)
_names = msgspec.msgpack.Decoder(tuple[str, ...])
_parameters = msgspec.msgpack.Decoder(dict[str, float])
encode: Callable[[Any], bytes] = _encoder.encode
decode_tally: Callable[[bytes], Tally] = _tallies.decode
decode_names: Callable[[bytes], tuple[str, ...]] = _names.decode
decode_parameters: Callable[[bytes], dict[str, float]] = _parameters.decode


def encode_vectors(vectors: Sequence[Vector], dimension: int) -> list[bytes]:
    """
    Vectors as stored.

    Args:
        vectors: each (dimension,) float32, finite, representable in float16.
        dimension: what the tree's model gives.

    Raises:
        ValueError: another shape, or a component that is not finite in float16.
    """
    if not vectors:
        return []
    if any(vector.shape != (dimension,) for vector in vectors):
        shapes = sorted({vector.shape for vector in vectors})
        raise ValueError(f"vectors must have the shape ({dimension},), got {shapes}")
    with np.errstate(over="ignore"):
        block = np.stack(vectors).astype(STORED)
    if not np.isfinite(block).all():
        raise ValueError("vectors must be finite")
    data, size = block.tobytes(), dimension * STORED.itemsize
    return [data[start : start + size] for start in range(0, len(data), size)]


def decode_vector(data: bytes) -> Vector:
    """(d,) float32 of its stored bytes."""
    return np.frombuffer(data, STORED).astype(np.float32)


def pack_contributions(contributions: Iterable[tuple[int, int]]) -> bytes:
    """Contributions as stored: marks and leaves' numbers, oldest first."""
    pack = CONTRIBUTION.pack
    return b"".join([pack(at, leaf) for at, leaf in contributions])


def unpack_contributions(data: bytes) -> list[tuple[int, int]]:
    """Marks and leaves' numbers, oldest first."""
    return list(CONTRIBUTION.iter_unpack(data))


def encode_item(item: Item, text: str) -> bytes:
    """An item of a node whose text is `text`."""
    return encode(
        StoredItem(
            event_id=item.event_id,
            text=None if item.text == text else item.text,
            chunk=item.chunk,
            chunks=item.chunks,
            conversation=item.conversation,
            speaker=item.speaker,
            source=item.source,
            url=item.url,
            title=item.title,
            at=item.at,
            metadata=json.dumps(dict(item.metadata)).encode() if item.metadata else None,
        )
    )


def decode_item(data: bytes, text: str) -> Item:
    """The item of a node whose text is `text`."""
    stored = _items.decode(data)
    return Item(
        event_id=EventId(stored.event_id),
        text=text if stored.text is None else stored.text,
        chunk=stored.chunk,
        chunks=stored.chunks,
        conversation=stored.conversation,
        speaker=stored.speaker,
        source=stored.source,
        url=stored.url,
        title=stored.title,
        at=stored.at,
        metadata=json.loads(stored.metadata) if stored.metadata else {},
    )


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
    rows = iter(_decode_rows(packed))
    return LogEntry(
        seq=seq,
        at=entry.at,
        steps=tuple(_step(stored, rows) for stored in entry.steps),
        events=tuple(map(EventId, entry.events)),
    )


def _decode_rows(packed: Sequence[bytes]) -> NDArray[np.float32]:
    """(n, d) float32: one conversion a commit."""
    return (
        np.frombuffer(b"".join(packed), STORED).astype(np.float32).reshape(len(packed), -1)
        if packed
        else np.empty((0, 0), np.float32)
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
