"""
Everything embedded: one folder, one process or several, no server.

    from memory import open_local

    async with await open_local("my-memory") as memory:
        await memory.ingest([{"tree": "me", "id": "t1", "speaker": "Ana", "text": "I moved to Porto in May."}])
        print((await memory.search("me", "Where does Ana live?")).hits[0].text)
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from memory.adapters.embedded.claims import InProcessClaims
from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.extractive import ExtractiveKeywords, ExtractiveStatements, ExtractiveSummarizer
from memory.adapters.embedded.gate import FileLeases
from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.embedded.leases import InProcessLeases
from memory.adapters.embedded.store import SqliteTreeStore
from memory.errors import StoreUnavailableError
from memory.facade import LocalMemory, Parts
from memory.model import NodeId, TreeId
from memory.ports.claims import NodeClaims
from memory.ports.clock import Clock
from memory.ports.context_filter import ContextFilter
from memory.ports.embedder import Embedder
from memory.ports.index import NodeIndex
from memory.ports.keywords import KeywordExtractor
from memory.ports.labels import LabelExtractor
from memory.ports.leases import PathLeases
from memory.ports.navigator import Navigator
from memory.ports.store import TreeStore
from memory.ports.summarizer import Summarizer
from memory.retrieval.agent_policy import BestFirst
from memory.retrieval.text import terms
from memory.service.forgetting import Forgetting
from memory.service.freshness import Freshness
from memory.service.indexing import Indexing
from memory.service.ingest import Ingest
from memory.service.inspect import Inspect
from memory.service.pool import SummaryPool
from memory.service.profiles import Profiles
from memory.service.query import Query
from memory.service.reindexing import Outgrown, Reindexing
from memory.service.stream import IngestTotals
from memory.service.summarize import Summarize
from memory.service.transfer import Transfer
from memory.service.views import Views
from memory.service.weighing import Weighing
from memory.settings import MemorySettings
from memory.structures.registry import NAMES

STORE_FILE = "store.db"
INDEX_FILE = "index.db"
LOCK_SUFFIX = ".lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Models:
    """What a memory asks: each of its own kind, and closed with it."""

    embedder: Embedder
    summarizer: Summarizer
    navigator: Navigator
    keywords: KeywordExtractor
    context_filter: ContextFilter | None
    labels: LabelExtractor | None

    def each(self) -> Iterator[Embedder | Summarizer | Navigator | KeywordExtractor | ContextFilter | LabelExtractor]:
        """Those that there are."""
        yield from (self.summarizer, self.navigator, self.keywords, self.embedder)
        if self.context_filter is not None:
            yield self.context_filter
        if self.labels is not None:
            yield self.labels


async def open_local(
    path: str | Path | None = None,
    *,
    embedder: Embedder | None = None,
    summarizer: Summarizer | None = None,
    navigator: Navigator | None = None,
    keywords: KeywordExtractor | None = None,
    context_filter: ContextFilter | None = None,
    labels: LabelExtractor | None = None,
    settings: MemorySettings | None = None,
    structure: str | None = None,
    structure_binds: bool = True,
    parameters: Mapping[str, float] | None = None,
    summaries: bool = True,
    read_only: bool = False,
) -> LocalMemory:
    """
    Open a memory in a folder, made if it does not exist.

    Args:
        path: the folder (it gets `store.db` and `index.db`), or a file ending in `.db` (the index lies beside it, with
            `.index` in its name); None for a temporary folder that is removed on closing.
        embedder: default: all-MiniLM-L6-v2 on this machine (needs the extra `local`). Closed with the memory, as is the summarizer.
        summarizer: default: extractive.
        navigator: chooses the moves of the `agent` strategy; default: by similarity. Closed with the memory.
        keywords: finds those of MemGAS' sessions; default: extractive. Closed with the memory.
        context_filter: leaves out of contexts what does not matter; default: nothing is left out. Closed with the memory.
        labels: says where items of an `hmem` belong; default: their vectors decide. Closed with the memory.
        settings: limits; default: `MemorySettings()`.
        structure: how new trees grow; None for `memtree`, and every tree that there is grows on as it was made.
        structure_binds: whether a structure that is given is also what a tree must have to be written to.
        parameters: of new trees; None for the structure's defaults.
        summaries: run the summary pool in this process.
        read_only: never write the store.

    Raises:
        SettingError: a model or structure that cannot be had, with what to do.
        StoreDamagedError, StoreVersionError, StoreUnavailableError, StoreBusyError: about the store's file.
    """
    settings = settings or MemorySettings()
    closing = AsyncExitStack()
    async with AsyncExitStack() as undo:
        if path is None:
            path = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="banyan-"))
            undo.push_async_callback(asyncio.to_thread, shutil.rmtree, path, ignore_errors=True)
        store_path, index_path = _files(Path(path))
        own: Embedder | None = None
        if embedder is None:
            from memory.adapters.minilm import MiniLmEmbedder  # noqa: PLC0415  # an optional extra

            embedder = own = await asyncio.to_thread(MiniLmEmbedder.open)
            undo.push_async_callback(own.close)
        models = _Models(
            embedder=embedder,
            summarizer=summarizer or ExtractiveSummarizer(),
            navigator=navigator or BestFirst(),
            keywords=keywords or ExtractiveKeywords(),
            context_filter=context_filter,
            labels=labels,
        )
        clock = SystemClock()
        fresh = not read_only and _make_room(store_path)
        gate = None if read_only else _open_gate(store_path, clock)
        if gate is not None:
            undo.callback(gate.close)
        local = gate.local if gate is not None else InProcessLeases(clock)
        store = await SqliteTreeStore.open(store_path, leases=local, read_only=read_only)
        undo.push_async_callback(store.close)
        if fresh:
            # An index left behind by another store of that name would be believed as far as its commit numbers reach.
            index_path.unlink(missing_ok=True)
        index = await _open_index(None if gate is None else index_path, settings)
        undo.push_async_callback(index.close)
        parts = _assemble(
            store=store,
            leases=gate if gate is not None else local,
            claims=InProcessClaims(clock),
            index=index,
            models=models,
            clock=clock,
            settings=settings,
            structure=structure,
            structure_binds=structure_binds,
            parameters=parameters,
        )
        memory = LocalMemory(parts, settings=settings, closing=closing)
        if summaries and not read_only:
            await memory.start_summaries()
        closing.push_async_exit(undo.pop_all())
        # Models that were given are the caller's until the memory is open.
        for model in models.each():
            if model is not own:
                closing.push_async_callback(model.close)
    return memory


async def open_shared(
    store: TreeStore,
    leases: PathLeases,
    claims: NodeClaims,
    *,
    embedder: Embedder,
    summarizer: Summarizer,
    navigator: Navigator | None = None,
    keywords: KeywordExtractor | None = None,
    context_filter: ContextFilter | None = None,
    labels: LabelExtractor | None = None,
    release: Callable[[], Awaitable[None]],
    index: NodeIndex | None = None,
    index_file: Path | None = None,
    settings: MemorySettings | None = None,
    structure: str | None = None,
    structure_binds: bool = True,
    parameters: Mapping[str, float] | None = None,
    summaries: bool = True,
) -> LocalMemory:
    """
    Open a memory over a store that other machines use too.

    Without an index of its own, which others may share too and which is closed with the memory, it has a replica: an index of this
    process, made from the change log when a tree is first searched, which follows it from then on. Without `index_file` the replica
    is gone with the process, and a tree of 100,000 nodes is read whole once a process.

    Everything is as for `open_local`, but for the store, its leases and its claims, which are of all processes, and `release`,
    which gives back what they hold and is called at the end.

    Raises:
        StoreUnavailableError: the store cannot be reached.
    """
    settings = settings or MemorySettings()
    models = _Models(
        embedder=embedder,
        summarizer=summarizer,
        navigator=navigator or BestFirst(),
        keywords=keywords or ExtractiveKeywords(),
        context_filter=context_filter,
        labels=labels,
    )
    closing = AsyncExitStack()
    async with AsyncExitStack() as undo:
        undo.push_async_callback(release)
        if index is None:
            if index_file is not None:
                _make_room(index_file)
            index = await _open_index(index_file, settings)
        undo.push_async_callback(index.close)
        parts = _assemble(
            store=store,
            leases=leases,
            claims=claims,
            index=index,
            models=models,
            clock=SystemClock(),
            settings=settings,
            structure=structure,
            structure_binds=structure_binds,
            parameters=parameters,
        )
        growing = Outgrown(Reindexing(store=store, index=index))
        undo.push_async_callback(growing.close)
        parts.indexing.on_outgrown(growing)
        memory = LocalMemory(parts, settings=settings, closing=closing, index_behind=False)
        if summaries:
            await memory.start_summaries()
        closing.push_async_exit(undo.pop_all())
        for model in models.each():
            closing.push_async_callback(model.close)
    return memory


async def _open_index(path: Path | None, settings: MemorySettings) -> EmbeddedNodeIndex:
    retrieval = settings.retrieval
    return await EmbeddedNodeIndex.open(path, tokenize=terms, k1=retrieval.bm25_k1, b=retrieval.bm25_b)


def _assemble(
    *,
    store: TreeStore,
    leases: PathLeases,
    claims: NodeClaims,
    index: NodeIndex,
    models: _Models,
    clock: Clock,
    settings: MemorySettings,
    structure: str | None,
    structure_binds: bool,
    parameters: Mapping[str, float] | None,
) -> Parts:
    """The use cases over the given adapters."""
    # A summary that costs nothing need not wait for more to be told.
    linger = 0.0 if isinstance(models.summarizer, ExtractiveSummarizer) else settings.summaries.linger.total_seconds()
    jobs = InProcessSummaryJobs(clock, linger=linger, tree_max=settings.summaries.tree_max)
    views = Views(store, bytes_max=settings.retrieval.view_bytes_max)
    indexing = Indexing(store=store, index=index)
    summarize = Summarize(
        store=store,
        leases=leases,
        embedder=models.embedder,
        summarizer=models.summarizer,
        keywords=models.keywords,
        clock=clock,
        settings=settings.summaries,
    )
    pool = SummaryPool(jobs=jobs, claims=claims, summarize=summarize, settings=settings.summaries)
    ingest = Ingest(
        store=store,
        leases=leases,
        jobs=jobs,
        embedder=models.embedder,
        clock=clock,
        views=views,
        settings=settings.ingest,
        structure=structure or NAMES[0],
        structure_binds=structure_binds and structure is not None,
        parameters=parameters,
        labels=models.labels,
    )
    profiles = Profiles(store=store, keywords=ExtractiveKeywords(), statements=ExtractiveStatements())
    forgetting = Forgetting(store=store, jobs=jobs, clock=clock, views=views, indexing=indexing)

    def let_go(tree: TreeId, nodes: Sequence[NodeId]) -> None:
        ingest.forget(tree, nodes)
        indexing.forget(tree)
        profiles.drop(tree)
        summarize.forget()

    forgetting.on_forgotten(let_go)
    views.on_gone(let_go)
    return Parts(
        store=store,
        index=index,
        embedder=models.embedder,
        jobs=jobs,
        ingest=ingest,
        indexing=indexing,
        query=Query(
            store=store,
            index=index,
            indexing=indexing,
            views=views,
            embedder=models.embedder,
            settings=settings.retrieval,
            navigator=models.navigator,
            context_filter=models.context_filter,
        ),
        inspect=Inspect(store=store, embedder=models.embedder, views=views, claims=claims),
        transfer=Transfer(store=store),
        pool=pool,
        freshness=Freshness(store=store, jobs=jobs, pool=pool, clock=clock),
        weighing=Weighing(store=store, clock=clock),
        profiles=profiles,
        forgetting=forgetting,
        clock=clock,
    )


def _make_room(store_path: Path) -> bool:
    """Make the folder; whether there is no store in it yet."""
    try:
        store_path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnavailableError(f"the folder {store_path.parent} cannot be made: {error.strerror}") from error
    return not store_path.exists()


def _open_gate(store_path: Path, clock: Clock) -> FileLeases | None:
    """Leases among processes; None in a folder that cannot be written, where the store can only be read anyway."""
    try:
        return FileLeases(store_path.with_suffix(LOCK_SUFFIX), clock)
    except StoreUnavailableError:
        if not store_path.is_file():
            raise
        return None


def _files(path: Path) -> tuple[Path, Path]:
    if path.suffix == ".db":
        return path, path.with_suffix(".index.db")
    return path / STORE_FILE, path / INDEX_FILE


__all__ = ["IngestTotals", "LocalMemory", "open_local", "open_shared"]
