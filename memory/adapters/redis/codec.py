"""How rows, contents, log entries and identities become bytes in Redis and back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, KINDS, STORED, decode_item, decode_rows, decode_vector
from memory.errors import StoreDamagedError
from memory.model import ROOT, Attributes, EmbeddingModel, EventId, Mark, Node, NodeId, NodeKind, TreeId, TreeInfo
from memory.ports.store import Annotate, Cost, Create, Grow, Link, LogEntry, Move, Receipt, Rewrite, Step

ROW = struct.Struct(">BBHIIIIdd")
"""Kind, provisional, depth, version, routing, descendants, pending, mark, cohesion; the parent's id follows, then attributes if
there are any, as msgpack after a zero byte. The scripts have the same (`scripts/lib_rows.lua`)."""
NUMBER = struct.Struct(">d")
"""A whole number up to 2**53 as the scripts write it: Lua has only doubles, and the order of the bytes is the numbers'."""
MARK_MAX = (1 << 53) - 1

encode: Callable[[Any], bytes] = msgspec.msgpack.Encoder().encode


def for_lua(data: bytes) -> msgspec.Raw:
    """Bytes inside something encoded for a script: Redis's msgpack is older than the type for bytes, and takes strings as such."""
    return msgspec.Raw(b"\xdb" + len(data).to_bytes(4, "big") + data)


class StoredTree(msgspec.Struct, array_like=True):
    """What a tree is."""

    structure: str
    model: str
    dimension: int
    unrelated_cosine: float
    parameters: dict[str, float]
    created_at: datetime


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


LoggedStep = LoggedCreate | LoggedMove | LoggedGrow | LoggedRewrite | LoggedAnnotate | LoggedLink


class LoggedCommit(msgspec.Struct, array_like=True):
    """The body of a log entry."""

    at: datetime
    events: list[str]
    steps: list[LoggedStep]


class LoggedTime(msgspec.Struct, array_like=True):
    """The beginning of a body."""

    at: datetime


_commits = msgspec.msgpack.Decoder(LoggedCommit)
_times = msgspec.msgpack.Decoder(LoggedTime)
_trees = msgspec.msgpack.Decoder(StoredTree)
_names = msgspec.msgpack.Decoder(list[str])
_contents = msgspec.msgpack.Decoder(tuple[str, bytes | None])
_attributes = msgspec.msgpack.Decoder(dict[str, str | float])
_links = msgspec.msgpack.Decoder(tuple[str, tuple[str, ...], tuple[float, ...]])
_receipts = msgspec.msgpack.Decoder(tuple[bytes, tuple[str, ...]])


def encode_tree(info: TreeInfo) -> bytes:
    """A tree's identity."""
    model = info.model
    return encode(
        StoredTree(info.structure, model.name, model.dimension, model.unrelated_cosine, dict(info.parameters), info.created_at)
    )


def decode_tree(tree: TreeId, data: bytes, seq: bytes) -> TreeInfo:
    """A tree's identity and state."""
    stored = _trees.decode(data)
    return TreeInfo(
        id=tree,
        structure=stored.structure,
        model=EmbeddingModel(name=stored.model, dimension=stored.dimension, unrelated_cosine=stored.unrelated_cosine),
        parameters=stored.parameters,
        created_at=stored.created_at,
        seq=int(seq),
    )


def root_row() -> bytes:
    """The row of a root without children."""
    return ROW.pack(KIND_NUMBER[NodeKind.ROOT], 0, 0, 1, 0, 0, 0, 0.0, 1.0)


def encode_attributes(attributes: Attributes) -> bytes:
    """What follows the parent in a row: nothing where there are none."""
    return b"\0" + encode(attributes) if attributes else b""


def decode_tail(row: bytes) -> tuple[NodeId, Attributes]:
    """The parent's id and the attributes of a row."""
    parent, _, attributes = row[ROW.size :].partition(b"\0")
    return NodeId(parent.decode()), _attributes.decode(attributes) if attributes else {}


def encode_link(link: Link) -> bytes:
    """Edges without their mark, which the script puts in front."""
    return encode((link.node, link.others, link.weights))


def decode_link(data: bytes) -> tuple[Mark, Link]:
    """When edges were made, and the edges."""
    node, others, weights = _links.decode(data[NUMBER.size :])
    link = Link(node=NodeId(node), others=tuple(map(NodeId, others)), weights=weights)
    return Mark(int(NUMBER.unpack_from(data)[0])), link


