"""Both scores of what the server found, and which of it is the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory.adapters.redis.search.documents import Info, event_of, info_decoder, vectors
from memory.adapters.redis.search.querying import idf
from memory.model import NodeId, Vector
from memory.ports.index import Candidates

NO_TIME = np.datetime64("NaT", "us").astype(np.int64).item()


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
class Reply:
    """What the server read, and what BM25 needs to know."""

    seq: int
    """The commit that it is of."""
    statistics: Statistics
    rows: Sequence[Sequence[bytes | int]]

    def candidates(self, generation: str, vector: Vector) -> Candidates:
        """The documents with both scores: node, vector, words, info and rank of each, as the script gives them."""
        if not self.rows:
            return Candidates.of(())
        names, packed, words, said, ranks = zip(*self.rows, strict=True)
        infos: list[Info] = list(map(info_decoder.decode, said))
        return Candidates(
            nodes=[NodeId(name.decode()) for name in names],
            leaves=np.array([info.leaf for info in infos], np.bool_),
            marks=np.array([info.mark for info in infos], np.int64),
            dense=(vectors(packed, len(vector)) @ vector).astype(np.float64),
            lexical=np.array(bm25(words, generation, self.statistics)),
            event_ids=list(map(event_of, infos)),
            sequences=[info.sequence for info in infos],
            positions=np.array(ranks, np.int64),
            speakers=[info.speaker for info in infos],
            times=np.array([NO_TIME if info.at is None else info.at for info in infos], np.int64).view("datetime64[us]"),
        )


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
    weights = {generation.encode() + term: idf(statistics.texts, count) for term, count in statistics.counts.items() if count}
    if not weights:
        return [0.0] * len(words)
    average = statistics.length / max(statistics.texts, 1)
    k1, b = statistics.k1, statistics.b
    scores = []
    for text in words:
        terms = text.split()
        norm = k1 * (1 - b + b * len(terms) / average)
        score = 0.0
        # Few of a text's words are the question's. In order, since sums of floats depend on it.
        for term in sorted(weights.keys() & terms):
            tf = terms.count(term)
            score += weights[term] * tf * (k1 + 1) / (tf + norm)
        scores.append(score)
    return scores
