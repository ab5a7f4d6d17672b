"""A node index in a dictionary, for tests that are not about searching."""

from __future__ import annotations

from collections.abc import Sequence

from memory.model import NodeId, TreeId
from memory.ports.index import Candidate, IndexAnswer, IndexEntry, IndexQuery, NodeIndex
from tests.fakes.inline_store import Point, nothing
from tests.fakes.plain_index import PlainIndex


class MemoryIndex(NodeIndex):
    """
    Keeps entries; finds by comparing all.

    Args:
        point: called around each update.
    """

    def __init__(self, point: Point = nothing) -> None:
        self._point = point
        self.trees: dict[TreeId, PlainIndex] = {}
        self.seqs: dict[TreeId, int] = {}
        self.stamps: dict[TreeId, str] = {}

    async def covered(self, tree: TreeId) -> int:
        return self.seqs.get(tree, 0)

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
        await self._point("before index")
        if self.seqs.get(tree, 0) != after:
            return False
        self.trees.setdefault(tree, PlainIndex()).update(upserts, removes)
        self.seqs[tree] = seq
        self.stamps[tree] = stamp
        await self._point("after index")
        return True

    async def stamp(self, tree: TreeId) -> str:
        return self.stamps.get(tree, "")

    async def search(self, tree: TreeId, query: IndexQuery) -> IndexAnswer:
        index = self.trees.get(tree, PlainIndex())
        dense = index.best(index.dense(query), query.scope, query.dense_k)
        lexical = index.best(index.lexical(query), query.scope, query.lexical_k)
        best = list(dict.fromkeys([*dense, *lexical]))
        return IndexAnswer(seq=self.seqs.get(tree, 0), found=await self.score(tree, query, best), around=[])

    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> list[Candidate]:
        index = self.trees.get(tree, PlainIndex())
        dense, lexical = index.dense(query), index.lexical(query)
        return [
            Candidate(
                node=node,
                kind=entry.kind,
                mark=entry.mark,
                dense=dense[node],
                lexical=lexical[node],
                event_id=entry.event_id,
                sequence=entry.sequence,
                position=-1,
                speaker=entry.speaker,
                at=entry.at,
            )
            for node in nodes
            if (entry := index.entries.get(node)) is not None
        ]

    async def speakers(self, tree: TreeId, *, limit: int) -> frozenset[str]:
        return frozenset(self.trees.get(tree, PlainIndex()).speakers()[:limit])

    async def size(self, tree: TreeId) -> int:
        return len(self.trees[tree].entries) if tree in self.trees else 0

    async def adopt(self, tree: TreeId, made: TreeId) -> bool:
        if made not in self.seqs or self.seqs[made] < self.seqs.get(tree, 0):
            return False
        self.trees[tree] = self.trees.pop(made)
        self.seqs[tree] = self.seqs.pop(made)
        self.stamps[tree] = self.stamps.pop(made)
        return True

    async def drop(self, tree: TreeId) -> None:
        self.trees.pop(tree, None)
        self.seqs.pop(tree, None)
        self.stamps.pop(tree, None)

    async def close(self) -> None:
        pass
