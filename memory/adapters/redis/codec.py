"""How rows, contents, receipts and identities become bytes in Redis and back."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from memory.adapters.codec import KIND_NUMBER, KINDS, STORED, decode_item, decode_vector
from memory.model import ROOT, Attributes, EmbeddingModel, EventId, Mark, Node, NodeId, NodeKind, TreeId, TreeInfo
from memory.ports.store import NO_DIGEST, Link, Receipt

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


_trees = msgspec.msgpack.Decoder(StoredTree)
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


def decode_tree(tree: TreeId, data: bytes, seq: bytes, floor: bytes | None, redacted: bytes | None) -> TreeInfo:
    """A tree's identity and state."""
    stored = _trees.decode(data)
    return TreeInfo(
        id=tree,
        structure=stored.structure,
        model=EmbeddingModel(name=stored.model, dimension=stored.dimension, unrelated_cosine=stored.unrelated_cosine),
        parameters=stored.parameters,
        created_at=stored.created_at,
        seq=int(seq),
        floor=int(floor or 0),
        redacted=int(redacted or 0),
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
    """A receipt; of a forgotten event its number is all there is."""
    forgotten = len(data) == NUMBER.size
    digest, leaves = (NO_DIGEST, ()) if forgotten else _receipts.decode(data[NUMBER.size :])
    return Receipt(
        event_id=EventId(event),
        seq=int(NUMBER.unpack_from(data)[0]),
        digest=digest,
        leaves=tuple(map(NodeId, leaves)),
        forgotten=forgotten,
    )
