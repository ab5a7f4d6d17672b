"""The memory as its callers see it, whatever it is made of."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Literal, Self

import msgspec

from memory.errors import ClosedError, EmbedderError, RecordError, TransientError
from memory.model import ROOT, EventId, NodeId, TreeId, TreeInfo
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.index import NodeIndex, Scope
from memory.ports.jobs import SummaryJobs
from memory.ports.store import TreeStore
from memory.records import Document, Feedback, Record, Turn, parse, parse_feedback, tree_id
from memory.results import CheckReport, EventResult, ForgetReport, Profile, SearchAnswer, Speaker, TreeNode, TreeReport, rejected
from memory.service.behind import IndexingBehind
from memory.service.forgetting import Forgetting
from memory.service.freshness import Freshness
from memory.service.indexing import Indexing
from memory.service.ingest import Ingest
from memory.service.inspect import Inspect
from memory.service.pool import SummaryPool, requeue_dirty
from memory.service.profiles import Profiles
from memory.service.query import Context, Query
from memory.service.stream import IngestTotals, stream
from memory.service.summarize import SummaryCounts
from memory.service.transfer import Transfer
from memory.service.weighing import Weighing
from memory.settings import MemorySettings
from memory.tree.routing import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a `LocalMemory` is made of."""

    store: TreeStore
    index: NodeIndex
    embedder: Embedder
    jobs: SummaryJobs
    ingest: Ingest
    indexing: Indexing
    query: Query
    inspect: Inspect
    transfer: Transfer
    pool: SummaryPool
    freshness: Freshness
    weighing: Weighing
    profiles: Profiles
    forgetting: Forgetting
    clock: Clock


