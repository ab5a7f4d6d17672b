"""Search over the nodes of a tree: vectors, BM25, filters. Derived data: it can always be made again from the store."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Self, cast, overload

import numpy as np
from numpy.typing import NDArray

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates(Sequence[Candidate]):
    """
    Candidates in columns: a query looks at some hundred of them, and making an object of each took a tenth of its time.

    As a sequence it makes a `Candidate` when one is asked for. Equal to another one with the same candidates in the same order.
    """

    nodes: Sequence[NodeId]
    leaves: NDArray[np.bool_]
    """(n,) whether it is a leaf; else a summary."""
    marks: NDArray[np.int64]
    """(n,)"""
    dense: NDArray[np.float64]
    """(n,)"""
    lexical: NDArray[np.float64]
    """(n,)"""
    event_ids: Sequence[EventId | None]
    sequences: Sequence[str | None]
    positions: NDArray[np.int64]
    """(n,)"""
    speakers: Sequence[str | None]
    times: NDArray[np.datetime64]
    """(n,) datetime64[us], in UTC; NaT where there is no time."""

    @classmethod
    def of(cls, candidates: Sequence[Candidate]) -> Self:
        """The candidates in columns; themselves when they are already."""
        if isinstance(candidates, cls):
            return candidates
        return cls(
            nodes=[found.node for found in candidates],
            leaves=np.array([found.kind is NodeKind.LEAF for found in candidates], np.bool_),
            marks=np.array([found.mark for found in candidates], np.int64),
            dense=np.array([found.dense for found in candidates], np.float64),
            lexical=np.array([found.lexical for found in candidates], np.float64),
            event_ids=[found.event_id for found in candidates],
            sequences=[found.sequence for found in candidates],
            positions=np.array([found.position for found in candidates], np.int64),
            speakers=[found.speaker for found in candidates],
            times=np.array([_naive(found.at) for found in candidates], "datetime64[us]"),
        )

    @classmethod
    def joined(cls, parts: Iterable[Sequence[Candidate]]) -> Self:
        """All of them, one part after the other."""
        columns = [cls.of(part) for part in parts]
        if len(columns) == 1:
            return columns[0]
        return cls(
            nodes=[node for part in columns for node in part.nodes],
            leaves=np.concatenate([part.leaves for part in columns]),
            marks=np.concatenate([part.marks for part in columns]),
            dense=np.concatenate([part.dense for part in columns]),
            lexical=np.concatenate([part.lexical for part in columns]),
            event_ids=[event for part in columns for event in part.event_ids],
            sequences=[sequence for part in columns for sequence in part.sequences],
            positions=np.concatenate([part.positions for part in columns]),
            speakers=[speaker for part in columns for speaker in part.speakers],
            times=np.concatenate([part.times for part in columns]),
        )

    def take(self, rows: Sequence[int]) -> Self:
        """Those at the given places."""
        places = np.asarray(rows, np.intp)
        return type(self)(
            nodes=[self.nodes[row] for row in rows],
            leaves=self.leaves[places],
            marks=self.marks[places],
            dense=self.dense[places],
            lexical=self.lexical[places],
            event_ids=[self.event_ids[row] for row in rows],
            sequences=[self.sequences[row] for row in rows],
            positions=self.positions[places],
            speakers=[self.speakers[row] for row in rows],
            times=self.times[places],
        )

    def __len__(self) -> int:
        return len(self.nodes)

    @overload
    def __getitem__(self, place: int) -> Candidate: ...

    @overload
    def __getitem__(self, place: slice) -> Candidates: ...

    def __getitem__(self, place: int | slice) -> Candidate | Candidates:
        if isinstance(place, slice):
            return self.take(range(len(self))[place])
        at = cast("datetime | None", self.times[place].item())
        return Candidate(
            node=self.nodes[place],
            kind=NodeKind.LEAF if self.leaves[place] else NodeKind.SUMMARY,
            mark=Mark(int(self.marks[place])),
            dense=float(self.dense[place]),
            lexical=float(self.lexical[place]),
            event_id=self.event_ids[place],
            sequence=self.sequences[place],
            position=int(self.positions[place]),
            speaker=self.speakers[place],
            at=None if at is None else at.replace(tzinfo=UTC),
        )

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it holds arrays


def _naive(at: datetime | None) -> datetime | None:
    """The time as numpy takes it: UTC without saying so."""
    return at if at is None or at.tzinfo is None else at.astimezone(UTC).replace(tzinfo=None)


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
    found: Sequence[Candidate]
    """
    `Candidates`, or any other sequence of them: the union of the best by vector and the best by BM25, in scope, each with both
    scores; in no particular order.
    """
    around: Sequence[Candidate]
    """The neighbours asked for by `spread` that are not in `found`, each with both scores."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexUpdate:
    """The arguments of one `NodeIndex.update`."""

    tree: TreeId
    after: int
    seq: int
    upserts: Sequence[IndexEntry]
    removes: Sequence[NodeId] = ()
    stamp: str = ""


