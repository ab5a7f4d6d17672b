"""Search over the nodes of a tree: vectors, BM25, filters. Derived data: it can always be made again from the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from memory.model import EventId, Mark, NodeId, NodeKind, TreeId, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexEntry:
    """One node as the index sees it."""

    node: NodeId
    kind: NodeKind
    """LEAF or SUMMARY; the root is not indexed."""
    mark: Mark
    vector: Vector
    text: str
    """What BM25 is computed over (made by `memory.retrieval.text`); may be empty for a summary."""
    event_id: EventId | None = None
    sequence: str | None = None
    """What a leaf has neighbours in (`Item.sequence`), ordered by `at`, then `mark`; None when it has none."""
    chunk: int = 0
    conversation: str | None = None
    speaker: str | None = None
    source: str | None = None
    at: datetime | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Top-level metadata with scalar values, as strings: what can be filtered by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which nodes may be answered with; None and empty mean no limit. All given conditions must hold."""

    kinds: frozenset[NodeKind] | None = None
    speaker: str | None = None
    conversation: str | None = None
    source: str | None = None
    since: datetime | None = None
    """Inclusive."""
    until: datetime | None = None
    """Exclusive."""
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def leaves_only(self) -> bool:
        """Whether only leaves can match: every condition but `kinds` speaks of an item."""
        return bool(self.speaker or self.conversation or self.source or self.since or self.until or self.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node found, or asked for, with both raw scores."""

    node: NodeId
    kind: NodeKind
    mark: Mark
    dense: float
    """Cosine with the query vector, in [-1, 1]."""
    lexical: float
    """BM25 of the query's terms, 0 or more."""
    event_id: EventId | None
    sequence: str | None
    position: int
    """Rank of a leaf within its sequence, from 0; -1 without one. Neighbours differ by 1."""
    speaker: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexQuery:
    """One question to the index."""

    vector: Vector
    """(d,) float32 of unit length."""
    terms: str
    """Text whose words are looked for; never a query language, whatever it contains."""
    dense_k: int = 100
    """Candidates by vector."""
    lexical_k: int = 100
    """Candidates by BM25."""
    spread: int = 0
    """Also return every leaf within this distance of a found leaf in its sequence (in scope or not: they lend their score)."""
    scope: Scope = field(default_factory=Scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexAnswer:
    """What an index found."""

    seq: int
    """The commit that this answer covers."""
    found: list[Candidate]
    """Union of the best by vector and the best by BM25, in scope, each with both scores; in no particular order."""
    around: list[Candidate]
    """The neighbours asked for by `spread` that are not in `found`, each with both scores."""


class NodeIndex(ABC):
    """
    Vectors, words and fields of the nodes of many trees.

    An index knows for each tree the sequence number it covers. It is brought up to date by its owner (`update`), one range of
    commits after the other, and answers only from whole updates. An index that is missing, damaged or of another format says so
    by covering 0. Filters are applied while searching, never afterwards: a narrow scope still gets its k answers if it has
    them. May be used by several tasks at once.
    """

    @abstractmethod
    async def covered(self, tree: TreeId) -> int:
        """The commit up to which the index covers the tree; 0 for a tree it does not know."""

    @abstractmethod
    async def update(
        self, tree: TreeId, *, after: int, seq: int, upserts: Sequence[IndexEntry], removes: Sequence[NodeId] = ()
    ) -> bool:
        """
        Bring the tree from commit `after` to `seq`, atomically: entries replace those of the same node.

        Returns:
            False when the index does not stand at `after` (another process was faster): nothing was done.
        """

    @abstractmethod
    async def search(self, tree: TreeId, query: IndexQuery) -> IndexAnswer:
        """Candidates for a query. An unknown tree gives an empty answer with seq 0."""

    @abstractmethod
    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> list[Candidate]:
        """Both scores of the given nodes, those that are indexed; scope and limits are not looked at."""

    @abstractmethod
    async def drop(self, tree: TreeId) -> None:
        """Forget the tree; it covers 0 afterwards."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the index holds, keeping on disk what is worth keeping; idempotent."""
