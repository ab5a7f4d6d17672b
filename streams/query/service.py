"""What the service does, without HTTP: reads that wait for what they are to cover, and writes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

import structlog

from memory.errors import BanyanError, EmbedderAnswerError, EmbedderError, NodeNotFoundError, TreeNotFoundError
from memory.facade import LocalMemory
from memory.model import EventId, Node, NodeId, TreeId, TreeInfo
from memory.ports.index import Scope
from memory.ports.store import Receipt
from memory.records import Feedback, Record
from memory.results import EventResult, ForgetReport, SearchAnswer, TreeReport
from memory.service.history import EventRoute, History
from memory.service.outline import Outline
from memory.service.query import Context
from memory.tree.routing import Decision
from streams.health import dependency
from streams.query.drawing import Drawing
from streams.query.embedding import QueryEmbedder
from streams.query.problems import Problem
from streams.query.writing import Writer

POLL = 0.005  # seconds
POLL_MAX = 0.05  # seconds
ASK_LIMIT = 2.0  # seconds
WITHOUT_VECTORS = "bm25"
DEGRADED = "the embedding model is away: words alone were searched"
_REPLACED = frozenset({"hybrid", "collapsed"})
"""Strategies whose question can be asked by words alone."""
_PROBED = TreeId("banyan:probe")
_log = structlog.stdlib.get_logger("streams.query")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What an answer must cover."""

    min_seq: int | None = None
    event: str | None = None
    seconds: float = 5.0
    """How long to wait for that."""


@dataclass(slots=True)
class Counts:
    """What the service has done; plain numbers that the metrics read."""

    degraded: int = 0
    waits: int = 0
    waits_in_vain: int = 0


