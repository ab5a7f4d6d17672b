"""An index that cannot be wrong: every entry compared with every query, in plain Python, slowly."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from memory.model import NodeId, NodeKind, Vector
from memory.ports.index import IndexEntry, IndexQuery, Scope


def plain_words(text: str) -> list[str]:
    """Lower-case words."""
    return re.findall(r"\w+", text.casefold())


def plain_bm25(texts: Sequence[str], query: str, k1: float = 0.9, b: float = 0.4) -> list[float]:
    """BM25 of every text, over those that have a word; each word of the query counts once."""
    rows = [plain_words(text) for text in texts]
    count = sum(1 for row in rows if row)
    average = sum(map(len, rows)) / max(count, 1)
    scores = [0.0] * len(rows)
    for word in set(plain_words(query)):
        holding = sum(word in row for row in rows)
        idf = math.log(1 + (count - holding + 0.5) / (holding + 0.5))
        for place, row in enumerate(rows):
            if word in row:
                tf = row.count(word)
                scores[place] += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(row) / average))
    return scores


def in_scope(entry: IndexEntry, scope: Scope) -> bool:
    """Whether an entry may be answered with."""
    leaf = entry.kind is NodeKind.LEAF
    return (
        (not scope.kinds or entry.kind in scope.kinds)
        and (leaf or not scope.leaves_only)
        and (not scope.speaker or entry.speaker == scope.speaker)
        and (not scope.conversation or entry.conversation == scope.conversation)
        and (not scope.source or entry.source == scope.source)
        and (scope.since is None or (entry.at is not None and entry.at >= scope.since))
        and (scope.until is None or (entry.at is not None and entry.at < scope.until))
        and all(entry.metadata.get(key) == value for key, value in scope.metadata.items())
    )


class PlainIndex:
    """The entries of one tree, as a dictionary."""

    def __init__(self) -> None:
        self.entries: dict[NodeId, IndexEntry] = {}

    def update(self, upserts: Iterable[IndexEntry], removes: Iterable[NodeId] = ()) -> None:
        for node in removes:
            self.entries.pop(node, None)
        self.entries.update((entry.node, entry) for entry in upserts)

    def dense(self, query: IndexQuery) -> dict[NodeId, float]:
        """Cosine of every entry."""
        return {node: float(entry.vector @ query.vector) for node, entry in self.entries.items()}

    def lexical(self, query: IndexQuery) -> dict[NodeId, float]:
        """BM25 of every entry."""
        return dict(zip(self.entries, plain_bm25([entry.text for entry in self.entries.values()], query.terms), strict=True))

    def best(self, scores: dict[NodeId, float], scope: Scope, k: int) -> list[NodeId]:
        """The k best in scope, best first."""
        allowed = [node for node, entry in self.entries.items() if in_scope(entry, scope)]
        return sorted(allowed, key=lambda node: (-scores[node], node))[:k]

    def speakers(self) -> list[str]:
        """Who speaks in its leaves."""
        leaves = (entry for entry in self.entries.values() if entry.kind is NodeKind.LEAF)
        return sorted({entry.speaker for entry in leaves if entry.speaker is not None})

    def sequence(self, name: str) -> list[NodeId]:
        """Leaves of a sequence in their order."""
        start = datetime.min.replace(tzinfo=UTC)
        leaves = [entry for entry in self.entries.values() if entry.kind is NodeKind.LEAF and entry.sequence == name]
        return [entry.node for entry in sorted(leaves, key=lambda entry: (entry.at or start, entry.mark))]

    def around(self, found: Iterable[NodeId], spread: int) -> set[NodeId]:
        """Leaves within `spread` of those found, those found left out."""
        near: set[NodeId] = set()
        for node in (found := set(found)):
            entry = self.entries[node]
            if entry.kind is NodeKind.LEAF and entry.sequence is not None:
                order = self.sequence(entry.sequence)
                place = order.index(node)
                near.update(order[max(0, place - spread) : place + spread + 1])
        return near - found


def unit(vector: NDArray[np.float64] | NDArray[np.float32]) -> Vector:
    """To unit length, with components that float16 can represent."""
    return np.asarray(vector / np.linalg.norm(vector)).astype(np.float16).astype(np.float32)
