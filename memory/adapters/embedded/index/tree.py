"""One tree in memory: what a search runs over. Not thread-safe; its owner locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.index import lexical, vectors
from memory.adapters.embedded.index.columns import Column, Sequences
from memory.adapters.embedded.index.lexical import Postings
from memory.adapters.embedded.index.segment import EPOCH, NO_TIME, Segment, concatenate, microseconds, survivors
from memory.adapters.embedded.index.vectors import Vectors
from memory.errors import QueryError
from memory.model import EventId, Mark, NodeId, NodeKind
from memory.ports.index import Candidate, IndexQuery, Scope

RESCORED = 3
"""Times `dense_k` rows get an exact score after the int8 scan (recall@100 is 0.998 at 1, and 1.0 at 1.5; see the record)."""
GATHER_SHARE = 8
"""Below one row in so many, allowed rows are gathered; above, all are scanned and the others masked."""
BLOCK_FAN = 8
"""Blocks of about one size that are merged into one."""
BLOCK_ROWS_MAX = 16_384
"""Blocks of this size are not merged any more."""
DEAD_ROWS_MIN = 4_096
NODE_BYTES = 400
"""Python objects a node, roughly: id, event id, their places in lists and in the dictionary."""

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


def tier(size: int) -> int:
    """Size class of a block or segment: merging BLOCK_FAN of one class makes one of the next."""
    return 0 if size < BLOCK_FAN else (size.bit_length() - 1) // (BLOCK_FAN.bit_length() - 1)


class LoadedTree:
    """
    The nodes of a tree in slots: a node that changes gets a new slot and leaves its old one dead.

    Args:
        k1: BM25's saturation of repeated terms, 0 or more.
        b: BM25's share of length normalisation, in [0, 1].
        tokenize: makes a query's terms, the same way as those of the nodes were made.
    """

    def __init__(self, *, k1: float, b: float, tokenize: lexical.Tokenize) -> None:
        self.seq = 0
        self.dead = 0
        self._k1, self._b, self._tokenize = k1, b, tokenize
        self._nodes: list[str] = []
        self._events: list[str | None] = []
        self._slots: dict[str, int] = {}
        self._alive: Column[np.bool_] = Column(np.bool_)
        self._leaves: Column[np.bool_] = Column(np.bool_)
        self._marks: Column[np.int64] = Column(np.int64)
        self._times: Column[np.int64] = Column(np.int64)
        self._lengths: Column[np.int32] = Column(np.int32)
        self._speakers = _LabelColumn()
        self._sequences = _LabelColumn()
        self._order = Sequences(self._times, self._marks)
        self._blocks: list[Block] = []
        self._documents = 0
        self._terms = 0
        self._norms: NDArray[np.float32] | None = None

    # ------------------------------------------------------------------------------------------------------------ change

    @property
    def nbytes(self) -> int:
        """Memory taken, roughly."""
        return sum(block.nbytes for block in self._blocks) + (NODE_BYTES + 40) * len(self._nodes)

    @property
    def wasteful(self) -> bool:
        """Whether loading it again would free much."""
        return self.dead > max(DEAD_ROWS_MIN, len(self._nodes) // 3)

    def load(self, segments: Sequence[Segment], seq: int) -> None:
        """Take in everything, oldest first; the tree must be empty."""
        masks, _ = survivors(segments)
        for segment, mask in zip(segments, masks, strict=True):
            self._append(segment if mask.all() else concatenate([segment], [mask], removed=[]))
        self._changed(seq)

    def apply(self, segments: Iterable[Segment], seq: int) -> None:
        """Take in what is later than `self.seq` of segments given oldest first, up to `seq`."""
        for segment in segments:
            self._kill(self._slots.pop(node, None) for node, at in segment.removed if at > self.seq)
            fresh = segment.seqs > self.seq
            part = segment if fresh.all() else concatenate([segment], [fresh], removed=[])
            self._kill(self._slots.get(node) for node in part.nodes)
            self._append(part)
        self._changed(seq)

    def _changed(self, seq: int) -> None:
        self.seq = seq
        self._norms = None

    def _kill(self, slots: Iterable[int | None]) -> None:
        lengths, sequences = self._lengths.values, self._sequences.codes.values
        for slot in slots:
            if slot is None:
                continue
            self._alive.values[slot] = False
            self.dead += 1
            self._documents -= bool(lengths[slot])
            self._terms -= int(lengths[slot])
            if sequences[slot] >= 0:
                self._order.remove(slot, int(sequences[slot]))

    def _append(self, segment: Segment) -> None:
        if not segment.nodes:
            return
        base = len(self._nodes)
        self._nodes.extend(segment.nodes)
        self._events.extend(segment.events)
        self._slots.update(zip(segment.nodes, range(base, base + len(segment.nodes)), strict=True))
        self._alive.extend(np.ones(len(segment.nodes), np.bool_))
        self._leaves.extend(segment.leaves)
        self._marks.extend(segment.marks)
        self._times.extend(segment.times)
        self._lengths.extend(segment.lengths)
        self._speakers.extend(segment.speakers.codes, segment.speakers.values)
        codes = self._sequences.extend(segment.sequences.codes, segment.sequences.values)
        self._order.extend(base, np.where(segment.leaves, codes, np.int32(-1)))
        self._documents += int(np.count_nonzero(segment.lengths))
        self._terms += int(segment.lengths.sum())
        self._blocks.append(Block(base, segment.vectors, segment.postings))
        self._merge_blocks()

    def _merge_blocks(self) -> None:
        while len(self._blocks) >= BLOCK_FAN:
            tail = self._blocks[-BLOCK_FAN:]
            highest = tier(tail[-1].size)
            if tail[-1].size >= BLOCK_ROWS_MAX or any(tier(block.size) > highest for block in tail):
                return
            base = tail[0].base
            starts = [block.base - base for block in tail]
            maps = [np.arange(start, start + block.size, dtype=np.int32) for start, block in zip(starts, tail, strict=True)]
            postings = lexical.combine([(block.postings, rows) for block, rows in zip(tail, maps, strict=True)])
            self._blocks[-BLOCK_FAN:] = [Block(base, vectors.concatenate([block.vectors for block in tail]), postings)]

    # ------------------------------------------------------------------------------------------------------------ search

    def search(self, query: IndexQuery) -> tuple[list[Candidate], list[Candidate]]:
        """What was found and what lies around it (`IndexAnswer`)."""
        vector = self._checked(query)
        allowed = self._allowed(query.scope)
        words = self._bm25(query.terms)
        by_words = self._best(words, query.lexical_k, allowed)
        by_vector = self._nearest(vector, query.dense_k, allowed)
        found = np.union1d(by_vector, by_words)
        around = self._neighbours(found, query.spread) if query.spread > 0 else found[:0]
        return self._candidates(found, vector, words), self._candidates(around, vector, words)

    def score(self, query: IndexQuery, nodes: Iterable[NodeId]) -> list[Candidate]:
        """Both scores of the nodes that are there."""
        known = [self._slots[node] for node in dict.fromkeys(nodes) if node in self._slots]
        return self._candidates(np.array(known, np.intp), self._checked(query), self._bm25(query.terms))

    def _checked(self, query: IndexQuery) -> NDArray[np.float32]:
        vector = np.ascontiguousarray(query.vector, np.float32)
        dimension = self._blocks[0].vectors.exact.shape[1] if self._blocks else len(vector)
        if vector.shape != (dimension,):
            raise QueryError(f"the query's vector has shape {vector.shape}, the tree's have {dimension} dimensions")
        return vector

    def _allowed(self, scope: Scope) -> Mask | None:
        """(n,) mask of the slots in scope; None when all are and none is dead."""
        masks: list[Mask] = [self._alive.values] if self.dead else []
        leaves, times = self._leaves.values, self._times.values
        if scope.kinds:
            wanted = (NodeKind.LEAF in scope.kinds, NodeKind.SUMMARY in scope.kinds)
            masks.append((leaves & wanted[0]) | (~leaves & wanted[1]))
        if scope.leaves_only:
            masks.append(leaves)
        if scope.since is not None:
            masks.append((times >= microseconds(scope.since)) & (times != NO_TIME))
        if scope.until is not None:
            masks.append((times < microseconds(scope.until)) & (times != NO_TIME))
        named = {"speaker": scope.speaker, "conversation": scope.conversation, "source": scope.source}
        terms = [lexical.field_term(name, value) for name, value in named.items() if value]
        terms.extend(lexical.field_term(f"metadata.{key}", value) for key, value in scope.metadata.items())
        masks.extend(self._posted(term) for term in terms)
        return np.logical_and.reduce(masks) if masks else None

    def _posted(self, term: str) -> Mask:
        mask = np.zeros(len(self._nodes), np.bool_)
        for block in self._blocks:
            span = block.postings.span(term)
            if span is not None:
                mask[block.base : block.base + block.size][block.postings.rows[span[0] : span[1]]] = True
        return mask

    def _bm25(self, text: str) -> NDArray[np.float32]:
        """(n,) BM25 of the text's distinct terms, over the tree's texts that are not empty; dead slots hold anything."""
        scores = np.zeros(len(self._nodes), np.float32)
        if not self._documents:
            return scores
        if self._norms is None:
            ratio = np.float32(self._b * self._documents / max(self._terms, 1))
            self._norms = np.float32(self._k1) * (np.float32(1 - self._b) + ratio * self._lengths.values)
        alive = self._alive.values
        for term in dict.fromkeys(self._tokenize(text)):
            if term.startswith(lexical.FIELD):
                continue
            posted = []
            holding = 0
            for block in self._blocks:
                span = block.postings.span(term)
                if span is not None:
                    rows, slots = block.postings.rows[span[0] : span[1]], slice(block.base, block.base + block.size)
                    holding += int(np.count_nonzero(alive[slots][rows])) if self.dead else len(rows)
                    posted.append((slots, rows, block.postings.counts[span[0] : span[1]]))
            if not holding:
                continue
            weight = np.float32(lexical.idf(self._documents, holding) * (self._k1 + 1))
            for slots, rows, counts in posted:
                frequencies = counts.astype(np.float32)
                # Rows are distinct within a term, so that adding through an index adds each once.
                scores[slots][rows] += weight * frequencies / (frequencies + self._norms[slots][rows])
        return scores

    def _best(self, scores: NDArray[np.float32], k: int, allowed: Mask | None) -> Slots:
        """Slots of the k best scores above 0."""
        slots = np.flatnonzero(scores > 0 if allowed is None else (scores > 0) & allowed)
        return _top(scores[slots], k, slots)

    def _nearest(self, vector: NDArray[np.float32], k: int, allowed: Mask | None) -> Slots:
        """Slots of the k rows nearest to the vector: an int8 scan, then exact scores of the best few hundred."""
        total = len(self._nodes)
        if not total or k < 1:
            return np.zeros(0, np.intp)
        slots = np.arange(total) if allowed is None else np.flatnonzero(allowed)
        if len(slots) > RESCORED * k:
            query = vectors.coarse_query(vector)
            if len(slots) < total // GATHER_SHARE:
                coarse = np.concatenate(
                    [vectors.coarse_scores(block.vectors, query, rows) for block, rows, _ in self._by_block(slots)]
                )
            else:
                coarse = np.concatenate([vectors.coarse_scores(block.vectors, query) for block in self._blocks])[slots]
            slots = np.sort(_top(coarse, RESCORED * k, slots))
        return _top(self._cosines(vector, slots), k, slots)

    def _by_block(self, slots: Slots) -> list[tuple[Block, Slots, slice]]:
        """Ascending slots, split: the block, rows within it, and where these stand in `slots`."""
        edges = np.searchsorted(slots, [block.base for block in self._blocks] + [len(self._nodes)]).tolist()
        parts = zip(self._blocks, edges, edges[1:], strict=False)
        return [(block, slots[start:end] - block.base, slice(start, end)) for block, start, end in parts if end > start]

    def _cosines(self, vector: NDArray[np.float32], slots: Slots) -> NDArray[np.float32]:
        """Exact cosines of ascending slots."""
        cosines = np.zeros(len(slots), np.float32)
        for block, rows, part in self._by_block(slots):
            cosines[part] = vectors.exact_scores(block.vectors, vector, rows)
        return cosines

    def _neighbours(self, found: Slots, spread: int) -> Slots:
        codes = self._sequences.codes.values
        leaves = [slot for slot in found.tolist() if codes[slot] >= 0 and self._leaves.values[slot]]
        near = {slot for leaf in leaves for slot in self._order.around(leaf, int(codes[leaf]), spread)}
        return np.array(sorted(near.difference(found.tolist())), np.intp)

    def _candidates(self, slots: Slots, vector: NDArray[np.float32], words: NDArray[np.float32]) -> list[Candidate]:
        slots = np.sort(slots)
        dense = np.clip(self._cosines(vector, slots), -1.0, 1.0).tolist()
        codes = self._sequences.codes.values[slots].tolist()
        columns = zip(
            slots.tolist(),
            self._leaves.values[slots].tolist(),
            self._marks.values[slots].tolist(),
            self._times.values[slots].tolist(),
            self._speakers.codes.values[slots].tolist(),
            codes,
            dense,
            words[slots].tolist(),
            strict=True,
        )
        return [
            Candidate(
                node=NodeId(self._nodes[slot]),
                kind=NodeKind.LEAF if leaf else NodeKind.SUMMARY,
                mark=Mark(mark),
                dense=cosine,
                lexical=bm25,
                event_id=None if (event := self._events[slot]) is None else EventId(event),
                sequence=self._sequences.name(sequence),
                position=self._order.rank(slot, sequence) if leaf and sequence >= 0 else -1,
                speaker=self._speakers.name(speaker),
                at=None if time == NO_TIME else EPOCH + timedelta(microseconds=time),
            )
            for slot, leaf, mark, time, speaker, sequence, cosine, bm25 in columns
        ]


def _top(scores: NDArray[np.float32], k: int, slots: Slots) -> Slots:
    """The slots with the k best scores, in no order."""
    if len(scores) <= k:
        return slots if k > 0 else slots[:0]
    return slots[np.argpartition(scores, len(scores) - k)[len(scores) - k :]] if k > 0 else slots[:0]


class _LabelColumn:
    """Strings of a column as codes that hold for the whole tree."""

    __slots__ = ("_lookup", "_names", "codes")

    def __init__(self) -> None:
        self.codes: Column[np.int32] = Column(np.int32)
        self._lookup: dict[str, int] = {}
        self._names: list[str | None] = []

    def extend(self, codes: NDArray[np.int32], values: Sequence[str]) -> NDArray[np.int32]:
        """Append a segment's column and return it in the tree's codes."""
        for value in values:
            if self._lookup.setdefault(value, len(self._names)) == len(self._names):
                self._names.append(value)
        numbers = np.array([self._lookup[value] for value in values] + [-1], np.int32)
        translated = numbers[codes]
        self.codes.extend(translated)
        return translated

    def name(self, code: int) -> str | None:
        """The string of a code; None for -1."""
        return self._names[code] if code >= 0 else None
