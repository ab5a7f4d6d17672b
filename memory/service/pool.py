"""Workers that take summary jobs, claim their nodes, refresh them, and try again, put off or give up what fails."""

from __future__ import annotations

import asyncio
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from memory.errors import (
    NOT_THE_RECORD,
    BanyanError,
    ClaimBusyError,
    PermanentError,
    SummarizerAnswerError,
    TransientError,
)
from memory.model import NodeId, TreeId
from memory.ports.claims import Claim, NodeClaims
from memory.ports.jobs import SummaryJob, SummaryJobs
from memory.ports.store import TreeStore
from memory.service.children import NotReady
from memory.service.claiming import TTL, kept
from memory.service.summarize import JobOutcome, Summarize, SummaryCounts
from memory.settings import SummarySettings

BUSY_WAIT_MAX = 1.0  # seconds
"""After which a node that another worker has is looked at again."""
CHILDREN_WAIT = 0.1  # seconds
"""After which a node that is made of its children is looked at again while they are not up to date."""


class SummaryPool:
    """
    Workers that take jobs and refresh nodes.

    Args:
        jobs: the queue.
        claims: on nodes, among all workers; keep count of failures.
        summarize: the use case.
        settings: number of workers, attempts, backoff.
        given_up: told of a job that is given up, before it is done; its `attempt` is the number of failures in a row before this
            one.
    """

    def __init__(
        self,
        *,
        jobs: SummaryJobs,
        claims: NodeClaims,
        summarize: Summarize,
        settings: SummarySettings,
        given_up: Callable[[SummaryJob, Exception], None] | None = None,
    ) -> None:
        self._jobs = jobs
        self._claims = claims
        self._summarize = summarize
        self._settings = settings
        self._given_up = given_up
        self._tasks: list[asyncio.Task[None]] = []
        self._given_up_in: Counter[TreeId] = Counter()

    def given_up_in(self, tree: TreeId | None) -> int:
        """Nodes of a tree, or of all, that were given up after the last attempt."""
        return self.counts.given_up if tree is None else self._given_up_in[tree]

    @property
    def counts(self) -> SummaryCounts:
        """What was done so far."""
        return self._summarize.counts

    @property
    def running(self) -> bool:
        """Whether there are workers."""
        return bool(self._tasks)

    def start(self) -> None:
        """Start the workers; needs a running loop."""
        if not self._tasks:
            self._tasks = [
                asyncio.create_task(self._work(), name=f"banyan-summaries-{index}") for index in range(self._settings.workers)
            ]

    async def stop(self) -> None:
        """End the workers. What they were at is not lost: it is still pending in the store."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _work(self) -> None:
        pause = self._settings.backoff.total_seconds()
        while True:
            job = None
            try:
                job = await self._jobs.claim()
                await self._one(job)
            except asyncio.CancelledError:
                if job is not None:
                    await self._jobs.retry(job, after=0.0, failed=False)
                raise
            except Exception as error:  # noqa: BLE001  # the queue's failure must not end a worker either
                self._count(error)
                with suppress(Exception):
                    if job is not None:
                        await self._jobs.retry(job, after=pause)
                await self._summarize.clock.sleep(pause)

    async def _one(self, job: SummaryJob) -> None:
        try:
            claim = await self._claims.claim(job.tree, job.node, ttl=TTL)
        except ClaimBusyError as busy:
            # What it is called for may cover this job as well: it is asked for again when that can be seen.
            self.counts.busy += 1
            await self._jobs.retry(job, after=_spread(min(busy.retry_after or 0.0, BUSY_WAIT_MAX), job), failed=False)
            return
        except Exception as error:  # noqa: BLE001  # one node's failure must never end a worker
            await self._failed(job, error, None)
            return
        try:
            async with kept(self._claims, claim, self._summarize.clock):
                await self._refreshed(job)
        except NotReady as waits:
            await self._waited(job, claim, waits)
        except Exception as error:  # noqa: BLE001
            await self._failed(job, error, claim)
        except asyncio.CancelledError:
            with suppress(Exception):
                await self._claims.release(claim)
            raise
        else:
            with suppress(TransientError):  # it ends by its time
                await self._claims.done(claim)
            self.counts.away = None
            self.counts.done += 1
            await self._jobs.done(job)

    async def _refreshed(self, job: SummaryJob) -> None:
        """Bring the node up to date as far as the job goes."""
        outcome = await self._summarize.refresh(job.tree, job.node, seq=job.seq)
        if outcome is JobOutcome.COVERED:
            self.counts.skipped += 1
            # What waits has a job of its own, or had one that the topic's compaction took away: this one gathers, and costs nothing
            # where the other comes.
            await self._jobs.put(job.tree, [job.node])
        while outcome in (JobOutcome.MORE, JobOutcome.CHANGED):
            outcome = await self._summarize.refresh(job.tree, job.node)

    async def _waited(self, job: SummaryJob, claim: Claim, waits: NotReady) -> None:
        """Its children come first; where one of them was given up, so is this one: it stays visibly pending with that."""
        given_up: set[NodeId] = set()
        with suppress(TransientError):
            failed = await self._claims.failures(job.tree)
            given_up = {one.node for one in failed if one.failures >= self._settings.attempts_max} & {*waits.nodes}
        if not given_up:
            with suppress(TransientError):
                await self._claims.release(claim)
            await self._jobs.retry(job, after=_spread(CHILDREN_WAIT, job), failed=False)
            return
        error = SummarizerAnswerError(f"the summary of its child {min(given_up)} was given up")
        failures = claim.failures
        with suppress(TransientError):
            # Whoever waits for this one is to know it from the ledger.
            while failures < self._settings.attempts_max:
                failures = await self._claims.failed(claim, str(error))
            await self._claims.release(claim)
        await self._give_up(job, error)

    def _count(self, error: Exception) -> None:
        self.counts.failed += 1
        self.counts.last_error = f"{type(error).__name__}: {error}" if not isinstance(error, BanyanError) else str(error)

    async def _failed(self, job: SummaryJob, error: Exception, claim: Claim | None) -> None:
        self._count(error)
        if isinstance(error, TransientError) and not isinstance(error, SummarizerAnswerError):
            # A model that is away is waited for without limit: an outage pauses, it never drops.
            self.counts.away = error
            if claim is not None:
                with suppress(Exception):
                    await self._claims.release(claim)
        else:
            failures = 1 + (claim.failures if claim is not None else job.attempt)
            if claim is not None:
                with suppress(TransientError):
                    if isinstance(error, NOT_THE_RECORD):
                        # No failure of the node, which the ledger would have given up after some restarts.
                        await self._claims.release(claim)
                    else:
                        failures = await self._claims.failed(claim, self.counts.last_error)
            # A node whose answers are unusable is given up after a budget, or it would be paid for without end.
            if isinstance(error, PermanentError) or failures >= self._settings.attempts_max:
                await self._give_up(replace(job, attempt=failures - 1), error)
                return
        wait = min(self._settings.backoff.total_seconds() * 2 ** min(job.attempt, 20), self._settings.backoff_max.total_seconds())
        asked = error.retry_after if isinstance(error, TransientError) else None
        await self._jobs.retry(job, after=_spread(max(wait, asked or 0.0), job))

    async def _give_up(self, job: SummaryJob, error: Exception) -> None:
        self.counts.given_up += 1
        self._given_up_in[job.tree] += 1
        try:
            if self._given_up is not None:
                self._given_up(job, error)
        finally:
            await self._jobs.done(job)  # also when nobody could be told: it would be paid for again


def _spread(seconds: float, job: SummaryJob) -> float:
    """Up to a quarter longer, differently for every node and attempt: what failed together need not come back together."""
    return seconds * (1 + zlib.crc32(f"{job.tree}/{job.node}/{job.attempt}".encode()) / 2**34)


async def requeue_dirty(store: TreeStore, jobs: SummaryJobs, trees: Sequence[TreeId]) -> int:
    """Queue every node with contributions, deepest first: what a crash or `--no-wait` left behind. Returns how many."""
    count = 0
    for tree in trees:
        dirty = await store.dirty(tree, limit=1_000_000)
        await jobs.put(tree, [node.node for node in dirty])
        count += len(dirty)
    return count
