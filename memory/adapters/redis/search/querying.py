"""
A question in RediSearch's words.

Conditions and the vector search are built by redisvl; nothing in them is as users wrote it (`documents.py`), and vectors travel as
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from redisvl.query import VectorQuery
from redisvl.query.filter import FilterExpression, Num, Tag

from memory.adapters.redis.pipe import Argument
from memory.adapters.redis.search.documents import microseconds, pair_code, value_code, vector_bytes
from memory.adapters.redis.search.keys import OWN
from memory.model import NodeKind, Vector
from memory.ports.index import Scope

TERMS_MAX = 64
"""Terms that the server looks for: the rarest of a question. All of them count in the scores of what is found."""
OVERFETCH = 3.0
"""Texts asked for, for each one wanted. The server's BM25 has other constants and the statistics of all its trees; scores are made
here, and the best of a few more are the best of all."""
OVERFETCH_LEAST = 200
EVERYTHING = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """The index that a tree's nodes are in."""

    name: str
    generation: str
    place: str

    def condition(self, scope: Scope) -> str | None:
        """What a node must fulfil, in the query language; None when none can."""
        expression: FilterExpression | None = None if self.place == OWN else Tag("tree") == self.generation
        for part in _conditions(scope):
            if part is None:
                return None
            expression = part if expression is None else expression & part
        return EVERYTHING if expression is None else str(expression)


def _conditions(scope: Scope) -> list[FilterExpression | None]:
    parts: list[FilterExpression | None] = []
    kinds = set(scope.kinds or (NodeKind.LEAF, NodeKind.SUMMARY)) - {NodeKind.ROOT}
    if scope.leaves_only:
        kinds &= {NodeKind.LEAF}
    if not kinds:
        return [None]
    if len(kinds) == 1:
        parts.append(Tag("kind") == kinds.pop().value)
    for name, value in (("speaker", scope.speaker), ("conversation", scope.conversation), ("source", scope.source)):
        if value:
            parts.append(Tag(name) == value_code(value))
    parts += [Tag("metadata") == pair_code(key, value) for key, value in scope.metadata.items()]
    if scope.since is not None:
        parts.append(Num("at") >= microseconds(scope.since))
    if scope.until is not None:
        parts.append(Num("at") < microseconds(scope.until))
    return parts


def nearest(where: Where, condition: str, vector: Vector, k: int, *, ef_runtime: int, timeout_ms: int) -> list[Argument]:
    """`FT.SEARCH` for the `k` nearest nodes."""
    query = VectorQuery(
        vector_bytes(vector),
        "vector",
        filter_expression=condition,
        dtype="float16",
        num_results=k,
        ef_runtime=max(ef_runtime, k) if where.place == OWN else None,
    )
    parameters = [each for pair in query.params.items() for each in pair]
    return _search(where, query.query_string(), k, timeout_ms, "PARAMS", len(parameters), *parameters)


def wordiest(where: Where, condition: str, weights: Sequence[tuple[str, float]], k: int, *, timeout_ms: int) -> list[Argument]:
    """
    `FT.SEARCH` for the `k` nodes whose words fit best.

    Args:
        where: the index.
        condition: what is searched of it.
        weights: terms as they are encoded, and what the server is to multiply its own weight of each with.
        k: nodes wanted.
        timeout_ms: how long the server may take.
    """
    words = " | ".join(f"(@words:({where.generation}{code}) => {{ $weight: {weight:.4f}; }})" for code, weight in weights)
    query = f"({words})" if condition == EVERYTHING else f"(({condition}) => {{ $weight: 0; }} ({words}))"
    return _search(where, query, k, timeout_ms, "SCORER", "BM25STD")


def _search(where: Where, query: str, k: int, timeout_ms: int, *options: Argument) -> list[Argument]:
    head: list[Argument] = ["FT.SEARCH", where.name, query, "NOCONTENT"]
    return [*head, *options, "LIMIT", 0, k, "TIMEOUT", timeout_ms, "DIALECT", 2]


def idf(documents: int, holding: int) -> float:
    """Inverse document frequency of a term that `holding` of `documents` texts contain; above 0 (Lucene's form of BM25)."""
    return math.log(1.0 + (max(documents, holding) - holding + 0.5) / (holding + 0.5))


def weighed(counts: Sequence[tuple[str, int]], *, texts: int, indexed: int) -> list[tuple[str, float]]:
    """
    The terms to be looked for, each with the factor that makes the server's weight of it this tree's.

    Args:
        counts: terms as they are encoded, and in how many of the tree's texts they are, 1 or more.
        texts: of the tree.
        indexed: documents of the index, of all trees that are in it.
    """
    rarest = sorted(counts, key=lambda each: (each[1], each[0]))[:TERMS_MAX]
    return [(code, idf(texts, holding) / idf(indexed, holding)) for code, holding in rarest]


def overfetched(k: int) -> int:
    """Texts to be asked for, to have the best `k`."""
    return max(math.ceil(k * OVERFETCH), k + OVERFETCH_LEAST)
