"""
Segments: immutable columns of what a range of commits left in the index, in memory and as bytes.

An update becomes one small segment; neighbouring ones are merged into larger ones, and rows that a later commit superseded are
left out then (a log-structured merge, O'Neil et al. 1996). A segment alone says what to do to an index that stands anywhere
in its range: every row and every removal carries the commit it came from.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.index import lexical, vectors
from memory.adapters.embedded.index.lexical import Postings, Tokenize
from memory.adapters.embedded.index.vectors import Vectors
from memory.model import NodeId, NodeKind
from memory.ports.index import IndexEntry

NO_TIME = np.iinfo(np.int64).min
"""Stands for an absent time: sorts before all, and no period contains it."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALIGNMENT = 64


class SegmentDamagedError(Exception):
    """The bytes are no whole segment."""


@dataclass(frozen=True, slots=True)
class Labels:
    """A column of few distinct strings."""

    codes: NDArray[np.int32]
    """(n,) index into `values`, -1 for none."""
    values: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """n rows, one a node; no node twice, and none both as a row and removed."""

    nodes: list[str]
    events: list[str | None]
    seqs: NDArray[np.int64]
    """(n,) commit that wrote the row."""
    leaves: NDArray[np.bool_]
    """(n,) leaf rather than summary."""
    marks: NDArray[np.int64]
    times: NDArray[np.int64]
    """(n,) microseconds since 1970 UTC, or NO_TIME."""
    lengths: NDArray[np.int32]
    """(n,) terms of the text."""
    speakers: Labels
    sequences: Labels
    vectors: Vectors
    postings: Postings
    removed: list[tuple[str, int]]
    """Nodes taken out, with the commit that did it."""


def microseconds(at: datetime | None) -> int:
    """Time as the columns keep it; a zone-less time is taken as UTC."""
    if at is None:
        return NO_TIME
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def build(entries: Sequence[IndexEntry], removes: Sequence[NodeId], *, seq: int, dimension: int, tokenize: Tokenize) -> Segment:
    """The segment of one update: of several entries for one node the last counts, and an entry outweighs a removal."""
    latest = {entry.node: entry for entry in entries}
    kept = list(latest.values())
    postings, lengths = lexical.build((tokenize(entry.text) if entry.text else [], _fields(entry)) for entry in kept)
    rows = np.stack([entry.vector for entry in kept]) if kept else np.zeros((0, dimension), np.float32)
    return Segment(
        nodes=list(latest),
        events=[entry.event_id for entry in kept],
        seqs=np.full(len(kept), seq, np.int64),
        leaves=np.array([entry.kind is NodeKind.LEAF for entry in kept], np.bool_),
        marks=np.array([entry.mark for entry in kept], np.int64),
        times=np.array([microseconds(entry.at) for entry in kept], np.int64),
        lengths=lengths,
        speakers=_labels([entry.speaker for entry in kept]),
        sequences=_labels([entry.sequence for entry in kept]),
        vectors=vectors.of_rows(rows.astype(np.float32, copy=False)),
        postings=postings,
        removed=[(node, seq) for node in dict.fromkeys(removes) if node not in latest],
    )


def _fields(entry: IndexEntry) -> list[str]:
    named = {"speaker": entry.speaker, "conversation": entry.conversation, "source": entry.source}
    terms = [lexical.field_term(name, value) for name, value in named.items() if value]
    terms.extend(lexical.field_term(f"metadata.{key}", value) for key, value in entry.metadata.items())
    return terms


def _labels(column: Sequence[str | None]) -> Labels:
    values: dict[str, int] = {}
    codes = [-1 if value is None else values.setdefault(value, len(values)) for value in column]
    return Labels(np.array(codes, np.int32), list(values))


class Deciding:
    """Tells what still counts of segments that come newest first."""

    def __init__(self) -> None:
        self._decided: set[str] = set()
        self.removed: dict[str, int] = {}
        """Removals that stand, with the commits that did them."""

    def mask(self, segment: Segment) -> NDArray[np.bool_]:
        """(n,) the rows of the next older segment that no later one superseded."""
        decided = self._decided
        mask = np.fromiter((node not in decided for node in segment.nodes), np.bool_, len(segment.nodes))
        self.removed.update((node, seq) for node, seq in segment.removed if node not in decided)
        decided.update(segment.nodes)
        decided.update(node for node, _ in segment.removed)
        return mask


def survivors(segments: Sequence[Segment]) -> tuple[list[NDArray[np.bool_]], dict[str, int]]:
    """
    What still counts of segments given oldest first.

    Returns:
        For each segment an (n,) mask of the rows that no later one superseded, and the removals that stand.
    """
    deciding = Deciding()
    masks = [deciding.mask(segment) for segment in reversed(segments)]
    return masks[::-1], deciding.removed


def grouped(sizes: Sequence[int], least: int) -> list[slice]:
    """Neighbours put together until they have `least` rows."""
    groups, start, rows = [], 0, 0
    for place, size in enumerate(sizes, 1):
        rows += size
        if rows >= least or place == len(sizes):
            groups.append(slice(start, place))
            start, rows = place, 0
    return groups


def merge(segments: Sequence[Segment]) -> Segment:
    """One segment that does what the given ones do one after the other, oldest first."""
    masks, removed = survivors(segments)
    return concatenate(segments, masks, removed=list(removed.items()))