def encode_content(text: str, item: bytes | None) -> bytes:
    """What follows a node's vector."""
    return encode((text, item))


def decode_node(node: NodeId, row: bytes, content: bytes, *, dimension: int, vector: bool) -> Node:
    """
    A node.

    Args:
        node: its id.
        row: as stored.
        content: as stored, from the vector on if `vector`.
        dimension: of the vector.
        vector: whether the content begins with it, and the node is to have it.
    """
    kind, provisional, depth, version, routing, descendants, pending, at, cohesion = ROW.unpack_from(row)
    is_root = node == ROOT
    start = 0
    found = None
    if vector:
        start = dimension * STORED.itemsize
        found = None if is_root else decode_vector(content[:start])
    text, item = _contents.decode(content[start:])
    parent, attributes = decode_tail(row)
    return Node(
        id=node,
        parent=None if is_root else parent,
        kind=KINDS[kind],
        depth=depth,
        mark=Mark(int(at)),
        version=version,
        routing=routing,
        text=text,
        vector=found,
        cohesion=cohesion,
        descendants=descendants,
        pending=pending,
        provisional=bool(provisional),
        item=None if item is None else decode_item(item, text),
        attributes=attributes,
    )


def encode_receipt(digest: bytes, leaves: Sequence[NodeId]) -> bytes:
    """A receipt without its number, which the script puts in front."""
    return encode((digest, leaves))


def decode_receipt(event: str, data: bytes) -> Receipt:
    """A receipt."""
    digest, leaves = _receipts.decode(data[NUMBER.size :])
    return Receipt(event_id=EventId(event), seq=int(NUMBER.unpack_from(data)[0]), digest=digest, leaves=tuple(map(NodeId, leaves)))


def encode_commit(
    steps: Sequence[Step], events: Sequence[EventId], vectors: Sequence[bytes], numbers: dict[NodeId, int], *, at: datetime
) -> bytes:
    """
    The body of a log entry.

    Args:
        steps: the commit's steps.
        events: ids of its events.
        vectors: the stored vectors of its `Create` and `Rewrite` steps, in order.
        numbers: places of the named nodes in the entry's names, from 1.
        at: time of the commit.
    """
    following = iter(vectors)
    logged: list[LoggedStep] = []
    for step in steps:
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
            case Move():
                logged.append(LoggedMove(numbers[step.node], numbers[step.old_parent], numbers[step.parent], step.depth))
            case Grow():
                logged.append(LoggedGrow(numbers[step.leaf], tuple([numbers[node] for node in step.nodes])))
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
            case Annotate():
                logged.append(LoggedAnnotate(numbers[step.node], dict(step.attributes)))
            case Link():
                logged.append(LoggedLink(numbers[step.node], tuple([numbers[node] for node in step.others]), step.weights))
    return encode(LoggedCommit(at, list(events), logged))


def decode_time(body: bytes) -> datetime:
    """When a commit was made."""
    return _times.decode(body).at


def decode_written(names: bytes, body: bytes) -> tuple[datetime, list[NodeId]]:
    """When a commit was made, and the nodes that it made or rewrote."""
    nodes, commit = _names.decode(names), _commits.decode(body)
    return commit.at, [NodeId(nodes[one.node - 1]) for one in commit.steps if isinstance(one, LoggedCreate | LoggedRewrite)]


def decode_entry(seq: bytes, names: bytes, body: bytes, leaves: bytes, dimension: int) -> LogEntry:
    """
    A log entry.

    Args:
        seq: the commit.
        names: as stored.
        body: as stored.
        leaves: the stored vectors of the leaves it made, one after the other.
        dimension: of the vectors.
    """
    nodes = [NodeId(name) for name in _names.decode(names)]
    commit = _commits.decode(body)
    size = dimension * STORED.itemsize
    made = (leaves[start : start + size] for start in range(0, len(leaves), size))
    try:
        packed = [one.vector or next(made) for one in commit.steps if isinstance(one, LoggedCreate | LoggedRewrite)]
    except StopIteration as error:
        raise StoreDamagedError(f"commit {int(seq)}: a leaf it made is gone") from error
    rows = iter(decode_rows(packed))
    return LogEntry(
        seq=int(seq),
        at=commit.at,
        steps=tuple([_step(logged, nodes, rows) for logged in commit.steps]),
        events=tuple(map(EventId, commit.events)),
    )


def _step(logged: LoggedStep, nodes: Sequence[NodeId], rows: Any) -> Step:
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
