"""A question to hits (design section 5): embed, bring the index level, rank, fill in texts, sources and ancestors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from memory.errors import FilterError, QueryError
from memory.model import Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.context_filter import ContextFilter
from memory.ports.embedder import Embedder
from memory.ports.index import NodeIndex, Scope
from memory.ports.navigator import Navigator
from memory.ports.store import TreeStore
from memory.ports.summarizer import estimate_tokens
from memory.results import Crumb, Hit, SearchAnswer, Source
from memory.retrieval.agent import Agent
from memory.retrieval.catalogue import check_pair
from memory.retrieval.collapsed import Collapsed
from memory.retrieval.descent import Descent
from memory.retrieval.grouping import best_of_each
from memory.retrieval.hybrid import Hybrid
from memory.retrieval.lexical import Lexical
from memory.retrieval.packing import Passage, pack
from memory.retrieval.repeats import without_repeats
from memory.retrieval.router import GranularityRouter
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.traversal import Traversal
from memory.service.embedding import check_model, embed
from memory.service.indexing import Indexing
from memory.service.views import Views
from memory.settings import RetrievalSettings
from memory.tree.provisional import without_phrases

Grouping = Literal["none", "conversation", "document"]

_LEAVES = frozenset({NodeKind.LEAF})

SOURCES_MAX = 20
"""Event ids that a summary's hit names."""
GROUP_WIDTH = 10
"""Leaves ranked for each group wanted."""
SPARE_MIN = 20
"""Nodes ranked beside those wanted, at least, where some may repeat others; as many as are wanted, if these are more."""
CONTEXT_TOKENS_MAX = 1_000_000
CONTEXT_HITS_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Prompt-ready text."""

    text: str
    tokens: int
    """Estimated, at most what was asked for."""
    hits: tuple[Hit, ...]
    """Those that are in it, in its order; of a text that was filtered, those that it was made of."""
    seq: int
    filtered: bool = False
    """Whether a model left out what does not matter."""
    note: str = ""
    """Why it was not filtered although it should have been."""


class Query:
    """
    Answers questions.

    Args:
        store, index, embedder: the ports.
        indexing: brings the index level before each answer.
        views: of this process, for strategies that walk the tree.
        settings: limits.
        navigator: chooses the moves of `agent`; None goes by similarity.
        context_filter: leaves out of contexts what does not matter; None leaves all in.
    """

    def __init__(
        self,
        *,
        store: TreeStore,
        index: NodeIndex,
        indexing: Indexing,
        views: Views,
        embedder: Embedder,
        settings: RetrievalSettings,
        navigator: Navigator | None = None,
        context_filter: ContextFilter | None = None,
    ) -> None:
        self._store = store
        self._asked: Callable[[TreeId], None] = lambda _: None
        self._indexing = indexing
        self._embedder = embedder
        self._settings = settings
        self._filter = context_filter
        strategies: tuple[Strategy, ...] = (
            Hybrid(index, reader=store, embed=self.embed),
            Collapsed(index),
            Lexical(index),
            Traversal(views),
            Agent(views, store, index=index, navigator=navigator),
            Descent(views),
            GranularityRouter(views),
        )
        self.strategies: Mapping[str, Strategy] = {strategy.name: strategy for strategy in strategies}

    def on_question(self, call: Callable[[TreeId], None]) -> None:
        """Have `call` called with the tree of each question."""
        self._asked = call

    async def search(
        self,
        tree: TreeId,
        text: str,
        *,
        k: int = 10,
        strategy: str = "hybrid",
        scope: Scope,
        group: Grouping = "none",
        explain: bool = False,
    ) -> SearchAnswer:
        """
        The best hits for a question, none of which says what one above or below it in the tree says.

        Args:
            tree: which memory.
            text: the question.
            k: hits, or groups, wanted.
            strategy: by name.
            scope: filters.
            group: `conversation` or `document`: one hit each, its best leaf.
            explain: fill parts and trace.

        Raises:
            QueryError: out of bounds; the message says which.
        """
        ranking = await self._rank(tree, text, k=k, strategy=strategy, scope=scope, group=group, explain=explain)
        ranked: Sequence[Ranked] = ranking.ranked
        if group != "none":
            ungrouped = await self._store.nodes(tree, [each.node for each in ranked])
            ranked = [each for each in ranked if each.node in ungrouped]
            ranked = best_of_each(ranked, lambda each: _group(ungrouped[each.node], group), limit=k)
        chosen, nodes = await self._chosen(tree, ranked, k)
        hits = await self._hits(tree, chosen, nodes)
        return SearchAnswer(hits=hits, seq=ranking.seq, strategy=strategy, trace=ranking.trace)

    async def context(
        self,
        tree: TreeId,
        text: str,
        *,
        tokens: int,
        strategy: str = "hybrid",
        scope: Scope,
        context_filter: bool | None = None,
    ) -> Context:
        """
        Hits packed into a token budget, in time order; what a chosen summary says is not repeated by leaves below it.

        With a filter, what does not matter to the question is then left out (MemGAS, section 2.4). Where the filter is away all of
        it stays, and the answer says so.

        Args:
            tree: which memory.
            text: the question.
            tokens: most of them, before anything is left out.
            strategy: by name.
            scope: filters.
            context_filter: whether this question's context is filtered; None where there is a filter.

        Raises:
            QueryError: out of bounds, or a filter is asked for where there is none.
        """
        if context_filter and self._filter is None:
            raise QueryError(
                "context_filter: there is no model to filter with; set BANYAN_CONTEXT_FILTER=openai:MODEL", field="context_filter"
            )
        if not 1 <= tokens <= CONTEXT_TOKENS_MAX:
            raise QueryError(f"tokens must be between 1 and {CONTEXT_TOKENS_MAX:,}, got {tokens}", field="tokens")
        k = max(5, min(CONTEXT_HITS_MAX, self._settings.k_max, tokens // 10))
        answer = await self.search(tree, text, k=k, strategy=strategy, scope=scope)
        passages = [_passage(hit) for hit in answer.hits]
        packed = pack(passages, tokens_max=tokens)
        by_id = {hit.id: hit for hit in answer.hits}
        hits = tuple(by_id[passage.node] for passage in packed)
        texts = [passage.text for passage in packed]
        note = ""
        if self._filter is not None and context_filter is not False and texts:
            try:
                kept = await self._filter.keep(text, texts)
            except FilterError as error:
                note = str(error)
            else:
                return Context(text=kept, tokens=estimate_tokens(kept), hits=hits, seq=answer.seq, filtered=True)
        used = sum(map(estimate_tokens, texts))
        return Context(text="\n".join(texts), tokens=used, hits=hits, seq=answer.seq, note=note)

    async def embed(self, text: str) -> Vector:
        """The query's vector."""
        [vector] = await embed(self._embedder, [text], purpose="query")
        return vector

    async def _rank(
        self, tree: TreeId, text: str, *, k: int, strategy: str, scope: Scope, group: Grouping, explain: bool
    ) -> Ranking:
        text = text.strip()
        if not text:
            raise QueryError("query: is empty")
        if len(text) > self._settings.query_characters_max:
            raise QueryError(f"query: has {len(text):,} characters, at most {self._settings.query_characters_max:,} are taken")
        if not 1 <= k <= self._settings.k_max:
            raise QueryError(f"k must be between 1 and {self._settings.k_max:,}, got {k}", field="k")
        if strategy not in self.strategies:
            raise QueryError(f"strategy {strategy!r} is not known; there is {', '.join(self.strategies)}", field="strategy")
        info = await self._store.tree(tree)
        check_model(info, self._embedder)
        check_pair(strategy, info.structure)
        chosen = self.strategies[strategy]
        vector = await self.embed(text) if chosen.embeds else np.zeros(info.model.dimension, np.float32)
        # Up to the commits that were there when the question came: one read of the store less.
        await self._indexing.catch_up(tree, to=info.seq)
        self._asked(tree)
        wanted = k if group == "none" else min(self._settings.k_max, k * GROUP_WIDTH)
        if group != "none":
            scope = replace(scope, kinds=_LEAVES)
        question = Question(
            tree=tree,
            text=text,
            vector=vector,
            k=wanted,
            # No leaf is above another.
            spare=0 if scope.leaves_only or scope.kinds == _LEAVES else max(SPARE_MIN, k),
            parameters=info.parameters,
            scope=scope,
            explain=explain,
        )
        ranking = await chosen.rank(question)
        if ranking.seq < info.seq:
            # An index that found itself damaged when it read the tree has begun anew, and answered from nothing.
            await self._indexing.catch_up(tree, to=info.seq)
            ranking = await chosen.rank(question)
        return ranking

    async def _chosen(self, tree: TreeId, ranked: Sequence[Ranked], k: int) -> tuple[list[Ranked], dict[NodeId, Node]]:
        """The k best that there still are and that repeat nothing, and these with all above them."""
        nodes = dict(await self._store.lineage(tree, [each.node for each in ranked[:k]]))
        chosen = without_repeats(ranked[:k], nodes, limit=k)
        if len(chosen) < min(k, len(ranked)):
            nodes |= await self._store.lineage(tree, [each.node for each in ranked[k:]])
            chosen = without_repeats(ranked, nodes, limit=k)
        return chosen, nodes

    async def _hits(self, tree: TreeId, ranked: Sequence[Ranked], nodes: Mapping[NodeId, Node]) -> tuple[Hit, ...]:
        """Hits of the nodes that were ranked; `nodes` has them and all above them."""
        summaries = [found.node for found in ranked if nodes[found.node].item is None]
        below = await self._store.events_below(tree, summaries, limit=SOURCES_MAX) if summaries else {}
        hits = []
        for found in ranked:
            node = nodes[found.node]
            item = node.item
            path = [Crumb(id=above.id, text=above.text) for above in _path(node, nodes)]
            sources = (item.event_id,) if item is not None else below[node.id]
            hits.append(
                Hit(
                    id=node.id,
                    kind=node.kind,
                    score=found.score,
                    text=node.text,
                    depth=len(path) + 1,
                    event_id=item.event_id if item is not None else None,
                    chunk=item.chunk if item is not None else 0,
                    source=_source(node),
                    sources=sources,
                    path=tuple(path),
                    descendants=node.descendants,
                    pending=node.pending,
                    provisional=node.provisional,
                    metadata=item.metadata if item is not None else {},
                    parts=found.parts,
                )
            )
        return tuple(hits)