class Service:
    """
    A memory and the ways to write to it.

    Args:
        memory: open; closed by whoever opened it.
        writer: where records go.
        embedder: of the memory, when it is one that remembers queries.
    """

    def __init__(self, memory: LocalMemory, writer: Writer, embedder: QueryEmbedder | None = None) -> None:
        self.memory = memory
        self.writer = writer
        self.embedder = embedder
        self.counts = Counts()
        self.store = memory.parts.store
        self.drawing = Drawing(self.store)
        self._history = History(self.store)

    # ------------------------------------------------------------------------------------------------------------ writing

    async def put(self, tree: TreeId, records: Sequence[Record]) -> list[EventResult]:
        """Make records safe; see `Writer.put`."""
        return await self.writer.put(tree, records)

    async def feedback(self, tree: TreeId, feedback: Sequence[Feedback]) -> list[EventResult]:
        """
        Make feedback safe; see `Writer.feedback`.

        Raises:
            TreeNotFoundError, NoWeightsError: the tree takes none.
        """
        await self.memory.parts.weighing.require(tree)
        return await self.writer.feedback(tree, feedback)

    async def forget(
        self, tree: TreeId, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
    ) -> ForgetReport | Sequence[str]:
        """Forget, or have it forgotten; see `Writer.forget`."""
        return await self.writer.forget(tree, events=events, conversation=conversation, before=before)

    # ------------------------------------------------------------------------------------------------------------ reading

    async def search(
        self,
        tree: TreeId,
        query: str,
        *,
        k: int,
        strategy: str,
        scope: Scope,
        group: Literal["none", "conversation", "document"] = "none",
        explain: bool = False,
        wanted: Wanted,
    ) -> tuple[SearchAnswer, str | None]:
        """The hits, and what they are short of, if anything."""
        await self.wait(tree, wanted)

        async def ask(by: str) -> SearchAnswer:
            return await self.memory.search(tree, query, k=k, strategy=by, scope=scope, group=group, explain=explain)

        try:
            return await ask(strategy), None
        except (EmbedderError, EmbedderAnswerError) as error:
            self._degrade(strategy, error)
            return await ask(WITHOUT_VECTORS), DEGRADED

    async def context(
        self,
        tree: TreeId,
        query: str,
        *,
        tokens: int,
        strategy: str,
        scope: Scope,
        context_filter: bool | None = None,
        wanted: Wanted,
    ) -> tuple[Context, str | None]:
        """The text, and what it is short of, if anything."""
        await self.wait(tree, wanted)

        async def ask(by: str) -> Context:
            return await self.memory.context(tree, query, tokens=tokens, strategy=by, scope=scope, context_filter=context_filter)

        try:
            return await ask(strategy), None
        except (EmbedderError, EmbedderAnswerError) as error:
            self._degrade(strategy, error)
            return await ask(WITHOUT_VECTORS), DEGRADED

    def _degrade(self, strategy: str, error: BanyanError) -> None:
        if strategy not in _REPLACED:
            raise error
        self.counts.degraded += 1

    async def wait(self, tree: TreeId, wanted: Wanted) -> None:
        """
        Wait until the tree has what an answer is to cover.

        Raises:
            Problem: it has not come in time.
            TreeNotFoundError: there is no such tree, and nothing was to be waited for.
        """
        if wanted.min_seq is None and wanted.event is None:
            return
        self.counts.waits += 1
        pause = POLL
        try:
            async with asyncio.timeout(wanted.seconds):
                while not await self._has(tree, wanted):
                    await asyncio.sleep(pause)
                    pause = min(POLL_MAX, pause * 1.2)
        except TimeoutError as error:
            self.counts.waits_in_vain += 1
            what = f"event {wanted.event!r}" if wanted.event is not None else f"commit {wanted.min_seq}"
            raise Problem("not-covered", f"{what} has not come within {wanted.seconds:g} s; ask again") from error

    async def _has(self, tree: TreeId, wanted: Wanted) -> bool:
        try:
            if wanted.min_seq is not None and (await self.store.tree(tree)).seq < wanted.min_seq:
                return False
            if wanted.event is not None:
                event = EventId(wanted.event)
                return event in await self.store.receipts(tree, [event])
        except TreeNotFoundError:
            # Its first record may be on its way.
            return False
        return True

    async def trees(self) -> list[TreeInfo]:
        """All trees, by name."""
        return await self.store.trees()

    async def stats(self, tree: TreeId) -> tuple[TreeInfo, TreeReport]:
        """What a tree is and holds."""
        return await self.store.tree(tree), await self.memory.stats(tree)

    async def node(self, tree: TreeId, node: NodeId) -> tuple[Node, list[Node], Sequence[EventId]]:
        """A node, the summaries above it, and the events that its text was made from."""
        found = (await self.store.nodes(tree, [node])).get(node)
        if found is None:
            await self.store.tree(tree)
            raise NodeNotFoundError(f"tree {tree!r} has no node {node[:100]!r}")
        path = await self.drawing.path(tree, found)
        if found.item is not None:
            return found, path, (found.item.event_id,)
        below = await self.store.events_below(tree, [node], limit=20)
        return found, path, below[node]

    async def event(self, tree: TreeId, event: EventId) -> tuple[Receipt, Mapping[NodeId, Node]]:
        """
        An event's receipt and its leaves.

        Raises:
            Problem: the tree does not have it.
        """
        receipt = await self._receipt(tree, event)
        return receipt, await self.store.nodes(tree, receipt.leaves)

    async def route(self, tree: TreeId, event: EventId) -> EventRoute:
        """
        How an event was placed.

        Raises:
            Problem: the tree does not have it.
        """
        await self._receipt(tree, event)
        found = await self._history.route(tree, event)
        if found is None:
            await self.store.tree(tree)
            raise _no_event(tree, event)
        return found

    async def _receipt(self, tree: TreeId, event: EventId) -> Receipt:
        receipt = (await self.store.receipts(tree, [event])).get(event)
        if receipt is None:
            await self.store.tree(tree)
            raise _no_event(tree, event)
        if receipt.forgotten:
            raise _no_event(tree, event, forgotten=True)
        return receipt

    async def would_go(self, tree: TreeId, text: str) -> Sequence[Decision]:
        """How a text would be placed now; nothing while the embedding model is away."""
        try:
            return await self.memory.route(tree, text)
        except (EmbedderError, EmbedderAnswerError):
            return ()

    async def as_of(self, tree: TreeId, seq: int) -> Outline:
        """The tree's shape after a commit."""
        return await self._history.as_of(tree, seq)

    # ------------------------------------------------------------------------------------------------------------- health

    async def missing(self) -> dict[str, str]:
        """What is away, by name, with the kind of error; the store is asked, of the others it is known."""
        found = self.writer.missing()
        if self.embedder is not None and self.embedder.away is not None:
            found["embedder"] = type(self.embedder.away).__name__
        try:
            async with asyncio.timeout(ASK_LIMIT):
                await self.store.tree(_PROBED)
        except TreeNotFoundError:
            pass
        except TimeoutError:
            found["store"] = "TimeoutError"
        except BanyanError as error:
            found[dependency(error) or "store"] = type(error).__name__
        return found


def _no_event(tree: TreeId, event: EventId, *, forgotten: bool = False) -> Problem:
    return Problem("event-not-found", f"tree {tree!r} has {'forgotten' if forgotten else 'no'} event {event[:100]!r}")
