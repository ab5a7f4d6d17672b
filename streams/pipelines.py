"""What a worker of each kind is made of, put together from the settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, replace
from datetime import timedelta

import structlog

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.extractive import ExtractiveSummarizer
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.openai.summarizer import OpenAISummarizer
from memory.adapters.openai.throttle import ThrottleCounts
from memory.errors import TransientError, TreeNotFoundError
from memory.model import NodeId, TreeId
from memory.ports.claims import NodeClaims
from memory.ports.embedder import Embedder
from memory.ports.store import TreeStore
from memory.ports.summarizer import Summarizer
from memory.service.forgetting import Forgetting
from memory.service.indexing import Indexing
from memory.service.ingest import Ingest
from memory.service.pool import SummaryPool
from memory.service.stages import Stages
from memory.service.summarize import Summarize
from memory.service.views import Views
from memory.service.weighing import Weighing
from streams.agents.batches import Batches
from streams.agents.early import Early
from streams.agents.erasures import Erasures
from streams.agents.opinions import Opinions
from streams.bootstrap import open_backend
from streams.broker import Broker
from streams.commit_topic import CommitTopic
from streams.dead_letters import DeadLetters, DeadLetterShare
from streams.indexes import open_index
from streams.job_topic import JobTopic, whole_tree
from streams.liveness import end_process
from streams.models import open_embedder, open_keywords, open_labels, open_summarizer
from streams.producing import Producer
from streams.retrying import Retry
from streams.settings import Settings
from streams.topics import topics
from streams.workers.giving_up import GivingUp
from streams.workers.jobs import TakenJobs
from streams.workers.waiting import Waiting

GIVEN_UP_MAX = 10_000
"""Nodes of a tree that were given up and are known; as many as the ledger keeps."""
_PROBED = TreeId("banyan:probe")
"""No tree: whether the store answers is all that is asked."""
_log = structlog.stdlib.get_logger("streams.worker")


@dataclass(frozen=True, slots=True)
class Ingesting:
    """An ingest worker's parts."""

    batches: Batches
    opinions: Opinions
    erasures: Erasures
    views: Views
    parts: AsyncExitStack

    @property
    def stages(self) -> Sequence[Stages]:
        """What times its parts."""
        return self.batches.stages, self.batches.ingest.stages

    def waited_for(self) -> Sequence[TransientError]:
        """The errors that it waits out just now."""
        return self.batches.retry.waited_for

    async def probe(self) -> None:
        """Ask the store for something small."""
        await _ask(self.batches.store)

    async def drain(self) -> None:
        """A batch ends with its agent's turn: there is nothing else to wait for."""

    async def close(self) -> None:
        """Give back connections, files and models."""
        await self.parts.aclose()


@dataclass(frozen=True, slots=True)
class Summarizing:
    """A summary worker's parts."""

    jobs: TakenJobs
    dead: DeadLetters
    retry: Retry
    pool: SummaryPool
    summarize: Summarize
    store: TreeStore
    waiting: Waiting
    parts: AsyncExitStack
    throttle: ThrottleCounts | None = None
    """What its calls waited for, where the model has a provider."""

    @property
    def stages(self) -> Sequence[Stages]:
        """What times its parts."""
        return self.jobs.stages, self.summarize.stages

    def waited_for(self) -> Sequence[TransientError]:
        """The errors that it waits out just now."""
        away = self.pool.counts.away
        return self.retry.waited_for if away is None else [*self.retry.waited_for, away]

    async def probe(self) -> None:
        """Ask the store for something small."""
        await _ask(self.store)

    async def drain(self) -> None:
        """Let the calls that run come to their end, and begin no other."""
        self.jobs.draining = True
        await self.jobs.rest()

    async def close(self) -> None:
        """Stop the pool, then give back connections, files and models."""
        await self.pool.stop()
        await self.parts.aclose()


async def open_ingesting(
    settings: Settings,
    *,
    jobs: type[JobTopic] = JobTopic,
    dead: type[DeadLetters] = DeadLetters,
    embedder: Embedder | None = None,
    repeats: bool = True,
) -> Ingesting:
    """
    The parts of `banyan worker ingest`.

    Args:
        settings: in force.
        jobs: what carries summary jobs to their topic.
        dead: what carries dead letters to theirs.
        embedder: instead of the one that the settings name.
        repeats: whether commits of records that come again are said again.

    Raises:
        BanyanError: a setting, the store, a model or the broker cannot be used.
    """
    async with AsyncExitStack() as parts:
        clock = SystemClock()
        backend = await open_backend(settings)
        parts.push_async_callback(backend.close)
        embedder = embedder or await open_embedder(settings)
        parts.push_async_callback(embedder.close)
        labels = open_labels(settings)
        if labels is not None:
            parts.push_async_callback(labels.close)
        producer = await Producer(Broker.of(settings)).start()
        parts.push_async_callback(producer.stop)
        names = topics(settings.kafka)
        job_topic = jobs(producer, names.summaries.name)
        limits = settings.memory.ingest
        views = Views(backend.store, bytes_max=settings.memory.retrieval.view_bytes_max)
        tree = settings.tree
        ingest = Ingest(
            store=backend.store,
            leases=backend.leases,
            jobs=job_topic,
            embedder=embedder,
            clock=clock,
            views=views,
            # The worker waits by itself, without limit, and says so.
            settings=replace(limits, embedder_patience=timedelta(0)),
            structure=tree.structure,
            parameters=tree.parameters(),
            structure_binds=False,
            labels=labels,
        )
        commits = CommitTopic(producer, names.commits.name, repeats=repeats) if settings.worker.announce else None
        letters = dead(producer, names.dead_letters.name, clock, dead_letter_share(settings))
        letters.count_from_zero(names.turns, names.documents, names.feedback, names.forgets)
        batches = Batches(
            ingest=ingest,
            store=backend.store,
            jobs=job_topic,
            dead=letters,
            clock=clock,
            limits=limits,
            log=_log,
            commits=commits,
        )
        weighing = Weighing(store=backend.store, clock=clock)
        early = Early(clock, settings.worker.feedback_wait)
        opinions = Opinions(weighing=weighing, early=early, dead=batches.dead, retry=batches.retry, log=_log)
        forgetting: Forgetting | None = None

        async def opened() -> Forgetting:
            nonlocal forgetting
            if forgetting is None:
                # Many installations never forget anything: the connection is made when it is needed.
                index = await open_index(settings) if settings.store_is_redis else None
                if index is not None:
                    parts_open.push_async_callback(index.close)
                indexing = None if index is None else Indexing(store=backend.store, index=index)
                forgetting = Forgetting(store=backend.store, jobs=job_topic, clock=clock, views=views, indexing=indexing)
                forgetting.on_forgotten(ingest.forget)
            return forgetting

        erasures = Erasures(
            opened=opened,
            make=ingest.ensure_tree,
            store=backend.store,
            jobs=job_topic,
            commits=commits,
            dead=batches.dead,
            retry=batches.retry,
            log=_log,
        )
        parts_open = parts.pop_all()
        return Ingesting(batches, opinions, erasures, views, parts_open)