class NodeIndex(ABC):
    """
    Vectors, words and fields of the nodes of many trees.

    An index knows for each tree the sequence number it covers. It is brought up to date by its owner (`update`), one range of
    commits after the other, and answers only from whole updates. An index that is missing, damaged or of another format says so
    by covering 0. Filters are applied while searching, never afterwards: a narrow scope still gets its k answers if it has
    them. May be used by several tasks at once.
    """

    @property
    def passing(self) -> bool:
        """Whether what it holds is this object's alone and ends with it."""
        return False

    @abstractmethod
    async def covered(self, tree: TreeId) -> int:
        """The commit up to which the index covers the tree; 0 for a tree it does not know."""

    @abstractmethod
    async def update(
        self,
        tree: TreeId,
        *,
        after: int,
        seq: int,
        upserts: Sequence[IndexEntry],
        removes: Sequence[NodeId] = (),
        stamp: str = "",
    ) -> bool:
        """
        Bring the tree from commit `after` to `seq`, atomically: entries replace those of the same node.

        Args:
            tree: which.
            after: the commit that it must stand at.
            seq: the commit that it stands at afterwards.
            upserts: nodes as they are now.
            removes: nodes that are no more.
            stamp: what `stamp` is to say from now on; it means nothing to the index.

        Returns:
            False when the index does not stand at `after` (another process was faster): nothing was done.
        """

    @abstractmethod
    async def stamp(self, tree: TreeId) -> str:
        """The stamp that came with the last update; "" for a tree it does not know."""

    async def standing(self, trees: Sequence[TreeId]) -> dict[TreeId, tuple[int, str]]:
        """`covered` and `stamp` of several trees; an index that can reads them together, each pair of one update."""
        return {tree: (await self.covered(tree), await self.stamp(tree)) for tree in trees}

    async def update_all(self, updates: Sequence[IndexUpdate]) -> list[bool]:
        """
        `update` for several trees, each once, and what each answered; an index that can takes them over together.

        Each tree's is atomic. On an error some may have been taken over.
        """
        return [
            await self.update(one.tree, after=one.after, seq=one.seq, upserts=one.upserts, removes=one.removes, stamp=one.stamp)
            for one in updates
        ]

    @abstractmethod
    async def search(self, tree: TreeId, query: IndexQuery) -> IndexAnswer:
        """Candidates for a query. An unknown tree gives an empty answer with seq 0."""

    @abstractmethod
    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Sequence[Candidate]:
        """Both scores of the given nodes, those that are indexed; scope and limits are not looked at."""

    @abstractmethod
    async def speakers(self, tree: TreeId, *, limit: int) -> frozenset[str]:
        """
        Who speaks in the tree: the distinct speakers of the leaves it holds; none of a tree it does not know.

        Args:
            tree: which.
            limit: with more speakers than that, any `limit` of them.
        """

    @abstractmethod
    async def size(self, tree: TreeId) -> int:
        """Nodes that it holds of the tree; 0 of one it does not know."""

    async def outgrown(self, tree: TreeId) -> bool:  # noqa: ARG002
        """Whether the tree has become so large that the index would serve it better if it were made anew (`prepare`, `adopt`)."""
        return False

    async def prepare(self, tree: TreeId, *, nodes: int, dimension: int) -> None:  # noqa: B027
        """Say, before its first update, how large a tree is going to be. Of a tree that it knows already it means nothing."""

    @abstractmethod
    async def adopt(self, tree: TreeId, made: TreeId) -> bool:
        """
        Let what stands under the name `made` be the tree's from now on, at once; what was the tree's is gone, and so is the name.

        Args:
            tree: which.
            made: a name that is no tree's, under which the tree was made anew.

        Returns:
            False when `made` covers less than the tree now does, or nothing: nothing was done.
        """

    async def take_turn(self, tree: TreeId, *, seconds: float) -> bool:  # noqa: ARG002
        """
        Ask to be the one who brings the tree up to date for so long; asking again extends it.

        It saves work and guards nothing: `update` refuses whoever comes late.

        Returns:
            False while another process has the turn.
        """
        return True

    async def end_turn(self, tree: TreeId) -> None:  # noqa: B027
        """Give the turn back; idempotent."""

    async def expunge(self, tree: TreeId) -> None:  # noqa: B027
        """
        Leave nothing on disk of the nodes that updates removed or replaced; without anything to do where they leave by themselves.

        Raises:
            StoreBusyError: somebody reads what was there before; call again.
        """

    @abstractmethod
    async def drop(self, tree: TreeId) -> None:
        """Forget the tree; it covers 0 afterwards."""

    @abstractmethod
    async def close(self) -> None:
        """Release what the index holds, keeping on disk what is worth keeping; idempotent."""
