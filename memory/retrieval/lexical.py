"""BM25 alone: what can be answered without an embedding model."""

from __future__ import annotations

from memory.ports.index import Candidates, IndexQuery, NodeIndex
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.text import plain


class Lexical(Strategy):
    """
    The k nodes, summaries or leaves, whose words fit the question's best; those that share no word with it are left out.

    Args:
        index: where the words are.
    """

    name = "bm25"
    embeds = False

    def __init__(self, index: NodeIndex) -> None:
        self._index = index

    async def rank(self, question: Question) -> Ranking:
        """See `Strategy.rank`."""
        query = IndexQuery(
            vector=question.vector, terms=plain(question.text), dense_k=0, lexical_k=question.most, scope=question.scope
        )
        answer = await self._index.search(question.tree, query)
        found = Candidates.of(answer.found)
        best = sorted(zip((-found.lexical).tolist(), found.nodes, strict=True))
        ranked = tuple(
            Ranked(node=node, score=-negated, parts={"lexical": -negated} if question.explain else {})
            for negated, node in best[: question.most]
            if negated < 0
        )
        trace = (f"{len(ranked)} nodes share words with the question",)
        return Ranking(ranked=ranked, seq=answer.seq, trace=trace if question.explain else ())
