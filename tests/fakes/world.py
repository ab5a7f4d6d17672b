"""The services over one store, put together the way `memory.local` does, with every part open to a test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from memory.adapters.embedded.claims import InProcessClaims
from memory.adapters.embedded.extractive import ExtractiveKeywords
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.embedded.leases import InProcessLeases
from memory.model import EventId, TreeId
from memory.ports.claims import NodeClaims
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.index import NodeIndex
from memory.ports.keywords import KeywordExtractor
from memory.ports.labels import LabelExtractor
from memory.ports.leases import PathLeases
from memory.ports.store import TreeStore
from memory.ports.summarizer import Summarizer
from memory.records import Record, Turn
from memory.results import EventResult, ForgetReport
from memory.service.forgetting import Forgetting
from memory.service.indexing import Indexing
from memory.service.ingest import Ingest
from memory.service.inspect import Inspect
from memory.service.pool import SummaryPool, requeue_dirty
from memory.service.query import Query
from memory.service.stream import stream
from memory.service.summarize import Summarize
from memory.service.transfer import Transfer
from memory.service.views import Views
from memory.service.weighing import Weighing
from memory.settings import MemorySettings
from tests.fakes.embedder import FakeEmbedder
from tests.fakes.inline_store import InlineStore, Point, nothing
from tests.fakes.memory_index import MemoryIndex
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.virtual_time import LoopClock

TREE = TreeId("tree")


class World:
    """
    One process's services.

    Args:
        path: the store's file; another world with the same path is another process.
        clock, leases, claims, embedder, summarizer, index: fakes where not given.
        settings: limits.
        point: see `InlineStore`.
        linger: see `InProcessSummaryJobs`.
        structure, parameters: of trees that are made here.
        store: another than the one in `path`; the world closes it.
    """

    def __init__(
        self,
        path: Path,
        *,
        clock: Clock | None = None,
        embedder: Embedder | None = None,
        summarizer: Summarizer | None = None,
        keywords: KeywordExtractor | None = None,
        index: NodeIndex | None = None,
        leases: PathLeases | None = None,
        claims: NodeClaims | None = None,
        local: InProcessLeases | None = None,
        settings: MemorySettings | None = None,
        point: Point = nothing,
        linger: float = 0.0,
        structure: str = "memtree",
        parameters: Mapping[str, float] | None = None,
        store: TreeStore | None = None,
        labels: LabelExtractor | None = None,
    ) -> None:
        settings = settings or MemorySettings()
        self.settings = settings
        self.clock = clock or LoopClock()
        self.local = local or InProcessLeases(self.clock)
        self.leases = leases or self.local
        self.store: TreeStore = store or InlineStore.make(path, leases=self.local, point=point)
        self.embedder = embedder or FakeEmbedder()
        self.summarizer = summarizer or FakeSummarizer()
        self.index = index or MemoryIndex()
        self.jobs = InProcessSummaryJobs(self.clock, linger=linger)
        self.views = Views(self.store, bytes_max=settings.retrieval.view_bytes_max)
        self.ingest = Ingest(
            store=self.store,
            leases=self.leases,
            jobs=self.jobs,
            embedder=self.embedder,
            clock=self.clock,
            views=self.views,
            settings=settings.ingest,
            structure=structure,
            parameters=parameters,
            labels=labels,
        )
        self.summarize = Summarize(
            store=self.store,
            leases=self.leases,
            embedder=self.embedder,
            summarizer=self.summarizer,
            keywords=keywords or ExtractiveKeywords(),
            clock=self.clock,
            settings=settings.summaries,
        )
        self.claims = claims or InProcessClaims(self.clock)
        self.pool = SummaryPool(jobs=self.jobs, claims=self.claims, summarize=self.summarize, settings=settings.summaries)
        self.indexing = Indexing(store=self.store, index=self.index)
        self.query = Query(
            store=self.store,
            index=self.index,
            indexing=self.indexing,
            views=self.views,
            embedder=self.embedder,
            settings=settings.retrieval,
        )
        self.inspect = Inspect(store=self.store, embedder=self.embedder, views=self.views, claims=self.claims)
        self.transfer = Transfer(store=self.store)
        self.weighing = Weighing(store=self.store, clock=self.clock)
        self.forgetting = Forgetting(store=self.store, jobs=self.jobs, clock=self.clock, views=self.views, indexing=self.indexing)

    async def forget(self, *events: str, tree: TreeId = TREE) -> ForgetReport:
        """Forget events."""
        return await self.forgetting.forget(tree, [EventId(event) for event in events])

    async def put(self, *records: Record, batch: int | None = None) -> list[EventResult]:
        """Put records in; results in the order of commits."""
        results: list[EventResult] = []
        await stream(self.ingest, records, batch_items=batch or self.settings.ingest.batch_items, on_batch=results.extend)
        return results

    async def drain(self, *trees: TreeId) -> int:
        """Refresh every dirty node, one at a time, deepest first; returns how many summaries were written."""
        written = self.summarize.counts.written
        for tree in trees or (TREE,):
            while dirty := await self.store.dirty(tree, limit=1):
                await self.summarize.refresh(tree, dirty[0].node)
        return self.summarize.counts.written - written

    async def start(self) -> None:
        """Start the pool, as a process does that is started again."""
        await requeue_dirty(self.store, self.jobs, [info.id for info in await self.store.trees()])
        self.pool.start()

    async def idle(self, seconds: float = 3_600.0) -> bool:
        """Wait until no job is left, or that long."""
        end = self.clock.monotonic() + seconds
        while self.jobs.backlog():
            if self.clock.monotonic() > end:
                return False
            await self.clock.sleep(0.05)
        return True

    async def texts(self, tree: TreeId = TREE) -> dict[str, str]:
        """Text by node id."""
        return {node.id: node.text async for node in self.store.all_nodes(tree)}

    async def close(self) -> None:
        """Stop the pool and close the store."""
        await self.pool.stop()
        await self.store.close()


def turn(number: int | str, text: str | None = None, *, tree: str = TREE, **fields: object) -> Turn:
    """A turn; those with near numbers share words."""
    if text is None:
        topic = int(number) % 7 if str(number).isdigit() else 0
        text = f"topic{topic} words about subject{topic} and number{number}"
    return Turn(tree=tree, id=f"e{number}", text=text, **fields)  # type: ignore[arg-type]


def turns(numbers: Sequence[int], *, tree: str = TREE) -> list[Turn]:
    """Several."""
    return [turn(number, tree=tree) for number in numbers]
