"""
How the steps of commits become bytes in every store's change log, and back.

A step is an array of its fields with a number for its kind. A store says how it names nodes in it, `N`: by their ids, or by their
places in a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, Generic, TypeVar

import msgspec

from memory.adapters.codec import KIND_NUMBER, KINDS, decode_rows
from memory.model import Mark, NodeId, NodeKind
from memory.ports.store import Annotate, Cost, Create, Grow, Link, Move, Recall, Remove, Rewrite, Shrink, Step

N = TypeVar("N", str, int)


class LoggedCreate(msgspec.Struct, Generic[N], array_like=True, tag=0, gc=False):
    """`Create` without text and item, and without the vector where it is a leaf's: that never changes and is read from its node."""

    node: N
    parent: N
    kind: int
    depth: int
    vector: bytes
    cohesion: float
    provisional: bool
    attributes: dict[str, str | float] | None = None
    above: N | None = None
    """Empty or 0 where there is none."""


class LoggedMove(msgspec.Struct, Generic[N], array_like=True, tag=1, gc=False):
    """`Move`."""

    node: N
    old_parent: N
    parent: N
    depth: int


class LoggedGrow(msgspec.Struct, Generic[N], array_like=True, tag=2, gc=False):
    """`Grow`."""

    leaf: N
    nodes: tuple[N, ...]


class LoggedRewrite(msgspec.Struct, Generic[N], array_like=True, tag=3, gc=False):
    """`Rewrite` without its text."""

    node: N
    parent: N
    vector: bytes
    cohesion: float
    through: int
    provisional: bool
    calls: int
    tokens_in: int
    tokens_out: int


class LoggedAnnotate(msgspec.Struct, Generic[N], array_like=True, tag=4, gc=False):
    """`Annotate`."""

    node: N
    attributes: dict[str, str | float]


class LoggedLink(msgspec.Struct, Generic[N], array_like=True, tag=5, gc=False):
    """`Link`."""

    node: N
    others: tuple[N, ...]
    weights: tuple[float, ...]


class LoggedShrink(msgspec.Struct, Generic[N], array_like=True, tag=6, gc=False):
    """`Shrink`."""

    leaf: N
    nodes: tuple[N, ...]


class LoggedRemove(msgspec.Struct, Generic[N], array_like=True, tag=7, gc=False):
    """`Remove`."""

    node: N
    parent: N


class LoggedRecall(msgspec.Struct, Generic[N], array_like=True, tag=8, gc=False):
    """`Recall`."""

    leaf: N
    nodes: tuple[N, ...]


LoggedStep = (
    LoggedCreate[N]
    | LoggedMove[N]
    | LoggedGrow[N]
    | LoggedRewrite[N]
    | LoggedAnnotate[N]
    | LoggedLink[N]
    | LoggedShrink[N]
    | LoggedRemove[N]
    | LoggedRecall[N]
)


def logged(steps: Sequence[Step], vectors: Sequence[bytes], name: Callable[[NodeId], N], *, none: N) -> list[LoggedStep[N]]:
    """
    Steps as logged.

    Args:
        steps: of a commit.
        vectors: the stored vectors of its `Create` and `Rewrite` steps, in order.
        name: how the store names a node.
        none: what it says for no node.
    """
    following = iter(vectors)
    return [_logged(step, following, name, none) for step in steps]


