"""
BM25 over the postings of many blocks, exact, without reading the long lists of common words where these cannot matter.

Words are taken rarest first. Once those still to come could together not lift a text that has none of the earlier words among
the best, only the texts that can still be among them are looked up in the remaining lists (MaxScore, Turtle and Flood 1995).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.index import lexical
from memory.adapters.embedded.index.lexical import Postings
from memory.adapters.embedded.index.vectors import Vectors

LONG = 4_096
"""Texts that hold a word, from which on it is worth asking whether its list must be read."""
LOOKED_UP_SHARE = 16
"""Lists are searched instead of read for at most one text in so many of their postings."""

Mask = NDArray[np.bool_]
Slots = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Block:
    """Vectors and postings of consecutive slots, from `base` on."""

    base: int
    vectors: Vectors
    postings: Postings

    @property
    def size(self) -> int:
        """Slots in the block."""
        return len(self.vectors.scales)

    @property
    def nbytes(self) -> int:
        """Memory of its arrays and words, roughly."""
        arrays = (self.vectors.exact, self.vectors.coarse, self.vectors.scales, self.postings.rows, self.postings.counts)
        return sum(array.nbytes for array in arrays) + 120 * len(self.postings.lookup)


def by_block(blocks: Sequence[Block], slots: Slots) -> list[tuple[Block, Slots, slice]]:
    """Ascending slots, split: the block, rows within it, and where these stand in `slots`."""
    edges = [*np.searchsorted(slots, [block.base for block in blocks]).tolist(), len(slots)]
    parts = zip(blocks, edges, edges[1:], strict=False)
    return [(block, slots[start:end] - block.base, slice(start, end)) for block, start, end in parts if end > start]


def top(scores: NDArray[np.float32], k: int, slots: Slots) -> Slots:
    """The slots with the k best scores, in no order."""
    if len(scores) <= k:
        return slots if k > 0 else slots[:0]
    return slots[np.argpartition(scores, len(scores) - k)[len(scores) - k :]] if k > 0 else slots[:0]


@dataclass(frozen=True, slots=True)
class _Word:
    """One word of the query that some living text holds."""

    holding: int
    """Texts that hold it."""
    weight: np.float32
    """Bound of what it adds to a text's score: idf · (k1 + 1)."""
    posted: dict[int, tuple[Block, NDArray[np.int32], NDArray[np.uint16]]]
    """By the block's base: rows and counts."""


class Ranking:
    """
    Scores of one query's words.

    Args:
        blocks: where postings are.
        words: the query's distinct words.
        alive: (n,) mask of slots that count, or None when all do.
        norms: (n,) float32, k1 · (1 - b + b · length / average length).
        documents: texts that are not empty.
        k1: BM25's parameter.
    """

    def __init__(
        self, blocks: Sequence[Block], words: Iterable[str], *, alive: Mask | None, norms: NDArray[np.float32], documents: int,
        k1: float,
    ) -> None:  # fmt: skip
        self._blocks, self._norms = blocks, norms
        self._scores = np.zeros(len(norms), np.float32)
        found = (self._word(word, alive, documents, k1) for word in words)
        self._words = sorted((word for word in found if word is not None), key=lambda word: word.holding)
        self._read = 0

    def best(self, k: int, allowed: Mask | None) -> Slots:
        """Slots of the k best scores above 0."""
        if k < 1:
            return np.zeros(0, np.intp)
        while self._read < len(self._words):
            left = self._words[self._read :]
            if left[0].holding >= LONG:
                bound = float(sum(word.weight for word in left)) * (1 + 1e-5)
                slots = self._positive(allowed)
                scores = self._scores[slots]
                if len(slots) >= k:
                    least = float(np.partition(scores, len(scores) - k)[len(scores) - k])
                    open_ = slots[scores >= least - bound]
                    if bound < least and len(open_) * LOOKED_UP_SHARE < sum(word.holding for word in left):
                        return top(self.of(open_), k, open_)
            self._add(left[0])
        slots = self._positive(allowed)
        return top(self._scores[slots], k, slots)

    def of(self, slots: Slots) -> NDArray[np.float32]:
        """(len(slots),) scores of ascending slots."""
        scores = self._scores[slots]
        left = self._words[self._read :]
        if not left:
            return scores
        for block, rows, part in by_block(self._blocks, slots):
            wanted, norms = rows.astype(np.int32), self._norms[slots[part]]
            for word in left:
                posted = word.posted.get(block.base)
                if posted is not None:
                    places = np.minimum(np.searchsorted(posted[1], wanted), len(posted[1]) - 1)
                    counts = np.where(posted[1][places] == wanted, posted[2][places], 0).astype(np.float32)
                    scores[part] += word.weight * counts / (counts + norms)
        return scores

    def _positive(self, allowed: Mask | None) -> Slots:
        return np.flatnonzero(self._scores > 0 if allowed is None else (self._scores > 0) & allowed)

    def _word(self, term: str, alive: Mask | None, documents: int, k1: float) -> _Word | None:
        if term.startswith(lexical.FIELD):
            return None
        posted, holding = {}, 0
        for block in self._blocks:
            span = block.postings.span(term)
            if span is not None:
                rows, counts = block.postings.rows[slice(*span)], block.postings.counts[slice(*span)]
                living = alive is None or alive[block.base : block.base + block.size][rows]
                holding += len(rows) if living is True else int(np.count_nonzero(living))
                posted[block.base] = (block, rows, counts)
        return _Word(holding, np.float32(lexical.idf(documents, holding) * (k1 + 1)), posted) if holding else None

    def _add(self, word: _Word) -> None:
        """Read the word's lists."""
        for block, rows, counts in word.posted.values():
            slots = slice(block.base, block.base + block.size)
            frequencies, places = counts.astype(np.float32), rows.astype(np.intp)
            # Rows are distinct within a word, so that adding through an index adds each once.
            self._scores[slots][places] += word.weight * frequencies / (frequencies + self._norms[slots][places])
        self._read += 1
