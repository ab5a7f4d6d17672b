"""Traversal retrieval (MemTree, A.3.5): down the tree from the root, the best few of each level."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from memory.errors import QueryError
from memory.model import NodeId, NodeKind, TreeId
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.tree.view import View


class ViewReader(Protocol):
    """Gives a tree's view, up to date, for as long as it is held."""

    def hold(self, tree: TreeId) -> AbstractAsyncContextManager[View]:
        """The view, exclusively; not to be changed."""


class Traversal(Strategy):
    """
    Level by level, the k most similar among the children of the nodes kept one level above; then the best k of all that were kept.

    The paper keeps everything it passes until the context is full. With one k for the answer and the beam this takes the best of
    it, so that its hits compare with those of the other strategies.

    Args:
        views: the trees.
    """

    name = "traversal"

    def __init__(self, views: ViewReader) -> None:
        self._views = views

    async def rank(self, question: Question) -> Ranking:
        """See `Strategy.rank`."""
        if question.scope.leaves_only:
            raise QueryError(
                "traversal cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed",
                field="filter",
            )
        kept: list[tuple[float, NodeId]] = []
        trace: list[str] = []
        async with self._views.hold(question.tree) as view:
            beam, depth = [view.root], 0
            while beam:
                level: list[tuple[float, NodeId]] = []
                for branch in beam:
                    if branch.ids:
                        level.extend(zip(branch.cosines(question.vector).tolist(), branch.ids, strict=True))
                level.sort(key=lambda scored: (-scored[0], scored[1]))
                best = level[: question.k]
                kept.extend(best)
                depth += 1
                if question.explain and level:
                    trace.append(f"depth {depth}: {len(level)} children of {len(beam)} nodes, best {best[0][1]} ({best[0][0]:.3f})")
                beam = [view.branches[node] for _, node in best if node in view.branches]
            kinds = question.scope.kinds
            wanted = [
                (score, node)
                for score, node in kept
                if kinds is None or (NodeKind.SUMMARY if node in view.branches else NodeKind.LEAF) in kinds
            ]
            seq = view.seq
        wanted.sort(key=lambda scored: (-scored[0], scored[1]))
        ranked = tuple(
            Ranked(node=node, score=score, parts={"dense": score} if question.explain else {})
            for score, node in wanted[: question.most]
        )
        return Ranking(ranked=ranked, seq=seq, trace=tuple(trace))
