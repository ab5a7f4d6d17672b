"""Both scores of what the server found, and which of it is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.adapters.redis.search.documents import Info, counted, event_of, info_decoder, moment, vectors
from memory.adapters.redis.search.querying import idf
from memory.model import Mark, NodeId, NodeKind, Vector
from memory.ports.index import Candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What BM25 needs of a tree and a question."""

    texts: int
    length: int
    """Of all texts, in terms."""
    counts: Mapping[bytes, int]
    """The question's terms, encoded, to the number of texts that they are in."""
    k1: float
    b: float


@dataclass(frozen=True, slots=True)
class Read:
    """Documents as the server gave them, in columns."""

    nodes: list[NodeId]
    infos: list[Info]
    ranks: list[int]
    searches: list[int]
    """Of each, the number of the search that found it, from 1; 0 for what was not searched for."""
    dense: NDArray[np.float32]
    lexical: list[float]

    @classmethod
    def of(cls, rows: Sequence[Sequence[bytes | int]], generation: str, vector: Vector, statistics: Statistics) -> Read:
        """
        Documents with both scores.

        Args:
            rows: node, vector, words, info, rank and search of each.
            generation: of the tree's index.
            vector: (d,) float32, the question's.
            statistics: of its words.
        """
        if not rows:
            return cls([], [], [], [], np.zeros(0, np.float32), [])
        columns = list(zip(*rows, strict=True))
        return cls(
            [NodeId(node.decode()) for node in columns[0]],
            [info_decoder.decode(info) for info in columns[3]],
            list(columns[4]),
            list(columns[5]),
            vectors(columns[1], len(vector)) @ vector,
            _bm25(columns[2], generation, statistics),
        )

    def candidate(self, row: int) -> Candidate:
        """One of them."""
        info = self.infos[row]
        return Candidate(
            node=self.nodes[row],
            kind=NodeKind.LEAF if info.leaf else NodeKind.SUMMARY,
            mark=Mark(info.mark),
            dense=float(self.dense[row]),
            lexical=self.lexical[row],
            event_id=event_of(info),
            sequence=info.sequence,
            position=self.ranks[row],
            speaker=info.speaker,
            at=moment(info.at),
        )

    def best(self, *, dense: bool, lexical_k: int) -> list[int]:
        """
        What was found by vector, and the best by words of all that was found.

        Args:
            dense: whether the first search was by vector.
            lexical_k: how many by words.
        """
        near = [row for row, number in enumerate(self.searches) if dense and number == 1]
        fit = [row for row, number in enumerate(self.searches) if number and self.lexical[row] > 0]
        fit.sort(key=lambda row: (-self.lexical[row], self.nodes[row]))
        return list(dict.fromkeys([*near, *fit[:lexical_k]]))

    def around(self, found: Sequence[int], spread: int) -> list[int]:
        """Those within `spread` of a found one in its sequence, without the found ones."""
        if not spread:
            return []
        near: set[tuple[str | None, int]] = set()
        for row in found:
            rank = self.ranks[row]
            if rank >= 0:
                near.update((self.infos[row].sequence, each) for each in range(rank - spread, rank + spread + 1))
        taken = set(found)
        return [
            row
            for row, (info, rank) in enumerate(zip(self.infos, self.ranks, strict=True))
            if rank >= 0 and row not in taken and (info.sequence, rank) in near
        ]


def _bm25(words: Sequence[bytes], generation: str, statistics: Statistics) -> list[float]:
    """BM25 of each text (Robertson and Zaragoza 2009, with Lucene's never negative idf); a question's term counts once."""
    weights = {term: idf(statistics.texts, count) for term, count in statistics.counts.items() if count}
    if not weights:
        return [0.0] * len(words)
    average = statistics.length / max(statistics.texts, 1)
    k1, b = statistics.k1, statistics.b
    scores = []
    for text in words:
        terms = counted(text, generation)
        norm = k1 * (1 - b + b * terms.total() / average)
        scores.append(sum(weight * tf * (k1 + 1) / (tf + norm) for term, weight in weights.items() if (tf := terms[term])))
    return scores
