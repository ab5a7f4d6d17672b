"""Compares a tree's index with the store, and makes it anew beside the one that answers."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from memory.errors import BanyanError, StoreBusyError
from memory.model import NodeId, TreeId, Vector
from memory.ports.index import Candidate, IndexAnswer, IndexEntry, IndexQuery, NodeIndex
from memory.ports.store import TreeStore
from memory.retrieval.text import plain, terms
from memory.service.indexing import Indexing, aside_of, index_entry

BEGINNINGS = 1 << 48
COMMITS_PER_STEP = 256
TURN = 60.0
"""Seconds that a process which makes an index anew may be silent before another takes it over."""
SWAPS_MAX = 20
"""Times that the new index is brought level with a tree that goes on growing."""
NODES_PER_PAGE = 256
PROBES = 3
"""Directions in which vectors are compared."""
COSINE_TOLERANCE = 2e-3
PROBE_CHARACTERS = 500
NAMED_MAX = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What became of comparing an index with the store."""

    tree: TreeId
    seq: int
    """The commit that both stood at."""
    nodes: int
    """In the store, the root left out."""
    missing: int
    """Not in the index."""
    differing: int
    """In the index, but with another vector, text or item."""
    superfluous: int
    """In the index, but not in the store."""
    examples: tuple[NodeId, ...]
    """Some of those that are missing or differ."""

    @property
    def level(self) -> bool:
        """Whether the index says what the store says."""
        return not (self.missing or self.differing or self.superfluous)


class Reindexing:
    """
    Verifies and rebuilds indexes.

    Args:
        store: the truth.
        index: what is derived from it.
    """

    def __init__(self, *, store: TreeStore, index: NodeIndex) -> None:
        self._store = store
        self._index = index
        self._level = Indexing(store=store, index=index)
        self._anew = Indexing(store=store, index=_Aside(index))

    async def rebuild(self, tree: TreeId, *, progress: Callable[[int, int], None] = lambda _done, _total: None) -> int:
        """
        Make a tree's index anew; the old one answers until the new one takes its place. Goes on where an earlier call ended.

        Args:
            tree: which.
            progress: called with the commits that are done and those there are.

        Returns:
            The commit that the new index covers.

        Raises:
            TreeNotFoundError: there is no such tree.
            StoreBusyError: another process is making it anew, the tree grows faster than its index can be made, or the store gives
                less than it should have.
        """
        aside = aside_of(tree)
        info = await self._store.tree(tree)
        if not await self._index.take_turn(aside, seconds=TURN):
            raise StoreBusyError(f"another process is making the index of tree {tree!r} anew", retry_after=TURN)
        try:
            stats = await self._store.stats(tree)
            await self._index.prepare(aside, nodes=stats.nodes - 1, dimension=info.model.dimension)
            for _ in range(SWAPS_MAX):
                covered = await self._bring_up(tree, aside, progress)
                if await self._index.adopt(tree, aside):
                    return covered
        finally:
            await self._index.end_turn(aside)
        raise StoreBusyError(f"tree {tree!r} grows faster than its index can be made anew; try again", retry_after=TURN)

    async def _bring_up(self, tree: TreeId, aside: TreeId, progress: Callable[[int, int], None]) -> int:
        total = (await self._store.tree(tree)).seq
        covered = await self._anew.catch_up(tree, to=0)
        while covered < total:
            progress(covered, total)
            # To lose the turn is to work beside another: the index takes each update once.
            await self._index.take_turn(aside, seconds=TURN)
            before, covered = covered, await self._anew.catch_up(tree, to=min(total, covered + COMMITS_PER_STEP))
            if covered <= before:
                raise StoreBusyError(
                    f"tree {tree!r}: the new index stays at commit {before:,} of {total:,}, the store gives no later one; retry",
                    retry_after=TURN,
                )
        progress(covered, total)
        return covered

    async def verify(self, tree: TreeId, *, progress: Callable[[int, int], None] = lambda _done, _total: None) -> Comparison:
        """
        Bring the index level with the store, and compare every node; nothing is repaired.

        Compared are: that it is there, what it is of, where its vector points, and whether it shares words with a sample of texts.

        Args:
            tree: which.
            progress: called with the nodes that are done and those there are.

        Raises:
            TreeNotFoundError: there is no such tree.
        """
        nodes = (await self._store.skeleton(tree)).ids[1:]
        suspects = await self._suspects(tree, nodes, progress)
        # What was written meanwhile looks wrong once.
        wrong = await self._suspects(tree, list(suspects), lambda _done, _total: None) if suspects else {}
        missing = sum(1 for found in wrong.values() if not found)
        seq, held, kept = await self._sizes(tree)
        return Comparison(
            tree=tree,
            seq=seq,
            nodes=kept,
            missing=missing,
            differing=len(wrong) - missing,
            superfluous=max(0, held - (kept - missing)),
            examples=tuple(list(wrong)[:NAMED_MAX]),
        )

    async def _suspects(self, tree: TreeId, nodes: Sequence[NodeId], progress: Callable[[int, int], None]) -> dict[NodeId, bool]:
        """Nodes that the index does not have as the store has them, to whether it has them at all."""
        await self._level.catch_up(tree)
        found: dict[NodeId, bool] = {}
        for start in range(0, len(nodes), NODES_PER_PAGE):
            progress(start, len(nodes))
            page = await self._store.nodes(tree, nodes[start : start + NODES_PER_PAGE], vectors=True)
            entries = [index_entry(node) for node in page.values()]
            for number, probe in enumerate(_probes(len(entries[0].vector) if entries else 1, start)):
                sample = plain(entries[number % len(entries)].text[:PROBE_CHARACTERS])
                query = IndexQuery(vector=probe, terms=sample)
                held = {one.node: one for one in await self._index.score(tree, query, [entry.node for entry in entries])}
                wanted = set(terms(sample))
                for entry in entries:
                    one = held.get(entry.node)
                    if one is None or not _agree(entry, one, probe, wanted):
                        found[entry.node] = one is not None
        progress(len(nodes), len(nodes))
        return found

    async def _sizes(self, tree: TreeId) -> tuple[int, int, int]:
        """A commit, the nodes that the index holds then, and those that the store has then."""
        for _ in range(SWAPS_MAX):
            covered = await self._level.catch_up(tree)
            stats = await self._store.stats(tree)
            size = await self._index.size(tree)
            if stats.seq == covered == await self._index.covered(tree):
                return covered, size, stats.nodes - 1
        raise StoreBusyError(f"tree {tree!r} grows too fast for its index to be compared; try again", retry_after=TURN)


