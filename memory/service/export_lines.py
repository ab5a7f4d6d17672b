"""The lines of an exported tree: what each has, and steps made lines and back."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Iterable
from datetime import datetime
from typing import TypeVar

import msgspec
import numpy as np

from memory.changes import (
    Annotate,
    Cost,
    Create,
    Grow,
    Link,
    Move,
    Recall,
    Remove,
    Rewrite,
    Shrink,
    Step,
)
from memory.errors import RecordError
from memory.model import EventId, Item, Mark, Node, NodeId, NodeKind, Vector

T = TypeVar("T")

FORMAT = 1
FORGOTTEN = Item(event_id=EventId("forgotten"), text="forgotten")
"""Stands for the item of a leaf that was forgotten, until the import comes to the commit that removes the leaf."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """First line of an export."""

    banyan_export: int
    """Format of the lines, 1."""
    tree: str
    structure: str
    model: str
    dimension: int
    unrelated_cosine: float
    parameters: dict[str, float]
    created_at: datetime
    seq: int
    """Commits that follow, a line each."""


class StepLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step; which fields it has depends on `op` (the class in `memory.changes`)."""

    op: str
    node: str = ""
    parent: str = ""
    old_parent: str = ""
    kind: str = ""
    depth: int = 0
    vector: str = ""
    """Base64 of little-endian float16."""
    cohesion: float = 1.0
    provisional: bool = False
    text: str = ""
    item: Item | None = None
    nodes: tuple[str, ...] = ()
    through: int = 0
    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    attributes: dict[str, str | float] = {}
    above: str = ""
    weights: tuple[float, ...] = ()


class EventLine(msgspec.Struct, frozen=True, kw_only=True):
    """One applied event."""

    id: str
    digest: str
    leaves: tuple[str, ...]


class CommitLine(msgspec.Struct, frozen=True, kw_only=True):
    """One commit."""

    seq: int
    at: datetime
    steps: tuple[StepLine, ...]
    events: tuple[EventLine, ...] = ()
    forgets: tuple[str, ...] = ()


_encode = msgspec.json.Encoder().encode
HEADER = msgspec.json.Decoder(Header)
COMMIT = msgspec.json.Decoder(CommitLine)


def line_of(value: msgspec.Struct) -> bytes:
    """A line with its end."""
    return _encode(value) + b"\n"


async def numbered_lines(lines: AsyncIterator[bytes] | Iterable[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """Lines that are not blank, with their numbers from 1."""
    number = 0
    if isinstance(lines, Iterable):
        for line in lines:
            number += 1
            if line.strip():
                yield number, line
    else:
        async for line in lines:
            number += 1
            if line.strip():
                yield number, line


def decoded(number: int, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """
    What a line holds.

    Raises:
        RecordError: it is no line of an export.
    """
    try:
        return decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError("record", f"line {number} is no line of an export: {error}") from error


def _encode_vector(vector: Vector) -> str:
    return base64.b64encode(vector.astype("<f2").tobytes()).decode()


def _decode_vector(text: str) -> Vector:
    return np.frombuffer(base64.b64decode(text, validate=True), dtype="<f2").astype(np.float32)


def node_of(step: Step) -> str:
    """What `StepLine.node` names of a step."""
    match step:
        case Create():
            return step.id
        case Grow() | Shrink() | Recall():
            return step.leaf
        case Move() | Rewrite() | Annotate() | Link() | Remove():
            return step.node


def step_line(step: Step, nodes: dict[NodeId, Node], seq: int, last: dict[NodeId, int]) -> StepLine:
    """
    A step as exported.

    Args:
        step: of commit `seq`.
        nodes: those that it makes or rewrites, as far as they are there.
        seq: the commit.
        last: of each summary the commit that wrote its present text.
    """
    match step:
        case Create():
            node = nodes.get(step.id)
            leaf = step.kind is NodeKind.LEAF
            text = node.text if node is not None and (leaf or last.get(step.id) == seq) else ""
            line = StepLine(
                op="create",
                node=step.id,
                parent=step.parent,
                kind=step.kind,
                depth=step.depth,
                vector=_encode_vector(step.vector),
                cohesion=step.cohesion,
                provisional=step.provisional,
                text=text,
                item=(node.item if node is not None else FORGOTTEN) if leaf else None,
                attributes=dict(step.attributes),
                above=step.above or "",
            )
        case Move():
            line = StepLine(op="move", node=step.node, old_parent=step.old_parent, parent=step.parent, depth=step.depth)
        case Grow() | Shrink() | Recall():
            line = StepLine(op=type(step).__name__.lower(), node=step.leaf, nodes=step.nodes)
        case Rewrite():
            node = nodes.get(step.node)
            line = StepLine(
                op="rewrite",
                node=step.node,
                parent=step.parent,
                vector=_encode_vector(step.vector),
                cohesion=step.cohesion,
                provisional=step.provisional,
                through=step.through,
                text=node.text if node is not None and last.get(step.node) == seq else "",
                calls=step.cost.calls,
                tokens_in=step.cost.tokens_in,
                tokens_out=step.cost.tokens_out,
            )
        case Annotate():
            line = StepLine(op="annotate", node=step.node, attributes=dict(step.attributes))
        case Link():
            line = StepLine(op="link", node=step.node, nodes=step.others, weights=step.weights)
        case Remove():
            line = StepLine(op="remove", node=step.node, parent=step.parent)
    return line


def step_of(line: StepLine) -> Step:
    """
    A step of an export.

    Raises:
        ValueError: it is none.
    """
    made: Step
    node, parent = NodeId(line.node), NodeId(line.parent)
    match line.op:
        case "create":
            made = Create(
                id=node,
                parent=parent,
                kind=NodeKind(line.kind),
                depth=line.depth,
                vector=_decode_vector(line.vector),
                cohesion=line.cohesion,
                provisional=line.provisional,
                text=line.text,
                item=line.item,
                attributes=line.attributes,
                above=NodeId(line.above) if line.above else None,
            )
        case "move":
            made = Move(node=node, old_parent=NodeId(line.old_parent), parent=parent, depth=line.depth)
        case "grow":
            made = Grow(leaf=node, nodes=tuple(NodeId(name) for name in line.nodes))
        case "rewrite":
            made = Rewrite(
                node=node,
                parent=parent,
                vector=_decode_vector(line.vector),
                cohesion=line.cohesion,
                through=Mark(line.through),
                provisional=line.provisional,
                text=line.text,
                cost=Cost(calls=line.calls, tokens_in=line.tokens_in, tokens_out=line.tokens_out),
            )
        case "annotate":
            made = Annotate(node=node, attributes=line.attributes)
        case "link":
            made = Link(node=node, others=tuple(NodeId(name) for name in line.nodes), weights=line.weights)
        case "shrink":
            made = Shrink(leaf=node, nodes=tuple(NodeId(name) for name in line.nodes))
        case "remove":
            made = Remove(node=node, parent=parent)
        case "recall":
            made = Recall(leaf=node, nodes=tuple(NodeId(name) for name in line.nodes))
        case other:
            raise ValueError(f"no step is called {other!r}")
    return made