class LocalMemory:
    """
    A memory that runs in this process; made by `open_local`.

    An async context manager: on leaving, the commit in hand is finished, summaries in the making are put back, files are closed.
    What is asked of it afterwards is refused with `ClosedError`.

    Args:
        parts: the use cases, and what they work on.
        settings: limits.
        closing: what is released on closing, after the work has ended.
        index_behind: whether the index follows what is written here at once, so that the first query need not wait for it.
    """

    def __init__(self, parts: Parts, *, settings: MemorySettings, closing: AsyncExitStack, index_behind: bool = True) -> None:
        self._parts = parts
        self._settings = settings
        self._closing = closing
        self._behind = IndexingBehind(parts.indexing) if index_behind else None
        if index_behind:
            parts.ingest.on_commit(parts.indexing.committed)
        self._closed = False

    @property
    def parts(self) -> Parts:
        """What it is made of, for services that are built on it."""
        return self._parts

    @property
    def _open(self) -> Parts:
        """The same, as long as there is something to be asked."""
        if self._closed:
            raise ClosedError("this memory was closed; open it again with open_local")
        return self._parts

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    # ------------------------------------------------------------------------------------------------------------ writing

    async def ingest(self, records: Iterable[Record | Mapping[str, Any]], *, tree: str | None = None) -> list[EventResult]:
        """
        Put records in, in order, and tell what became of each.

        When it returns, everything accepted is on disk and can be found; its summaries follow by themselves.

        Args:
            records: turns and documents, or objects as in a JSON file; one that is no record is answered as rejected.
            tree: for objects that name none.

        Raises:
            TypeError: one record instead of several.
        """
        if isinstance(records, Mapping | str | bytes):
            raise TypeError("ingest takes several records; put a single one into a list: ingest([record])")
        parsed: list[Record] = []
        order: list[EventResult | None] = []
        for record in records:
            # Records are checked like objects: a `Turn` can be made with any content.
            given = msgspec.structs.asdict(record) if isinstance(record, Turn | Document) else record
            try:
                parsed.append(parse(given, tree=tree if given is record else None, limits=self._settings.ingest))
                order.append(None)
            except RecordError as error:
                order.append(rejected(given, tree, str(error)))
        # Batches are by tree, so that results come in another order than the records when these name several trees.
        results: dict[tuple[str, str], deque[EventResult]] = {}

        def collect(batch: Sequence[EventResult]) -> None:
            for result in batch:
                results.setdefault((result.tree, result.id), deque()).append(result)

        await self.ingest_stream(parsed, on_batch=collect)
        answers = (results[record.tree, record.id].popleft() for record in parsed)
        return [next(answers) if refused is None else refused for refused in order]

    async def ingest_stream(
        self,
        records: AsyncIterator[Record] | Iterable[Record],
        *,
        on_batch: Callable[[Sequence[EventResult]], None] | None = None,
        stop: asyncio.Event | None = None,
    ) -> IngestTotals:
        """
        Put any number of records in, in bounded memory; the next batch is embedded while one is committed.

        Args:
            records: validated records, in the order in which they are to be applied.
            on_batch: called after each commit with its results, in the records' order.
            stop: when set, the batch in hand is finished and the rest is left.
        """
        return await stream(
            self._open.ingest, records, batch_items=self._settings.ingest.batch_items, on_batch=self._after(on_batch), stop=stop
        )

    async def feedback(self, feedback: Iterable[Feedback | Mapping[str, Any]], *, tree: str | None = None) -> list[EventResult]:
        """
        Weigh what users approve of or rebut, and tell what became of each, in order.

        Args:
            feedback: or objects with `id`, `event`, `verdict` and, unless it is given now, `at`; one that is none is answered as
                rejected, and so is one about an event that the tree does not have.
            tree: for objects that name none.

        Raises:
            NoWeightsError: a tree's structure keeps no weights (docs/structures.md).
            TreeNotFoundError: no such tree.
        """
        results: list[EventResult | None] = []
        parsed: dict[TreeId, list[tuple[int, Feedback]]] = {}
        for place, each in enumerate(feedback):
            given: Any = msgspec.structs.asdict(each) if isinstance(each, Feedback) else each
            try:
                if isinstance(given, Mapping) and given.get("at") is None:
                    given = {**given, "at": self._open.clock.now()}
                one = parse_feedback(given, tree=None if isinstance(each, Feedback) else tree)
                parsed.setdefault(TreeId(one.tree), []).append((place, one))
                results.append(None)
            except RecordError as error:
                results.append(rejected(given, tree, str(error)))
        for name in parsed:
            await self._open.weighing.require(name)
        for name, some in parsed.items():
            taken = await self._open.weighing.take(name, [one for _, one in some])
            for (place, _), result in zip(some, taken, strict=True):
                results[place] = result
        return [result for result in results if result is not None]

    async def forget(
        self, tree: str, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
    ) -> ForgetReport:
        """
        Forget events, turns of a conversation, or what was said before a time; all that is named, if several are.

        When it returns nothing of them is left in this memory's files or in this process: no text, vector or attribute of them, and
        no summary that was made of them. Summaries that stay are provisional until they are made anew, out of what is left; `fresh`
        waits for that. Repeating it changes nothing, and finishes what a call that was cut off has left.

        Args:
            tree: which memory.
            events: ids of turns, documents or feedback. One that has not come yet is not taken in if it comes.
            conversation: whose turns go, as far as they are there.
            before: what was said or published before goes, as far as it is there; without a zone taken as UTC. What says no time
                stays.

        Raises:
            ValueError: nothing is named.
            TypeError: one id instead of several.
            TreeNotFoundError: no such tree.
            ContentionError: refused too often because others write; call again.
            StoreBusyError: all is forgotten, but its files cannot be cleaned while somebody reads an earlier state; call again.
        """
        if not events and conversation is None and before is None:
            raise ValueError("nothing is named that could be forgotten: give events, a conversation or a time")
        if isinstance(events, str):
            raise TypeError(f"events takes several ids; put a single one into a list: events=[{events!r}]")
        name, forgetting = tree_id(tree), self._open.forgetting
        chosen = dict.fromkeys(map(EventId, events))
        if conversation is not None:
            chosen |= dict.fromkeys(await forgetting.of_conversation(name, conversation))
        if before is not None:
            limit = before.replace(tzinfo=UTC) if before.tzinfo is None else before
            chosen |= dict.fromkeys(await forgetting.before(name, limit))
        return await forgetting.forget(name, list(chosen))

    def on_embedder_wait(self, call: Callable[[EmbedderError, float], None]) -> None:
        """Have `call` called, with the error and the seconds to come, before each wait for an embedding model that is away."""
        self._parts.ingest.on_wait(call)

    def _after(self, on_batch: Callable[[Sequence[EventResult]], None] | None) -> Callable[[Sequence[EventResult]], None]:
        def after(results: Sequence[EventResult]) -> None:
            if self._behind is not None:
                self._behind.written({result.tree for result in results})
            if on_batch is not None:
                on_batch(results)

        return after

    # ------------------------------------------------------------------------------------------------------------ reading

    async def search(
        self,
        tree: str,
        query: str,
        *,
        k: int = 10,
        strategy: str = "hybrid",
        scope: Scope | None = None,
        group: Literal["none", "conversation", "document"] = "none",
        explain: bool = False,
    ) -> SearchAnswer:
        """
        The k best hits for a question; everything committed before the call is looked at.

        Args:
            tree: which memory.
            query: the question, in words; never a query language.
            k: hits, 1 to 1,000.
            strategy: `hybrid`, `collapsed`, `traversal`, or one that the tree's structure has (docs/structures.md).
            scope: filters, applied in the index.
            group: one hit a conversation or document, its best.
            explain: fill `Hit.parts` and `SearchAnswer.trace`.

        Raises:
            QueryError: k, strategy or query out of bounds.
            TreeNotFoundError, TreeMismatchError: no such tree, or one of another embedding model.
        """
        return await self._open.query.search(
            tree_id(tree), query, k=k, strategy=strategy, scope=scope or Scope(), group=group, explain=explain
        )

    async def context(
        self,
        tree: str,
        query: str,
        *,
        tokens: int,
        strategy: str = "hybrid",
        scope: Scope | None = None,
        context_filter: bool | None = None,
    ) -> Context:
        """
        Hits packed into a token budget, in time order, ready for a prompt.

        Args:
            tree: which memory.
            query: the question, in words.
            tokens: most of them, of about four characters.
            strategy: as for `search`.
            scope: as for `search`.
            context_filter: True has the memory's context filter, a model, leave out what does not matter to the question, False
                leaves all in; None filters where the memory was opened with a filter.

        Raises:
            QueryError: tokens, strategy or query out of bounds, or a filter is asked for where there is none.
            TreeNotFoundError, TreeMismatchError: no such tree, or one of another embedding model.
        """
        return await self._open.query.context(
            tree_id(tree), query, tokens=tokens, strategy=strategy, scope=scope or Scope(), context_filter=context_filter
        )

    async def speakers(self, tree: str) -> list[Speaker]:
        """Who speaks in a tree, those with most turns first."""
        return await self._open.profiles.speakers(tree_id(tree))

    async def profile(self, tree: str, speaker: str, *, facts: int = 20) -> Profile | None:
        """Who a speaker is by what they said; None when nobody of that name speaks in the tree."""
        return await self._open.profiles.profile(tree_id(tree), speaker, facts=facts)

    async def tree(self, tree: str, *, depth: int | None = None, children: int = 20, node: str | None = None) -> TreeNode:
        """The tree, or what is below a node, to be drawn: at most `children` a node, those with most leaves first."""
        return await self._open.inspect.draw(tree_id(tree), depth=depth, children=children, node=NodeId(node) if node else ROOT)

    async def trees(self) -> list[TreeInfo]:
        """All trees, by name."""
        return await self._open.store.trees()

    async def stats(self, tree: str) -> TreeReport:
        """Counts, shape and cost of a tree."""
        return await self._open.inspect.stats(tree_id(tree))

    async def check(self, tree: str) -> CheckReport:
        """Every invariant, and the serial replay of the change log."""
        return await self._open.inspect.check(tree_id(tree))

    async def route(self, tree: str, text: str) -> tuple[Decision, ...]:
        """How a text would be placed in the tree now, a decision a level."""
        return await self._open.inspect.route(tree_id(tree), text)

    def export(self, tree: str) -> AsyncIterator[bytes]:
        """The tree as lines of JSON."""
        return self._open.transfer.export(tree_id(tree))

    async def import_(self, lines: AsyncIterator[bytes] | Iterable[bytes], *, tree: str | None = None) -> TreeInfo:
        """
        A tree from exported lines; repeating it changes nothing.

        One that was interrupted goes on as long as nobody wrote to the half of it that is there. This process's summaries wait
        meanwhile; a process that may repeat an import is best opened without them, and starts them afterwards.
        """
        summarizing = self._open.pool.running
        await self._open.pool.stop()
        try:
            info = await self._open.transfer.import_(lines, tree=tree, model=self._open.embedder.model)
            await requeue_dirty(self._open.store, self._open.jobs, [info.id])
            await self._open.forgetting.finish(info.id)
        finally:
            if summarizing:
                self._open.pool.start()
        return info

    # ---------------------------------------------------------------------------------------------------------- summaries

    @property
    def summary_counts(self) -> SummaryCounts:
        """What this process's summary pool has done."""
        return self._parts.pool.counts

    async def start_summaries(self) -> None:
        """Start the pool, with what an earlier process left behind."""
        trees = await self._open.store.trees()
        await requeue_dirty(self._open.store, self._open.jobs, [info.id for info in trees])
        for info in trees:
            if info.redacted < info.floor:
                with suppress(TransientError):  # it is done with what is forgotten next
                    await self._open.forgetting.finish(info.id)
        self._open.pool.start()

    async def fresh(
        self,
        tree: str | None = None,
        *,
        progress: Callable[[int], None] | None = None,
        timeout: timedelta | None = None,  # noqa: ASYNC109
    ) -> bool:
        """
        Wait until no summary of a tree, or of any, is pending; what a process that died left behind is made here.

        Without a pool (`summaries=False`) this waits for other processes.

        Args:
            tree: None for all.
            progress: called with the number of summaries left, at most twenty times a second.
            timeout: longest wait; None for no limit.

        Returns:
            False when the time was over or nodes were given up.
        """
        return await self._open.freshness.wait(
            tree_id(tree) if tree is not None else None,
            progress=progress,
            seconds=timeout.total_seconds() if timeout is not None else None,
        )

    # ------------------------------------------------------------------------------------------------------------ the end

    async def close(self) -> None:
        """Stop the pool, let the index finish, close files and models, each even when another one fails; idempotent."""
        if self._closed:
            return
        self._closed = True
        async with self._closing:
            await self._parts.pool.stop()
            if self._behind is not None:
                await self._behind.finish()