def _probes(dimension: int, seed: int) -> list[Vector]:
    """Unit vectors to compare vectors along; the same for the same seed."""
    rows = np.random.default_rng(seed).standard_normal((PROBES, dimension)).astype(np.float32)
    return list(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def _agree(entry: IndexEntry, one: Candidate, probe: Vector, wanted: set[str]) -> bool:
    """Whether a candidate is of the entry, as far as can be seen along a probe and by the words of a sample."""
    return (
        (entry.kind, entry.mark, entry.event_id, entry.sequence, entry.speaker, entry.at)
        == (one.kind, one.mark, one.event_id, one.sequence, one.speaker, one.at)
        and abs(float(entry.vector @ probe) - one.dense) <= COSINE_TOLERANCE
        and (one.lexical > 0) == (not wanted.isdisjoint(terms(entry.text)))
    )


class Outgrown:
    """
    Makes the indexes of trees that have outgrown theirs anew, one after the other, beside everything else.

    Args:
        reindexing: does it.
    """

    def __init__(self, reindexing: Reindexing) -> None:
        self._reindexing = reindexing
        self._waiting: dict[TreeId, None] = {}
        self._task: asyncio.Task[None] | None = None

    def __call__(self, tree: TreeId) -> None:
        """Have a tree's index made anew soon, unless that is already about to be."""
        self._waiting[tree] = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._work())

    async def close(self) -> None:
        """Stop; what is half made is gone on with by whoever comes next. Idempotent."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _work(self) -> None:
        while self._waiting:
            tree = next(iter(self._waiting))
            # Another process may be at it, or the store away: the next update of the tree asks again.
            with suppress(BanyanError):
                await self._reindexing.rebuild(tree)
            self._waiting.pop(tree, None)


class _Aside(NodeIndex):
    """
    An index whose trees go under another name.

    Each begins at a commit of its own, below 0, which is written before anything is read that goes into it. When something is
    forgotten it is dropped (`Indexing`, `Forgetting`), and what was read before that is refused afterwards. From 0 on it would be
    taken, and a process that is killed then would leave on disk what all others believe to be gone.
    """

    def __init__(self, index: NodeIndex) -> None:
        self._index = index
        self._begun: dict[TreeId, int] = {}

    async def covered(self, tree: TreeId) -> int:
        aside = aside_of(tree)
        if not await self._index.covered(aside):
            await self._index.update(aside, after=0, seq=-1 - secrets.randbelow(BEGINNINGS), upserts=())
        found = await self._index.covered(aside)
        if found < 0:
            self._begun[tree] = found
        return max(found, 0)

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
        stands = after or self._begun.get(tree, 0)
        return await self._index.update(aside_of(tree), after=stands, seq=seq, upserts=upserts, removes=removes, stamp=stamp)

    async def stamp(self, tree: TreeId) -> str:
        return await self._index.stamp(aside_of(tree))

    async def search(self, tree: TreeId, query: IndexQuery) -> IndexAnswer:
        return await self._index.search(aside_of(tree), query)

    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Sequence[Candidate]:
        return await self._index.score(aside_of(tree), query, nodes)

    async def speakers(self, tree: TreeId, *, limit: int) -> frozenset[str]:
        return await self._index.speakers(aside_of(tree), limit=limit)

    async def size(self, tree: TreeId) -> int:
        return await self._index.size(aside_of(tree))

    async def adopt(self, tree: TreeId, made: TreeId) -> bool:
        return await self._index.adopt(aside_of(tree), made)

    async def expunge(self, tree: TreeId) -> None:
        await self._index.expunge(aside_of(tree))

    async def drop(self, tree: TreeId) -> None:
        await self._index.drop(aside_of(tree))

    async def close(self) -> None:
        """It is another's to close."""
