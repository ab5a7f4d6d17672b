"""Collapsed retrieval (MemTree, section 3.2): all nodes as one set, by cosine."""

from __future__ import annotations

from memory.model import TreeId
from memory.ports.index import Candidates, IndexQuery, NodeIndex
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy


class Collapsed(Strategy):
    """
    The k nodes, summaries or leaves, most similar to the query, leaving out those below a threshold.

    Args:
        index: where the vectors are.
        cosine_min: θ_retrieve of section 3.2, a cosine in [-1, 1]; the paper gives no value. The default leaves out what points
            away from the query.
    """

    name = "collapsed"

    def __init__(self, index: NodeIndex, *, cosine_min: float = 0.0) -> None:
        self._index = index
        self._cosine_min = cosine_min

    async def rank(self, question: Question) -> Ranking:
        """See `Strategy.rank`."""
        query = IndexQuery(vector=question.vector, terms="", dense_k=question.most, lexical_k=0, scope=question.scope)
        answer = await self._index.search(TreeId(question.tree), query)
        found = Candidates.of(answer.found)
        best = sorted(zip((-found.dense).tolist(), found.nodes, strict=True))
        ranked = tuple(
            Ranked(node=node, score=-negated, parts={"dense": -negated} if question.explain else {})
            for negated, node in best[: question.most]
            if -negated >= self._cosine_min
        )
        trace = (f"{len(found)} nearest nodes, {len(ranked)} of them with a cosine of at least {self._cosine_min:g}",)
        return Ranking(ranked=ranked, seq=answer.seq, trace=trace if question.explain else ())