def _logged(step: Step, vectors: Iterator[bytes], name: Callable[[NodeId], N], none: N) -> LoggedStep[N]:  # noqa: PLR0911  # one a kind of step
    match step:
        case Create():
            vector = next(vectors)
            return LoggedCreate(
                node=name(step.id),
                parent=name(step.parent),
                kind=KIND_NUMBER[step.kind],
                depth=step.depth,
                vector=b"" if step.kind is NodeKind.LEAF else vector,
                cohesion=step.cohesion,
                provisional=step.provisional,
                attributes=dict(step.attributes) or None,
                above=none if step.above is None else name(step.above),
            )
        case Rewrite(cost=cost):
            return LoggedRewrite(
                node=name(step.node),
                parent=name(step.parent),
                vector=next(vectors),
                cohesion=step.cohesion,
                through=step.through,
                provisional=step.provisional,
                calls=cost.calls,
                tokens_in=cost.tokens_in,
                tokens_out=cost.tokens_out,
            )
        case Move():
            return LoggedMove(name(step.node), name(step.old_parent), name(step.parent), step.depth)
        case Annotate():
            return LoggedAnnotate(name(step.node), dict(step.attributes))
        case Link():
            return LoggedLink(name(step.node), tuple(map(name, step.others)), step.weights)
        case Remove():
            return LoggedRemove(name(step.node), name(step.parent))
        case Grow():
            return LoggedGrow(name(step.leaf), tuple(map(name, step.nodes)))
        case Shrink():
            return LoggedShrink(name(step.leaf), tuple(map(name, step.nodes)))
        case Recall():
            return LoggedRecall(name(step.leaf), tuple(map(name, step.nodes)))


def without_vector(steps: Sequence[LoggedStep[N]]) -> int:
    """Leaves that the steps made: their vectors are not logged."""
    return sum(1 for step in steps if isinstance(step, LoggedCreate) and not step.vector)


def steps_of(steps: Sequence[LoggedStep[N]], leaves: Iterator[bytes], node: Callable[[N], NodeId]) -> tuple[Step, ...]:
    """
    The domain's steps.

    Args:
        steps: as logged.
        leaves: the stored vectors of the leaves that they made, in order.
        node: whom a name stands for.
    """
    packed = [step.vector or next(leaves) for step in steps if isinstance(step, LoggedCreate | LoggedRewrite)]
    rows = iter(decode_rows(packed))
    return tuple([_step(step, node, rows) for step in steps])


def _step(step: LoggedStep[N], node: Callable[[N], NodeId], rows: Iterator[Any]) -> Step:  # noqa: PLR0911  # one a kind of step
    match step:
        case LoggedCreate():
            return Create(
                id=node(step.node),
                parent=node(step.parent),
                kind=KINDS[step.kind],
                depth=step.depth,
                vector=next(rows),
                cohesion=step.cohesion,
                provisional=step.provisional,
                attributes=step.attributes or {},
                above=node(step.above) if step.above else None,
            )
        case LoggedMove():
            return Move(node=node(step.node), old_parent=node(step.old_parent), parent=node(step.parent), depth=step.depth)
        case LoggedGrow():
            return Grow(leaf=node(step.leaf), nodes=tuple(map(node, step.nodes)))
        case LoggedRewrite():
            return Rewrite(
                node=node(step.node),
                parent=node(step.parent),
                vector=next(rows),
                cohesion=step.cohesion,
                through=Mark(step.through),
                provisional=step.provisional,
                cost=Cost(calls=step.calls, tokens_in=step.tokens_in, tokens_out=step.tokens_out),
            )
        case LoggedAnnotate():
            return Annotate(node=node(step.node), attributes=step.attributes)
        case LoggedLink():
            return Link(node=node(step.node), others=tuple(map(node, step.others)), weights=step.weights)
        case LoggedShrink():
            return Shrink(leaf=node(step.leaf), nodes=tuple(map(node, step.nodes)))
        case LoggedRemove():
            return Remove(node=node(step.node), parent=node(step.parent))
        case LoggedRecall():
            return Recall(leaf=node(step.leaf), nodes=tuple(map(node, step.nodes)))


def redact(steps: Sequence[LoggedStep[N]], nodes: Set[N]) -> bool:
    """Take the vectors and attributes of some nodes out; whether there were any."""
    changed = False
    for step in steps:
        match step:
            case LoggedCreate() if step.node in nodes:
                changed = changed or any(step.vector) or bool(step.attributes)
                step.vector, step.attributes = bytes(len(step.vector)), None
            case LoggedRewrite() if step.node in nodes:
                changed = changed or any(step.vector)
                step.vector = bytes(len(step.vector))
            case LoggedAnnotate() if step.node in nodes:
                changed = changed or bool(step.attributes)
                step.attributes = {}
            case _:
                pass
    return changed
