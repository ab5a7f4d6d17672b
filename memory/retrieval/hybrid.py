"""The default strategy: vectors and BM25, fused, spread to neighbouring turns, with what the question hints at (decision 0003)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from memory.model import Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Candidate, IndexAnswer, IndexQuery, NodeIndex, Scope
from memory.retrieval.hints import date_hints, named_speakers, without_names
from memory.retrieval.ranking import Hints, Recipe, Scoring
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.text import mention_keys, plain, title_key

MENTIONS_AMONG = 20
"""Best candidates among which the documents whose mentions are followed are looked for."""
TITLED_PER_SOURCE = 10
"""Documents that one text's mentions lead to, rarest titles first."""

Embed = Callable[[str], Awaitable[Vector]]
"""A query text to (d,) float32 of unit length."""


class NodeReader(Protocol):
    """Gives nodes by id; the store does."""

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> Mapping[NodeId, Node]:
        """Those of the nodes that exist."""


class Hybrid(Strategy):
    """
    Score fusion of cosine and BM25 over leaves and summaries, with the scores of neighbouring turns.

    1. Candidates by vector and by BM25, and the turns around them. When the question names a speaker, the vector is mostly that of
       the question without the name.
    2. Cosines scaled from the 50th best to the best, BM25 by the best; fused 0.4 to 0.6.
    3. A turn's score is pooled with those of the two turns before and after it.
    4. Factors for the named speaker and date; a bonus for documents whose title the question names, or one of the best hits does.

    Args:
        index: where vectors and words are.
        reader: gives the texts of the best hits, so that the titles they mention can be followed; None leaves that out.
        embed: makes a query's vector; None leaves speakers' names in the one that comes with the question.
        recipe: the parameters.
    """

    name = "hybrid"

    def __init__(
        self, index: NodeIndex, *, reader: NodeReader | None = None, embed: Embed | None = None, recipe: Recipe | None = None
    ) -> None:
        self._index = index
        self._reader = reader
        self._embed = embed
        self._recipe = recipe or Recipe()

    async def rank(self, question: Question) -> Ranking:
        """See `Strategy.rank`."""
        recipe = self._recipe
        width = max(recipe.candidates, question.k)
        query = IndexQuery(
            vector=question.vector,
            terms=plain(question.text),
            dense_k=width,
            lexical_k=width,
            spread=recipe.spread,
            scope=question.scope,
        )
        trace: list[str] = []
        speakers = await self._named(question.tree, query) if self._embed is not None else frozenset()
        bare = without_names(question.text, speakers) if speakers else ""
        if bare and self._embed is not None:
            query = replace(query, vector=_mixed(await self._embed(bare), recipe.nameless_weight, question.vector))
            trace.append(f"named: {', '.join(sorted(speakers))}; also asked as {bare!r}")
        answer = await self._index.search(question.tree, query)
        speakers |= named_speakers(question.text, (candidate.speaker for candidate in answer.found))
        hints = Hints(speakers=speakers, dates=date_hints(question.text))
        if hints.dates:
            trace.append(f"dates: {', '.join(str(hint) for hint in hints.dates)}")
        trace.append(f"{len(answer.found)} candidates, {len(answer.around)} turns around them")
        scoring = Scoring(answer.found, answer.around, hints=hints, recipe=recipe)
        # Documents are what titles lead to; a memory of conversations alone is not asked for any.
        if any(_is_document(candidate) for candidate in answer.found):
            scoring = await self._follow_titles(question, query, answer, hints, scoring, trace)
        best = scoring.best(question.k, may_answer=lambda candidate: _may_answer(candidate, question.scope))
        ranked = tuple(
            Ranked(
                node=scoring.candidates[index].node,
                score=float(scoring.scores[index]),
                parts=scoring.parts(index) if question.explain else {},
            )
            for index in best
        )
        return Ranking(ranked=ranked, seq=answer.seq, trace=tuple(trace) if question.explain else ())

    async def _named(self, tree: TreeId, query: IndexQuery) -> frozenset[str]:
        """Speakers whom the question names: their own turns carry their names, so that words alone lead to some of them."""
        by_words = replace(query, dense_k=0, lexical_k=self._recipe.candidates, spread=0)
        found = (await self._index.search(tree, by_words)).found
        return named_speakers(query.terms, (candidate.speaker for candidate in found))

    async def _follow_titles(
        self, question: Question, query: IndexQuery, answer: IndexAnswer, hints: Hints, scoring: Scoring, trace: list[str]
    ) -> Scoring:
        """The scores again, with bonuses for documents that the question or one of the best hits names by their title."""
        recipe = self._recipe
        asked = await self._titled(query, question.tree, mention_keys(question.text, capitals=False))
        bonus = dict.fromkeys(asked, recipe.title_bonus)
        if bonus:
            trace.append(f"the question names the titles of {len(bonus)} documents")
            scoring = await self._rescored(question.tree, query, answer, hints, bonus)
        best = scoring.best(MENTIONS_AMONG, may_answer=lambda _: False)
        sources = [
            (scoring.candidates[index].node, float(scoring.scores[index]))
            for index in best
            if _is_document(scoring.candidates[index])
        ][: recipe.mention_sources]
        if self._reader is None or not sources or not recipe.mention_bonus:
            return scoring
        texts = await self._reader.nodes(question.tree, [node for node, _ in sources])
        mentions = await asyncio.gather(*(self._titled(query, question.tree, _mentions(texts.get(node))) for node, _ in sources))
        followed: dict[NodeId, float] = {}
        for (_, score), named in zip(sources, mentions, strict=True):
            for node in named:
                followed[node] = max(followed.get(node, 0.0), recipe.mention_bonus * score)
        if not followed:
            return scoring
        trace.append(f"the best hits name the titles of {len(followed)} documents")
        total = {node: bonus.get(node, 0.0) + followed.get(node, 0.0) for node in bonus.keys() | followed.keys()}
        return await self._rescored(question.tree, query, answer, hints, total)

    async def _titled(self, query: IndexQuery, tree: TreeId, keys: Iterable[str]) -> list[NodeId]:
        """Leaves in scope with one of the titles."""
        terms = "".join(keys)
        if not terms:
            return []
        by_title = replace(query, terms=terms, dense_k=0, lexical_k=TITLED_PER_SOURCE, spread=0)
        return [candidate.node for candidate in (await self._index.search(tree, by_title)).found]

    async def _rescored(
        self, tree: TreeId, query: IndexQuery, answer: IndexAnswer, hints: Hints, bonus: Mapping[NodeId, float]
    ) -> Scoring:
        known = {candidate.node for candidate in answer.found}
        missing = [node for node in bonus if node not in known]
        added = await self._index.score(tree, query, missing) if missing else []
        around = [candidate for candidate in answer.around if candidate.node not in bonus]
        return Scoring(answer.found, around, added=added, hints=hints, recipe=self._recipe, bonus=bonus)


def _mixed(bare: Vector, weight: float, full: Vector) -> Vector:
    mixed = weight * bare + full
    length = float(np.linalg.norm(mixed))
    return np.asarray(mixed / length, np.float32) if length > 0 else full


def _mentions(node: Node | None) -> dict[str, None]:
    """Keys of the titles that a document's text may name, without its own."""
    if node is None or node.item is None:
        return {}
    keys = mention_keys(node.item.text, capitals=True)
    if node.item.title:
        keys.pop(title_key(node.item.title), None)
    return keys


def _is_document(candidate: Candidate) -> bool:
    return candidate.kind is NodeKind.LEAF and (candidate.sequence is None or candidate.sequence.startswith("d:"))


def _may_answer(candidate: Candidate, scope: Scope) -> bool:
    """Whether a neighbour that lent its score may itself be a hit: only where the scope cannot have left it out."""
    return not scope.leaves_only and (scope.kinds is None or candidate.kind in scope.kinds)
