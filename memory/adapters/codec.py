"""How values that every store keeps become bytes and back: vectors and items."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.model import EventId, Item, NodeKind, Vector

KINDS = (NodeKind.ROOT, NodeKind.SUMMARY, NodeKind.LEAF)
KIND_NUMBER = {kind: number for number, kind in enumerate(KINDS)}

STORED = np.dtype("<f2")
"""Vectors are kept as little-endian float16."""


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


_encode = msgspec.msgpack.Encoder().encode
_items = msgspec.msgpack.Decoder(StoredItem)


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
        block = (vectors[0] if len(vectors) == 1 else np.stack(vectors)).astype(STORED)
    if not np.isfinite(block).all():
        raise ValueError("vectors must be finite")
    data, size = block.tobytes(), dimension * STORED.itemsize
    return [data[start : start + size] for start in range(0, len(data), size)]


def decode_vector(data: bytes) -> Vector:
    """(d,) float32 of its stored bytes."""
    return np.frombuffer(data, STORED).astype(np.float32)


def decode_rows(packed: Sequence[bytes]) -> NDArray[np.float32]:
    """(n, d) float32: of stored vectors, in one conversion."""
    return (
        np.frombuffer(b"".join(packed), STORED).astype(np.float32).reshape(len(packed), -1)
        if packed
        else np.empty((0, 0), np.float32)
    )


def encode_item(item: Item, text: str) -> bytes:
    """An item of a node whose text is `text`."""
    return _encode(
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
