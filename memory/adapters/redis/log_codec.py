"""How entries of the change log become bytes in Redis and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime

import msgspec

from memory.adapters.codec import STORED
from memory.adapters.log_codec import (
    LoggedCreate,
    LoggedRemove,
    LoggedRewrite,
    LoggedStep,
    logged,
    redact,
    steps_of,
    without_vector,
)
from memory.adapters.redis.codec import encode
from memory.errors import StoreDamagedError
from memory.model import ROOT, EventId, NodeId
from memory.ports.store import ChangeSet, LogEntry


class LoggedCommit(msgspec.Struct, array_like=True):
    """The body of a log entry."""

    at: datetime
    events: list[str]
    steps: list[LoggedStep[int]]
    """Nodes by their place in the entry's names, from 1."""
    forgets: list[str] = []


class LoggedTime(msgspec.Struct, array_like=True):
    """The beginning of a body."""

    at: datetime


_commits = msgspec.msgpack.Decoder(LoggedCommit)
_times = msgspec.msgpack.Decoder(LoggedTime)
_names = msgspec.msgpack.Decoder(list[str])


def encode_commit(changes: ChangeSet, vectors: Sequence[bytes], numbers: Mapping[NodeId, int]) -> bytes:
    """
    The body of a log entry.

    Args:
        changes: the commit.
        vectors: the stored vectors of its `Create` and `Rewrite` steps, in order.
        numbers: places of the named nodes in the entry's names, from 1.
    """
    steps = logged(changes.steps, vectors, numbers.__getitem__, none=0)
    return encode(LoggedCommit(changes.at, [event.id for event in changes.events], steps, list(changes.forgets)))


def decode_time(body: bytes) -> datetime:
    """When a commit was made."""
    return _times.decode(body).at


def decode_touched(names: bytes, body: bytes) -> tuple[datetime, list[NodeId], list[NodeId]]:
    """When a commit was made, the nodes that it made or rewrote, and those that it removed."""
    nodes, commit = _names.decode(names), _commits.decode(body)
    written = [NodeId(nodes[one.node - 1]) for one in commit.steps if isinstance(one, LoggedCreate | LoggedRewrite)]
    return commit.at, written, [NodeId(nodes[one.node - 1]) for one in commit.steps if isinstance(one, LoggedRemove)]


def redacted(names: bytes, body: bytes, nodes: Set[str]) -> bytes | None:
    """A body without the vectors and attributes of these nodes; None when it has none of them."""
    numbers = {number for number, name in enumerate(_names.decode(names), 1) if name in nodes}
    commit = _commits.decode(body)
    return encode(commit) if redact(commit.steps, numbers) else None


def decode_entry(seq: bytes, names: bytes, body: bytes, leaves: bytes, dimension: int) -> LogEntry:
    """
    A log entry.

    Args:
        seq: the commit.
        names: as stored.
        body: as stored.
        leaves: the stored vectors of the leaves it made, one after the other; zeros for those that were removed since.
        dimension: of the vectors.
    """
    nodes = [ROOT, *map(NodeId, _names.decode(names))]  # counted from 1
    commit = _commits.decode(body)
    size = dimension * STORED.itemsize
    if len(leaves) != size * without_vector(commit.steps):
        raise StoreDamagedError(f"commit {int(seq)}: a leaf it made is gone")
    made = (leaves[start : start + size] for start in range(0, len(leaves), size))
    return LogEntry(
        seq=int(seq),
        at=commit.at,
        steps=steps_of(commit.steps, made, nodes.__getitem__),
        events=tuple(map(EventId, commit.events)),
        forgets=tuple(map(EventId, commit.forgets)),
    )
