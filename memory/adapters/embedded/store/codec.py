"""How values become bytes in the store and back: items, log entries, vectors, counters."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER
from memory.adapters.log_codec import LoggedCreate, LoggedLink, LoggedStep, logged, redact, steps_of
from memory.model import EventId, NodeId, NodeKind
from memory.ports.store import ChangeSet, Link, LogEntry

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


class StoredEntry(msgspec.Struct, array_like=True):
    """One commit in the log."""

    at: datetime
    first: int
    """Key of the first node made; the others follow in order of their steps."""
    steps: list[LoggedStep[str]]
    events: list[str]
    forgets: list[str] = []


_name: Callable[[NodeId], str] = str
_node: Callable[[str], NodeId] = str  # type: ignore[assignment]  # a NodeId is a str
_encoder = msgspec.msgpack.Encoder()
_entries = msgspec.msgpack.Decoder(StoredEntry)
_tallies = msgspec.msgpack.Decoder(Tally)
_names = msgspec.msgpack.Decoder(tuple[str, ...])
_attributes = msgspec.msgpack.Decoder(dict[str, str | float])
_links = msgspec.msgpack.Decoder(LoggedLink[str])
_parameters = msgspec.msgpack.Decoder(dict[str, float])
encode: Callable[[Any], bytes] = _encoder.encode
decode_tally: Callable[[bytes], Tally] = _tallies.decode
decode_names: Callable[[bytes], tuple[str, ...]] = _names.decode
decode_attributes: Callable[[bytes], dict[str, str | float]] = _attributes.decode
decode_parameters: Callable[[bytes], dict[str, float]] = _parameters.decode


def encode_link(link: Link) -> bytes:
    """Edges as stored."""
    return encode(LoggedLink[str](link.node, link.others, link.weights))


def decode_link(data: bytes) -> Link:
    """Edges."""
    stored = _links.decode(data)
    return Link(node=NodeId(stored.node), others=tuple(map(NodeId, stored.others)), weights=stored.weights)


def without(link: Link, nodes: Set[NodeId]) -> Link | None:
    """The edges that do not end at one of these nodes; None when there are none left."""
    if link.node in nodes:
        return None
    kept = [place for place, other in enumerate(link.others) if other not in nodes]
    if len(kept) == len(link.others):
        return link
    weights = tuple(link.weights[place] for place in kept) if link.weights else ()
    return Link(node=link.node, others=tuple(link.others[place] for place in kept), weights=weights) if kept else None


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
    stored = logged(changes.steps, vectors, _name, none="")
    events = [str(event.id) for event in changes.events]
    return encode(StoredEntry(at=changes.at, first=first, steps=stored, events=events, forgets=list(changes.forgets)))


def decode_entry(data: bytes) -> StoredEntry:
    """A stored log entry; `log_entry` makes the domain's of it."""
    return _entries.decode(data)


def leaf_keys(entry: StoredEntry) -> list[int]:
    """Keys of the leaves that the entry made, in order."""
    made = (step for step in entry.steps if isinstance(step, LoggedCreate))
    return [entry.first + index for index, step in enumerate(made) if step.kind == KIND_NUMBER[NodeKind.LEAF]]


def log_entry(seq: int, entry: StoredEntry, leaves: Sequence[bytes]) -> LogEntry:
    """
    The domain's log entry.

    Args:
        seq: the commit.
        entry: as stored.
        leaves: the stored vectors of the leaves it made, in order.
    """
    return LogEntry(
        seq=seq,
        at=entry.at,
        steps=steps_of(entry.steps, iter(leaves), _node),
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
    return encode(entry) if redact(entry.steps, nodes) else None
