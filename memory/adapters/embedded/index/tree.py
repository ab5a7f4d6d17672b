"""One tree in memory: what a search runs over. Not thread-safe; its owner locks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from itertools import islice
from typing import cast

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.index import lexical, vectors
from memory.adapters.embedded.index.columns import Column, Sequences
from memory.adapters.embedded.index.ranking import Block, Mask, Ranking, Slots, by_block, top
from memory.adapters.embedded.index.scanning import Scan, floor, scans
from memory.adapters.embedded.index.segment import NO_TIME, Segment, concatenate, microseconds
from memory.errors import QueryError
from memory.model import EventId, NodeId, NodeKind
from memory.ports.index import Candidates, IndexQuery, Scope

MARGIN = 4.0
"""Rows get an exact score when their coarse one is at most so many standard errors below the k-th best coarse one."""
RESCORED_MAX = 8_192
"""Where more rows than this are that close (near duplicates), the coarse scores choose among them."""
BLOCK_FAN = 8
"""Blocks of about one size that are merged into one."""
BLOCK_ROWS_MAX = 16_384
"""Blocks of this size are not merged any more."""
DEAD_ROWS_MIN = 4_096
NODE_BYTES = 400
"""Python objects a node, roughly: id, event id, their places in lists and in the dictionary."""


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
        scanner: where a searching thread has helpers for a vector scan.
        helpers: so many at most.
    """

    def __init__(self, *, k1: float, b: float, tokenize: lexical.Tokenize, scanner: Executor, helpers: int = 1) -> None:
        self.seq = 0
        self.dead = 0
        self._k1, self._b, self._tokenize, self._scanner = k1, b, tokenize, scanner
        self._helpers = helpers
        self._nodes: list[str] = []
        self._events: list[str | None] = []
        self._slots: dict[str, int] = {}
        self._alive: Column[np.bool_] = Column(np.bool_)
        self._leaves: Column[np.bool_] = Column(np.bool_)
        self._marks: Column[np.int64] = Column(np.int64)
        self._times: Column[np.int64] = Column(np.int64)
        self._lengths: Column[np.int32] = Column(np.int32)
        self._speakers = _LabelColumn()
        self._speaking: Counter[int] = Counter()
        """Leaves that are there, by their speaker's code."""
        self._sequences = _LabelColumn()
        self._order = Sequences(self._times, self._marks)
        self._blocks: list[Block] = []
        self._documents = 0
        self._terms = 0
        self._norms: NDArray[np.float32] | None = None

    # ------------------------------------------------------------------------------------------------------------ change

    @property
    def size(self) -> int:
        """Nodes that can be found."""
        return len(self._alive.values) - self.dead

    @property
    def nbytes(self) -> int:
        """Memory taken, roughly."""
        return sum(block.nbytes for block in self._blocks) + (NODE_BYTES + 40) * len(self._nodes)

    @property
    def wasteful(self) -> bool:
        """Whether loading it again would free much."""
        return self.dead > max(DEAD_ROWS_MIN, len(self._nodes) // 3)

    def load(self, segments: Iterable[Segment], seq: int) -> None:
        """Take in everything, each segment as a block, oldest first and no node twice; the tree must be empty."""
        for segment in segments:
            self._append(segment)
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
        speakers, leaves = self._speakers.codes.values, self._leaves.values
        for slot in slots:
            if slot is None:
                continue
            self._alive.values[slot] = False
            self.dead += 1
            self._documents -= bool(lengths[slot])
            self._terms -= int(lengths[slot])
            if leaves[slot] and (speaker := int(speakers[slot])) >= 0:
                self._speaking[speaker] -= 1
                if not self._speaking[speaker]:
                    del self._speaking[speaker]
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
        speakers = self._speakers.extend(segment.speakers.codes, segment.speakers.values)
        spoken = np.unique(speakers[segment.leaves & (speakers >= 0)], return_counts=True)
        self._speaking.update(dict(zip(spoken[0].tolist(), spoken[1].tolist(), strict=True)))
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
            if any(block.size >= BLOCK_ROWS_MAX or tier(block.size) > highest for block in tail):
                return
            base = tail[0].base
            starts = [block.base - base for block in tail]
            maps = [np.arange(start, start + block.size, dtype=np.int32) for start, block in zip(starts, tail, strict=True)]
            postings = lexical.combine([(block.postings, rows) for block, rows in zip(tail, maps, strict=True)])
            self._blocks[-BLOCK_FAN:] = [Block(base, vectors.concatenate([block.vectors for block in tail]), postings)]

    # ------------------------------------------------------------------------------------------------------------ search

    def speakers(self, limit: int) -> frozenset[str]:
        """Who speaks in the leaves that are there, at most so many."""
        return frozenset(name for code in islice(self._speaking, limit) if (name := self._speakers.names[code]) is not None)

    def search(self, queries: Sequence[IndexQuery]) -> list[tuple[Candidates, Candidates] | QueryError]:
        """Of each query what was found and what lies around it (`IndexAnswer`), or why it cannot be answered."""
        asked = [self._asked(query) for query in queries]
        scanned = [each for each in asked if not isinstance(each, QueryError) and each[0].dense_k > 0 and self._nodes]
        made = scans(
            self._blocks, [(vector, allowed) for _, vector, allowed in scanned], scanner=self._scanner, helpers=self._helpers
        )
        by_query = {id(each): scan for each, scan in zip(scanned, made, strict=True)}
        return [each if isinstance(each, QueryError) else self._answer(*each, by_query.get(id(each))) for each in asked]

    def _asked(self, query: IndexQuery) -> tuple[IndexQuery, NDArray[np.float32], Mask | None] | QueryError:
        try:
            return query, self._checked(query), self._allowed(query.scope)
        except QueryError as error:
            return error

    def _answer(
        self, query: IndexQuery, vector: NDArray[np.float32], allowed: Mask | None, scan: Scan | None
    ) -> tuple[Candidates, Candidates]:
        words = self._ranking(query.terms)
        by_words = words.best(query.lexical_k, allowed)
        by_vector = self._nearest(vector, query.dense_k, scan) if scan else by_words[:0]
        found = np.union1d(by_vector, by_words)
        around = self._neighbours(found, query.spread) if query.spread > 0 else found[:0]
        return self._candidates(vector, words, found, around)

    def score(self, query: IndexQuery, nodes: Iterable[NodeId]) -> Candidates:
        """Both scores of the nodes that are there."""
        known = [self._slots[node] for node in dict.fromkeys(nodes) if node in self._slots]
        slots = np.array(sorted(known), np.intp)
        return self._candidates(self._checked(query), self._ranking(query.terms), slots, slots[:0])[0]

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

    def _ranking(self, text: str) -> Ranking:
        """BM25 of the text's distinct words over the tree's texts that are not empty."""
        if self._norms is None:
            ratio = np.float32(self._b * self._documents / max(self._terms, 1))
            self._norms = np.float32(self._k1) * (np.float32(1 - self._b) + ratio * self._lengths.values)
        alive = self._alive.values if self.dead else None
        words = dict.fromkeys(self._tokenize(text))
        return Ranking(self._blocks, words, alive=alive, norms=self._norms, documents=self._documents, k1=self._k1)

    def _nearest(self, vector: NDArray[np.float32], k: int, scan: Scan) -> Slots:
        """Slots of the k nearest rows: exact scores of those that a scan leaves open."""
        scores = scan.finished()
        if scan.allowed is not None:
            scores[~scan.allowed] = -np.inf
        places = np.flatnonzero(scores > floor(scores, k))
        if len(places) > k:
            least = float(np.partition(scores[places], len(places) - k)[len(places) - k])
            places = np.flatnonzero(scores >= least - MARGIN * scan.error)
            places = np.sort(top(scores[places], max(k, RESCORED_MAX), places))
        slots = places if scan.slots is None else scan.slots[places]
        return top(self._cosines(vector, slots), k, slots)

    def _cosines(self, vector: NDArray[np.float32], slots: Slots) -> NDArray[np.float32]:
        """Exact cosines of ascending slots."""
        cosines = np.zeros(len(slots), np.float32)
        for block, rows, part in by_block(self._blocks, slots):
            cosines[part] = vectors.exact_scores(block.vectors, vector, rows)
        return cosines

    def _neighbours(self, found: Slots, spread: int) -> Slots:
        codes = self._sequences.codes.values[found]
        inside = (codes >= 0) & self._leaves.values[found]
        near = self._order.around(found[inside], codes[inside], spread)
        return np.array(sorted(near.difference(found.tolist())), np.intp)

    def _candidates(
        self, vector: NDArray[np.float32], words: Ranking, found: Slots, around: Slots
    ) -> tuple[Candidates, Candidates]:
        """Of two lists of ascending slots that have none in common."""
        together = np.concatenate((found, around))
        order = np.argsort(together, kind="stable")
        slots = together[order]
        dense, lexical_ = np.empty(len(slots)), np.empty(len(slots))
        # One pass over the blocks for both: what a pass costs is their number, not that of the candidates.
        dense[order] = np.clip(self._cosines(vector, slots), -1.0, 1.0)
        lexical_[order] = words.of(slots)
        split = len(found)
        return (
            self._columns(found, dense[:split], lexical_[:split]),
            self._columns(around, dense[split:], lexical_[split:]),
        )

    def _columns(self, slots: Slots, dense: NDArray[np.float64], lexical_: NDArray[np.float64]) -> Candidates:
        codes, leaves, numbers = self._sequences.codes.values[slots], self._leaves.values[slots], slots.tolist()
        nodes, events, speakers, sequences = self._nodes, self._events, self._speakers.names, self._sequences.names
        return Candidates(
            nodes=cast("list[NodeId]", [nodes[slot] for slot in numbers]),
            leaves=leaves,
            marks=self._marks.values[slots],
            dense=dense,
            lexical=lexical_,
            event_ids=cast("list[EventId | None]", [events[slot] for slot in numbers]),
            sequences=[sequences[code] for code in codes.tolist()],
            positions=self._order.ranks(slots, np.where(leaves, codes, np.int32(-1))).astype(np.int64),
            speakers=[speakers[code] for code in self._speakers.codes.values[slots].tolist()],
            # NO_TIME is what numpy takes for no time.
            times=self._times.values[slots].view("datetime64[us]"),
        )


class _LabelColumn:
    """Strings of a column as codes that hold for the whole tree."""

    __slots__ = ("_lookup", "codes", "names")

    def __init__(self) -> None:
        self.codes: Column[np.int32] = Column(np.int32)
        self._lookup: dict[str, int] = {}
        self.names: list[str | None] = [None]
        """By code; the last, which code -1 stands for, is None."""

    def extend(self, codes: NDArray[np.int32], values: Sequence[str]) -> NDArray[np.int32]:
        """Append a segment's column and return it in the tree's codes."""
        for value in values:
            if value not in self._lookup:
                self._lookup[value] = len(self.names) - 1
                self.names.insert(-1, value)
        numbers = np.array([self._lookup[value] for value in values] + [-1], np.int32)
        translated = numbers[codes]
        self.codes.extend(translated)
        return translated
