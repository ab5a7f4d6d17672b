"""
A tree's segments, put together as they are read.

Together they are more than half as large as the loaded tree. Read all at once, chosen from and then joined, they took twice the
tree's memory beside it. They are read one at a time, newest first, so that what counts of one is known when it comes: its vectors
go to where they stay, and it is let go.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.files import transaction
from memory.adapters.embedded.index.appending import NOWHERE, Reach, reach_of
from memory.adapters.embedded.index.segment import Deciding, Segment, concatenate, decode
from memory.adapters.embedded.index.vectors import Vectors

LOADED_ROWS = 131_072
"""Rows that are loaded as one block: a query does the same work block by block, and each has the words that it holds by itself."""
READS_MAX = 3
"""Attempts to read segments that others merge meanwhile; at the last one these wait, or what was there before is read."""

T = TypeVar("T")


class Guarded(Protocol):
    """Does some work on a connection; nobody in this process writes meanwhile, or they use another connection."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> T:
        """What the work returns."""


class Gathered:
    """
    What counts of segments that are added newest first.

    Args:
        sizes: rows of each, or more.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.parts = 0
        """Segments that were added."""
        self._left = sum(sizes)
        self._largest = max(sizes, default=0)
        self._deciding = Deciding()
        self._blocks: list[_Block] = []

    def add(self, segment: Segment) -> None:
        """Take in the next older one; nothing of it is held on to but strings."""
        self.parts += 1
        mask = self._deciding.mask(segment)
        if mask.any():
            if not self._blocks or self._blocks[-1].rows >= LOADED_ROWS:
                room = min(self._left, LOADED_ROWS + self._largest)
                self._blocks.append(_Block(room, segment.vectors.exact.shape[1]))
            self._blocks[-1].add(segment, mask)
        self._left -= len(segment.nodes)

    def segments(self) -> Iterator[Segment]:
        """One of each `LOADED_ROWS` rows, oldest first; no node is in two. May be called once."""
        while self._blocks:
            yield self._blocks.pop().joined()


class _Block:
    """Rows of neighbouring segments, those added later before the others."""

    def __init__(self, room: int, dimension: int) -> None:
        self.rows = 0
        # Pages that nothing is written to take no memory.
        self._exact = np.empty((room, dimension), np.float16)
        self._coarse = np.empty((room, dimension), np.int8)
        self._scales = np.empty(room, np.float32)
        self._parts: list[tuple[Segment, NDArray[np.bool_]]] = []

    def add(self, segment: Segment, mask: NDArray[np.bool_]) -> None:
        """Take over the rows of the mask."""
        end = len(self._scales) - self.rows
        self.rows += int(np.count_nonzero(mask))
        place = slice(len(self._scales) - self.rows, end)
        wanted = slice(None) if mask.all() else mask
        own = segment.vectors
        self._exact[place], self._coarse[place], self._scales[place] = own.exact[wanted], own.coarse[wanted], own.scales[wanted]
        self._parts.append((_without_vectors(segment), mask))

    def joined(self) -> Segment:
        """All rows, oldest first."""
        place = slice(len(self._scales) - self.rows, None)
        parts = self._parts[::-1]
        return concatenate(
            [segment for segment, _ in parts],
            [mask for _, mask in parts],
            removed=[],
            rows_vectors=Vectors(self._exact[place], self._coarse[place], self._scales[place]),
        )


def _without_vectors(segment: Segment) -> Segment:
    """The segment without its vectors and without the bytes that its columns are windows into."""
    own, posted = segment.vectors, segment.postings
    return replace(
        segment,
        seqs=segment.seqs.copy(),
        leaves=segment.leaves.copy(),
        marks=segment.marks.copy(),
        times=segment.times.copy(),
        lengths=segment.lengths.copy(),
        speakers=replace(segment.speakers, codes=segment.speakers.codes.copy()),
        sequences=replace(segment.sequences, codes=segment.sequences.codes.copy()),
        vectors=Vectors(own.exact[:0].copy(), own.coarse[:0].copy(), own.scales[:0].copy()),
        postings=replace(posted, starts=posted.starts.copy(), rows=posted.rows.copy(), counts=posted.counts.copy()),
    )


def read_whole(guarded: Guarded, tree: str) -> tuple[Reach, Gathered | None]:
    """
    Where a file stands, and what counts of all that it holds of a tree; None of a tree that it does not know.

    Raises:
        SegmentDamagedError: a segment's bytes are cut short or altered.
    """

    def list_all(connection: sqlite3.Connection) -> tuple[Reach, list[tuple[int, int]]]:
        rows = connection.execute("SELECT id, size FROM segments WHERE tree = ? ORDER BY last DESC, id DESC", (tree,)).fetchall()
        return reach_of(connection, tree), rows

    def look(connection: sqlite3.Connection) -> tuple[Reach, list[tuple[int, int]]]:
        with transaction(connection):
            return list_all(connection)

    def read(connection: sqlite3.Connection, number: int) -> bytes | None:
        # Where it was adopted by another tree it has that one's name.
        row = connection.execute("SELECT data FROM segments WHERE tree = ? AND id = ?", (tree, number)).fetchone()
        return row[0] if row else None

    def all_at_once(connection: sqlite3.Connection) -> tuple[Reach, Gathered | None]:
        with transaction(connection):
            reach, listed = list_all(connection)
            gathered = _gathered([size for _, size in listed], (read(connection, number) for number, _ in listed))
            return reach, gathered if reach != NOWHERE else None

    for _ in range(READS_MAX - 1):
        reach, listed = guarded(look)
        if reach == NOWHERE:
            return reach, None
        blobs = (guarded(lambda connection, number=number: read(connection, number)) for number, _ in listed)  # type: ignore[misc]
        gathered = _gathered([size for _, size in listed], blobs)
        if gathered is not None:
            return reach, gathered
    return guarded(all_at_once)


def _gathered(sizes: Sequence[int], blobs: Iterable[bytes | None]) -> Gathered | None:
    """The segments together; None when one is there no more."""
    gathered = Gathered(sizes)
    for data in blobs:
        if data is None:
            return None
        gathered.add(decode(data))
    return gathered
