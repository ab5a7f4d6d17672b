"""
A node as RediSearch keeps it, and what a question asks for in the same encoding.

What users wrote never reaches the query language: words and values are turned into letters and digits first, here, one way only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from hashlib import blake2b

import msgspec
import numpy as np

from memory.adapters.redis.pipe import Argument
from memory.model import EventId, Mark, NodeId, NodeKind, Vector
from memory.ports.index import IndexEntry

PLAIN_MAX = 30
"""Characters of a term that is kept as it is."""
_PLAIN = re.compile(rf"[0-9a-z]{{1,{PLAIN_MAX}}}")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_PLACE_OFFSET = 1 << 62
"""Makes times before 1970 sort, too."""


class Info(msgspec.Struct, frozen=True, array_like=True):
    """What is answered of a node beside its scores."""

    leaf: bool
    mark: int
    event_id: str | None
    sequence: str | None
    speaker: str | None
    at: int | None
    """Microseconds since 1970."""


info_encoder = msgspec.msgpack.Encoder()
info_decoder = msgspec.msgpack.Decoder(Info)


@dataclass(frozen=True, slots=True)
class Held:
    """What an index holds of a node, as far as an update must know it."""

    words: Counter[bytes]
    """Its terms, encoded, without the generation."""
    speaker: str | None
    """Of a leaf."""
    line: bytes
    place: bytes


@dataclass(frozen=True, slots=True)
class Document:
    """A node to be written."""

    node: str
    held: Held
    fields: list[Argument]
    """Names and values in turn."""


@lru_cache(maxsize=65_536)
def term_code(term: str) -> str:
    """A term in lower-case letters and digits; terms of up to 30 of those stay readable."""
    return f"w{term}" if _PLAIN.fullmatch(term) else f"h{_digest(term, 12)}"


def value_code(value: str) -> str:
    """A value that is filtered by, in 32 hexadecimal digits: the same for the same value, and for no other."""
    return _digest(value, 16)


def pair_code(key: str, value: str) -> str:
    """A key of the metadata with its value, likewise."""
    return _digest(f"{len(key)}:{key}{value}", 16)


def _digest(text: str, size: int) -> str:
    # Half a surrogate pair has no bytes of its own.
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=size).hexdigest()


def microseconds(at: datetime) -> int:
    """Since 1970, UTC."""
    return (at - _EPOCH) // _MICROSECOND


def vector_bytes(vector: Vector) -> bytes:
    """(d,) as little-endian float16."""
    return vector.astype("<f2").tobytes()


def vectors(rows: Sequence[bytes], dimension: int) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """(n, d) float32 of what `vector_bytes` made."""
    return np.frombuffer(b"".join(rows), "<f2").reshape(len(rows), dimension).astype(np.float32)


def document(entry: IndexEntry, generation: str, terms: Iterable[str]) -> Document:
    """
    A node as it is written.

    Args:
        entry: the node.
        generation: of its tree's index; its terms begin with it, so that no word of one tree is a word of another.
        terms: of its text.
    """
    codes = [term_code(term) for term in terms]
    leaf = entry.kind is NodeKind.LEAF
    at = None if entry.at is None else microseconds(entry.at)
    line = value_code(entry.sequence) if leaf and entry.sequence is not None else ""
    place = _place(at, entry.mark, entry.node) if line else ""
    info = Info(leaf, entry.mark, entry.event_id, entry.sequence, entry.speaker, at)
    fields: list[Argument] = [
        "tree", generation,
        "kind", "leaf" if leaf else "summary",
        "vector", vector_bytes(entry.vector),
        "words", " ".join([generation + code for code in codes]),
        "info", info_encoder.encode(info),
    ]  # fmt: skip
    for name, value in (("speaker", entry.speaker), ("conversation", entry.conversation), ("source", entry.source)):
        if value is not None:
            fields += [name, value_code(value)]
    if entry.metadata:
        fields += ["metadata", " ".join([pair_code(key, value) for key, value in entry.metadata.items()])]
    if at is not None:
        fields += ["at", str(at)]
    if line:
        fields += ["line", line, "place", place]
    held = Held(Counter(code.encode() for code in codes), entry.speaker if leaf else None, line.encode(), place.encode())
    return Document(entry.node, held, fields)


def held_from(row: Sequence[bytes | None], generation: str) -> Held | None:
    """What an index holds, of the fields `words`, `info`, `line` and `place`; None for a node that it does not hold."""
    words, info, line, place = row
    if words is None or info is None:
        return None
    said = info_decoder.decode(info)
    return Held(counted(words, generation), said.speaker if said.leaf else None, line or b"", place or b"")


def counted(words: bytes, generation: str) -> Counter[bytes]:
    """How often each term, encoded, is in a node's text."""
    start = len(generation)
    return Counter([word[start:] for word in words.split()])


def _place(at: int | None, mark: Mark, node: NodeId) -> str:
    """Orders the leaves of a sequence: those without a time first, then by time, mark and id. The id begins at character 35."""
    when = f"1{at + _PLACE_OFFSET:016x}" if at is not None else f"0{0:016x}"
    return f"{when}{mark:016x}.{node}"


def event_of(info: Info) -> EventId | None:
    """The event of a leaf."""
    return None if info.event_id is None else EventId(info.event_id)