def _path(node: Node, ancestors: Mapping[NodeId, Node]) -> list[Node]:
    path: list[Node] = []
    above = ancestors.get(node.parent) if node.parent is not None else None
    while above is not None:
        path.append(above)
        above = ancestors.get(above.parent) if above.parent is not None else None
    return path[::-1]


def _source(node: Node) -> Source | None:
    item = node.item
    if item is None:
        return None
    return Source(
        event_id=item.event_id,
        chunk=item.chunk,
        conversation=item.conversation,
        speaker=item.speaker,
        source=item.source,
        title=item.title,
        url=item.url,
        at=item.at,
    )


def _group(node: Node, group: Grouping) -> str | None:
    if node.item is None:
        return None
    return node.item.conversation if group == "conversation" else node.item.event_id


def _passage(hit: Hit) -> Passage:
    source = hit.source
    if source is None:
        above = tuple(crumb.id for crumb in hit.path)
        return Passage(node=hit.id, text=without_phrases(hit.text), path=above, covered=hit.pending == 0)
    who = source.speaker or source.title or source.source
    when = (
        source.at.replace(tzinfo=None).isoformat(" ", "minutes")
        if source.at and (source.at.hour or source.at.minute)
        else source.at.date().isoformat()
        if source.at
        else ""
    )
    head = f"[{when}] " if when else ""
    return Passage(
        node=hit.id,
        text=f"{head}{who}: {hit.text}" if who else f"{head}{hit.text}",
        path=tuple(crumb.id for crumb in hit.path),
        at=source.at,
        sequence=source.conversation or source.event_id,
        position=hit.chunk,
    )
