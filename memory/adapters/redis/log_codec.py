"""How entries of the change log become bytes in Redis and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, KINDS, STORED, decode_rows
from memory.adapters.redis.codec import encode
from memory.errors import StoreDamagedError
from memory.model import EventId, Mark, NodeId, NodeKind
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


class LoggedCreate(msgspec.Struct, array_like=True, tag=0, gc=False):
    """`Create`, nodes by their place in the entry's names; without the vector where it is a leaf's: that never changes."""

    node: int
    parent: int
    kind: int
    depth: int
    vector: bytes
    cohesion: float
    provisional: bool
    attributes: dict[str, str | float] | None = None
    above: int = 0


class LoggedMove(msgspec.Struct, array_like=True, tag=1, gc=False):
    """`Move`."""

    node: int
    old_parent: int
    parent: int
    depth: int


class LoggedGrow(msgspec.Struct, array_like=True, tag=2, gc=False):
    """`Grow`."""

    leaf: int
    nodes: tuple[int, ...]


class LoggedRewrite(msgspec.Struct, array_like=True, tag=3, gc=False):
    """`Rewrite` without its text."""

    node: int
    parent: int
    vector: bytes
    cohesion: float
    through: int
    provisional: bool
    calls: int
    tokens_in: int
    tokens_out: int


class LoggedAnnotate(msgspec.Struct, array_like=True, tag=4, gc=False):
    """`Annotate`."""

    node: int
    attributes: dict[str, str | float]


class LoggedLink(msgspec.Struct, array_like=True, tag=5, gc=False):
    """`Link`."""

    node: int
    others: tuple[int, ...]
    weights: tuple[float, ...]


class LoggedShrink(msgspec.Struct, array_like=True, tag=6, gc=False):
    """`Shrink`."""

    leaf: int
    nodes: tuple[int, ...]


class LoggedRemove(msgspec.Struct, array_like=True, tag=7, gc=False):
    """`Remove`."""

    node: int
    parent: int


class LoggedRecall(msgspec.Struct, array_like=True, tag=8, gc=False):
    """`Recall`."""

    leaf: int
    nodes: tuple[int, ...]


LoggedStep = (
    LoggedCreate
    | LoggedMove
    | LoggedGrow
    | LoggedRewrite
    | LoggedAnnotate
    | LoggedLink
    | LoggedShrink
    | LoggedRemove
    | LoggedRecall
)


class LoggedCommit(msgspec.Struct, array_like=True):
    """The body of a log entry."""

    at: datetime
    events: list[str]
    steps: list[LoggedStep]
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
    following = iter(vectors)
    logged: list[LoggedStep] = []
    for step in changes.steps:
        match step:
            case Create():
                vector = next(following)
                leaf = step.kind is NodeKind.LEAF
                logged.append(
                    LoggedCreate(
                        node=numbers[step.id],
                        parent=numbers[step.parent],
                        kind=KIND_NUMBER[step.kind],
                        depth=step.depth,
                        vector=b"" if leaf else vector,
                        cohesion=step.cohesion,
                        provisional=step.provisional,
                        attributes=dict(step.attributes) or None,
                        above=0 if step.above is None else numbers[step.above],
                    )
                )
            case Rewrite(cost=cost):
                logged.append(
                    LoggedRewrite(
                        node=numbers[step.node],
                        parent=numbers[step.parent],
                        vector=next(following),
                        cohesion=step.cohesion,
                        through=step.through,
                        provisional=step.provisional,
                        calls=cost.calls,
                        tokens_in=cost.tokens_in,
                        tokens_out=cost.tokens_out,
                    )
                )
            case _:
                logged.append(_logged(step, numbers))
    return encode(LoggedCommit(changes.at, [event.id for event in changes.events], logged, list(changes.forgets)))


def _logged(step: Move | Grow | Annotate | Link | Shrink | Remove | Recall, numbers: Mapping[NodeId, int]) -> LoggedStep:
    """A step without a vector."""
    match step:
        case Move():
            return LoggedMove(numbers[step.node], numbers[step.old_parent], numbers[step.parent], step.depth)
        case Annotate():
            return LoggedAnnotate(numbers[step.node], dict(step.attributes))
        case Link():
            return LoggedLink(numbers[step.node], tuple([numbers[node] for node in step.others]), step.weights)
        case Remove():
            return LoggedRemove(numbers[step.node], numbers[step.parent])
        case Grow():
            kind: type[LoggedGrow | LoggedShrink | LoggedRecall] = LoggedGrow
        case Shrink():
            kind = LoggedShrink
        case Recall():
            kind = LoggedRecall
    return kind(numbers[step.leaf], tuple([numbers[node] for node in step.nodes]))


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
    changed = False
    for step in commit.steps:
        match step:
            case LoggedCreate() if step.node in numbers:
                changed = changed or any(step.vector) or bool(step.attributes)
                step.vector, step.attributes = bytes(len(step.vector)), None
            case LoggedRewrite() if step.node in numbers:
                changed = changed or any(step.vector)
                step.vector = bytes(len(step.vector))
            case LoggedAnnotate() if step.node in numbers:
                changed = changed or bool(step.attributes)
                step.attributes = {}
            case _:
                pass
    return encode(commit) if changed else None


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
    nodes = [NodeId(name) for name in _names.decode(names)]
    commit = _commits.decode(body)
    size = dimension * STORED.itemsize
    if len(leaves) != size * sum(1 for one in commit.steps if isinstance(one, LoggedCreate) and not one.vector):
        raise StoreDamagedError(f"commit {int(seq)}: a leaf it made is gone")
    made = (leaves[start : start + size] for start in range(0, len(leaves), size))
    packed = [one.vector or next(made) for one in commit.steps if isinstance(one, LoggedCreate | LoggedRewrite)]
    rows = iter(decode_rows(packed))
    return LogEntry(
        seq=int(seq),
        at=commit.at,
        steps=tuple([_step(logged, nodes, rows) for logged in commit.steps]),
        events=tuple(map(EventId, commit.events)),
        forgets=tuple(map(EventId, commit.forgets)),
    )


def _step(logged: LoggedStep, nodes: Sequence[NodeId], rows: Any) -> Step:  # noqa: PLR0911  # one a kind of step
    match logged:
        case LoggedCreate():
            return Create(
                id=nodes[logged.node - 1],
                parent=nodes[logged.parent - 1],
                kind=KINDS[logged.kind],
                depth=logged.depth,
                vector=next(rows),
                cohesion=logged.cohesion,
                provisional=logged.provisional,
                attributes=logged.attributes or {},
                above=nodes[logged.above - 1] if logged.above else None,
            )
        case LoggedMove():
            return Move(
                node=nodes[logged.node - 1],
                old_parent=nodes[logged.old_parent - 1],
                parent=nodes[logged.parent - 1],
                depth=logged.depth,
            )
        case LoggedGrow():
            return Grow(leaf=nodes[logged.leaf - 1], nodes=tuple([nodes[node - 1] for node in logged.nodes]))
        case LoggedRewrite():
            return Rewrite(
                node=nodes[logged.node - 1],
                parent=nodes[logged.parent - 1],
                vector=next(rows),
                cohesion=logged.cohesion,
                through=Mark(logged.through),
                provisional=logged.provisional,
                cost=Cost(calls=logged.calls, tokens_in=logged.tokens_in, tokens_out=logged.tokens_out),
            )
        case LoggedAnnotate():
            return Annotate(node=nodes[logged.node - 1], attributes=logged.attributes)
        case LoggedLink():
            return Link(
                node=nodes[logged.node - 1], others=tuple([nodes[node - 1] for node in logged.others]), weights=logged.weights
            )
        case LoggedShrink():
            return Shrink(leaf=nodes[logged.leaf - 1], nodes=tuple([nodes[node - 1] for node in logged.nodes]))
        case LoggedRemove():
            return Remove(node=nodes[logged.node - 1], parent=nodes[logged.parent - 1])
        case LoggedRecall():
            return Recall(leaf=nodes[logged.leaf - 1], nodes=tuple([nodes[node - 1] for node in logged.nodes]))
