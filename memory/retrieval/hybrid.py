"""The default strategy: vectors and BM25, fused, spread to neighbouring turns, with what the question hints at (decision 0003)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from memory.model import Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Candidates, IndexAnswer, IndexQuery, NodeIndex, Scope
from memory.retrieval.hints import date_hints, named_speakers, without_names
from memory.retrieval.ranking import Hints, Recipe, Scoring
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.text import mention_keys, plain, title_key

MENTIONS_AMONG = 20
"""Best candidates among which the documents whose mentions are followed are looked for."""
TITLED_PER_SOURCE = 10
"""Documents that one text's mentions lead to, rarest titles first."""

SPEAKERS_MAX = 256
"""Speakers of a tree that a question is compared with one by one; of a tree with more, only those whom its words lead to."""

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
        speakers, all_known = await self._named(question.tree, query)
        bare = without_names(question.text, speakers) if speakers else ""
        if bare and self._embed is not None:
            query = replace(query, vector=_mixed(await self._embed(bare), recipe.nameless_weight, question.vector))
            trace.append(f"named: {', '.join(sorted(speakers))}; also asked as {bare!r}")
        answer = await self._index.search(question.tree, query)
        found = Candidates.of(answer.found)
        if not all_known:
            speakers |= named_speakers(question.text, found.speakers)
        hints = Hints(speakers=speakers, dates=date_hints(question.text))
        if hints.dates:
            trace.append(f"dates: {', '.join(str(hint) for hint in hints.dates)}")
        trace.append(f"{len(found)} candidates, {len(answer.around)} turns around them")
        scoring = Scoring(found, answer.around, hints=hints, recipe=recipe)
        # Documents are what titles lead to; a memory of conversations alone is not asked for any.
        if any(_is_document(found, place) for place in range(len(found))):
            scoring = await self._follow_titles(question, query, answer, hints, scoring, trace)
        best = scoring.best(question.most, around=_may_answer(question.scope))
        ranked = tuple(
            Ranked(
                node=scoring.candidates.nodes[index],
                score=float(scoring.scores[index]),
                parts=scoring.parts(index) if question.explain else {},
            )
            for index in best
        )
        return Ranking(ranked=ranked, seq=answer.seq, trace=tuple(trace) if question.explain else ())

    async def _named(self, tree: TreeId, query: IndexQuery) -> tuple[frozenset[str], bool]:
        """
        Speakers whom the question names, and whether these are all.

        Of a tree with very many speakers only those are looked at who said what the question's words lead to: their own turns carry
        their names.
        """
        speakers = await self._index.speakers(tree, limit=SPEAKERS_MAX + 1)
        if len(speakers) <= SPEAKERS_MAX:
            return named_speakers(query.terms, speakers), True
        if self._embed is None:
            return frozenset(), False
        by_words = replace(query, dense_k=0, lexical_k=self._recipe.candidates, spread=0)
        found = (await self._index.search(tree, by_words)).found
        return named_speakers(query.terms, Candidates.of(found).speakers), False

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
        best = scoring.best(MENTIONS_AMONG, around=False)
        sources = [
            (scoring.candidates.nodes[index], float(scoring.scores[index]))
            for index in best
            if _is_document(scoring.candidates, index)
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
        return list(Candidates.of((await self._index.search(tree, by_title)).found).nodes)

    async def _rescored(
        self, tree: TreeId, query: IndexQuery, answer: IndexAnswer, hints: Hints, bonus: Mapping[NodeId, float]
    ) -> Scoring:
        known = set(Candidates.of(answer.found).nodes)
        missing = [node for node in bonus if node not in known]
        added = await self._index.score(tree, query, missing) if missing else ()
        beside = Candidates.of(answer.around)
        around = beside.take([place for place, node in enumerate(beside.nodes) if node not in bonus])
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


def _is_document(candidates: Candidates, place: int) -> bool:
    sequence = candidates.sequences[place]
    return bool(candidates.leaves[place]) and (sequence is None or sequence.startswith("d:"))


def _may_answer(scope: Scope) -> bool:
    """Whether neighbours that lent their score may themselves be hits: only where the scope cannot have left leaves out."""
    return not scope.leaves_only and (not scope.kinds or NodeKind.LEAF in scope.kinds)
