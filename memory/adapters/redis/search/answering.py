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
    dense: NDArray[np.float32]
    lexical: list[float]

    @classmethod
    def of(cls, rows: Sequence[Sequence[bytes | int]], generation: str, vector: Vector, statistics: Statistics) -> Read:
        """
        Documents with both scores.

        Args:
            rows: node, vector, words, info and rank of each.
            generation: of the tree's index.
            vector: (d,) float32, the question's.
            statistics: of its words.
        """
        if not rows:
            return cls([], [], [], np.zeros(0, np.float32), [])
        columns = list(zip(*rows, strict=True))
        return cls(
            [NodeId(node.decode()) for node in columns[0]],
            [info_decoder.decode(info) for info in columns[3]],
            list(columns[4]),
            vectors(columns[1], len(vector)) @ vector,
            bm25(columns[2], generation, statistics),
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


@dataclass(frozen=True, slots=True)
class Reply:
    """What the server read, and what BM25 needs to know."""

    seq: int
    """The commit that it is of."""
    statistics: Statistics
    rows: Sequence[Sequence[bytes | int]]

    def candidates(self, generation: str, vector: Vector) -> list[Candidate]:
        """The documents with both scores."""
        read = Read.of(self.rows, generation, vector, self.statistics)
        return [read.candidate(row) for row in range(len(read.nodes))]


def best(
    rows: Sequence[Sequence[bytes | int]], generation: str, statistics: Statistics, *, dense: bool, lexical_k: int
) -> list[NodeId]:
    """
    Which of the nodes that were found are the answer: all that were found by vector, and the best by words of all.

    Args:
        rows: node, words and number of the search that found it, of each.
        generation: of the tree's index.
        statistics: of the question's words.
        dense: whether the first search was by vector.
        lexical_k: how many by words.
    """
    if not rows:
        return []
    names, words, numbers = zip(*rows, strict=True)
    nodes = [NodeId(name.decode()) for name in names]
    near = [node for node, number in zip(nodes, numbers, strict=True) if dense and number == 1]
    ranked = sorted((-score, node) for node, score in zip(nodes, bm25(words, generation, statistics), strict=True) if score > 0)
    return list(dict.fromkeys([*near, *(node for _, node in ranked[:lexical_k])]))


def bm25(words: Sequence[bytes], generation: str, statistics: Statistics) -> list[float]:
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