def dead_letter_share(settings: Settings) -> DeadLetterShare:
    """What watches how many records a worker gives up."""
    return DeadLetterShare(settings.worker.dead_letters_max, settings.worker.dead_letters_window)


async def open_summarizing(
    settings: Settings, *, summarizer: Summarizer | None = None, end: Callable[[str], None] = end_process
) -> Summarizing:
    """
    The parts of `banyan worker summaries`; the pool is not started yet.

    Args:
        settings: in force.
        summarizer: instead of the one that the settings name.
        end: ends the process when it cannot go on.

    Raises:
        BanyanError: a setting, the store, a model or the broker cannot be used.
    """
    async with AsyncExitStack() as parts:
        clock = SystemClock()
        backend = await open_backend(settings)
        parts.push_async_callback(backend.close)
        embedder = await open_embedder(settings)
        parts.push_async_callback(embedder.close)
        summarizer = summarizer or open_summarizer(settings, backend.budget)
        parts.push_async_callback(summarizer.close)
        keywords = open_keywords(settings, backend.budget)
        parts.push_async_callback(keywords.close)
        producer = await Producer(Broker.of(settings)).start()
        parts.push_async_callback(producer.stop)
        names = topics(settings.kafka)
        dead = DeadLetters(producer, names.dead_letters.name, clock, dead_letter_share(settings))
        dead.count_from_zero(names.summaries)
        retry = Retry(clock, _log)
        # Waiting for more contributions pays where calls are paid for.
        free = isinstance(summarizer, ExtractiveSummarizer)
        linger = 0.0 if free else settings.memory.summaries.linger.total_seconds()
        giving_up = GivingUp(dead, names.summaries.name, retry=retry, end=end, log=_log)
        jobs = TakenJobs(
            InProcessSummaryJobs(clock, linger=linger, tree_max=settings.memory.summaries.tree_max),
            room=settings.worker.jobs_max,
            before=giving_up.ended,
            clock=clock,
            log=_log,
            dirty=lambda tree, limit: retry(
                "reading what waits",
                lambda: dirty_nodes(backend.store, backend.claims, tree, limit, settings.memory.summaries.attempts_max),
            ),
            renew=lambda tree, node: retry(
                "sending summary jobs", lambda: producer.send([whole_tree(names.summaries.name, tree, node)])
            ),
        )
        summarize = Summarize(
            store=backend.store,
            leases=backend.leases,
            embedder=embedder,
            summarizer=summarizer,
            keywords=keywords,
            clock=clock,
            settings=settings.memory.summaries,
        )

        pool = SummaryPool(
            jobs=jobs,
            claims=backend.claims,
            summarize=summarize,
            settings=settings.memory.summaries,
            given_up=lambda job, error: giving_up.give_up(job, jobs.messages(job), error),
        )
        throttle = summarizer.throttle.counts if isinstance(summarizer, OpenAISummarizer) and summarizer.throttle else None
        waiting = Waiting(backend.store, backend.claims, clock)
        parts.push_async_callback(waiting.stop)
        if settings.metrics.port is not None:
            waiting.start()
        return Summarizing(jobs, dead, retry, pool, summarize, backend.store, waiting, parts.pop_all(), throttle)


async def dirty_nodes(store: TreeStore, claims: NodeClaims, tree: TreeId, limit: int, attempts_max: int) -> Sequence[NodeId]:
    """
    The first dirty nodes of a tree that are worth working on; fewer than `limit` when these are all.

    Those that were given up are left out: they stay dirty, and would be read, paid for and given up again without end.

    Args:
        store: where the tree is; without it there are none.
        claims: knows what failed.
        tree: which.
        limit: nodes wanted, 1 or more.
        attempts_max: failures after which a node is given up.
    """
    gone = {each.node for each in await claims.failures(tree, limit=GIVEN_UP_MAX) if each.failures >= attempts_max}
    with suppress(TreeNotFoundError):
        found = [dirty.node for dirty in await store.dirty(tree, limit=limit + len(gone))]
        return [node for node in found if node not in gone][:limit]
    return ()


async def _ask(store: TreeStore) -> None:
    with suppress(TreeNotFoundError):
        await store.tree(_PROBED)