def concatenate(
    segments: Sequence[Segment],
    masks: Sequence[NDArray[np.bool_]],
    *,
    removed: list[tuple[str, int]],
    rows_vectors: Vectors | None = None,
) -> Segment:
    """
    Rows of the segments that the masks keep, in order.

    Args:
        segments: oldest first.
        masks: (n,) of each, the rows to keep.
        removed: of the segment that is made.
        rows_vectors: of the rows that are kept; None takes those of the segments.
    """
    kept = [np.flatnonzero(mask) for mask in masks]
    pairs = list(zip(segments, kept, strict=True))
    maps, base = [], 0
    for mask, rows in zip(masks, kept, strict=True):
        row_map = np.full(len(mask), -1, np.int32)
        row_map[rows] = np.arange(base, base + len(rows), dtype=np.int32)
        maps.append(row_map)
        base += len(rows)
    return Segment(
        nodes=[segment.nodes[row] for segment, rows in pairs for row in rows.tolist()],
        events=[segment.events[row] for segment, rows in pairs for row in rows.tolist()],
        seqs=np.concatenate([segment.seqs[rows] for segment, rows in pairs]),
        leaves=np.concatenate([segment.leaves[rows] for segment, rows in pairs]),
        marks=np.concatenate([segment.marks[rows] for segment, rows in pairs]),
        times=np.concatenate([segment.times[rows] for segment, rows in pairs]),
        lengths=np.concatenate([segment.lengths[rows] for segment, rows in pairs]),
        speakers=_joined([(segment.speakers, rows) for segment, rows in pairs]),
        sequences=_joined([(segment.sequences, rows) for segment, rows in pairs]),
        vectors=rows_vectors or vectors.concatenate([segment.vectors.select(rows) for segment, rows in pairs]),
        postings=lexical.combine([(segment.postings, row_map) for segment, row_map in zip(segments, maps, strict=True)]),
        removed=removed,
    )


def _joined(parts: Sequence[tuple[Labels, NDArray[np.intp]]]) -> Labels:
    values: dict[str, int] = {}
    columns = []
    for labels, rows in parts:
        codes, names = np.unique(labels.codes[rows], return_inverse=True)
        new = [-1 if code < 0 else values.setdefault(labels.values[code], len(values)) for code in codes.tolist()]
        columns.append(np.array(new, np.int32)[names] if new else np.zeros(0, np.int32))
    return Labels(np.concatenate(columns), list(values))


# ----------------------------------------------------------------------------------------------------------------- bytes


class _Head(msgspec.Struct, array_like=True):
    nodes: list[str]
    events: list[str | None]
    speakers: list[str]
    sequences: list[str]
    terms: list[str]
    removed: list[tuple[str, int]]
    arrays: list[tuple[str, list[int]]]
    """dtype and shape of the arrays that follow, in the order of `_arrays`."""


def _arrays(segment: Segment) -> list[NDArray[np.generic]]:
    return [
        segment.seqs, segment.leaves, segment.marks, segment.times, segment.lengths,
        segment.speakers.codes, segment.sequences.codes,
        segment.vectors.exact, segment.vectors.coarse, segment.vectors.scales,
        segment.postings.starts, segment.postings.rows, segment.postings.counts,
    ]  # fmt: skip


def encode(segment: Segment) -> bytes:
    """Bytes of a segment: length of the head, checksum of all after these 8 bytes, head, aligned arrays."""
    arrays = [np.ascontiguousarray(array) for array in _arrays(segment)]
    head = msgspec.msgpack.encode(
        _Head(
            nodes=segment.nodes,
            events=segment.events,
            speakers=segment.speakers.values,
            sequences=segment.sequences.values,
            terms=list(segment.postings.lookup),
            removed=segment.removed,
            arrays=[(array.dtype.str, list(array.shape)) for array in arrays],
        )
    )
    parts = [head]
    size = 8 + len(head)
    for array in arrays:
        parts.append(bytes(-size % ALIGNMENT))
        parts.append(array.tobytes())
        size += len(parts[-2]) + len(parts[-1])
    body = b"".join(parts)
    return len(head).to_bytes(4, "little") + zlib.crc32(body).to_bytes(4, "little") + body


def decode(data: bytes) -> Segment:
    """
    The segment of some bytes; its arrays are read-only windows into them.

    Raises:
        SegmentDamagedError: the bytes are cut short or altered.
    """
    view = memoryview(data)
    if len(data) < 8 or zlib.crc32(view[8:]) != int.from_bytes(data[4:8], "little"):
        raise SegmentDamagedError("checksum of a segment of the index does not hold")
    offset = 8 + int.from_bytes(data[:4], "little")
    head = msgspec.msgpack.decode(view[8:offset], type=_Head)
    arrays: list[NDArray[np.generic]] = []
    for name, shape in head.arrays:
        offset += -offset % ALIGNMENT
        dtype, count = np.dtype(name), int(np.prod(shape))
        arrays.append(np.frombuffer(data, dtype, count, offset).reshape(shape))
        offset += count * dtype.itemsize
    seqs, leaves, marks, times, lengths, speakers, sequences, exact, coarse, scales, starts, rows, counts = arrays
    return Segment(
        nodes=head.nodes,
        events=head.events,
        seqs=seqs.astype(np.int64, copy=False),
        leaves=leaves.astype(np.bool_, copy=False),
        marks=marks.astype(np.int64, copy=False),
        times=times.astype(np.int64, copy=False),
        lengths=lengths.astype(np.int32, copy=False),
        speakers=Labels(speakers.astype(np.int32, copy=False), head.speakers),
        sequences=Labels(sequences.astype(np.int32, copy=False), head.sequences),
        vectors=Vectors(
            exact.astype(np.float16, copy=False), coarse.astype(np.int8, copy=False), scales.astype(np.float32, copy=False)
        ),
        postings=Postings(
            {term: number for number, term in enumerate(head.terms)},
            starts.astype(np.int64, copy=False),
            rows.astype(np.int32, copy=False),
            counts.astype(np.uint16, copy=False),
        ),
        removed=head.removed,
    )
