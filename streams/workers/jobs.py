"""
Summary jobs as they come from Kafka: coalesced by node, worked on out of order, acknowledged in order.

A job's messages are acknowledged once the node was brought up to date by a call that began after they were taken, and never before
those that stand before them in their partition.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJob, SummaryJobs
from memory.service.stages import Stages
from streams import tracing
from streams.deliveries import Delivery
from streams.spending import begin, milliseconds

STAGES = ("read", "model", "embed", "write")
"""On the line of each job, summed over the calls that it took."""
_Key = tuple[TreeId, NodeId]


@dataclass(slots=True, eq=False)
class Message:
    """One message in hand."""

    delivery: Delivery
    acknowledge: Callable[[], None]
    settled: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A job that is claimed."""

    began: float
    spent: dict[str, float]
    traced: Callable[[], None] | None

    def end(self) -> None:
        """End its trace, if it has one."""
        if self.traced is not None:
            self.traced()


class TakenJobs(SummaryJobs):
    """
    A queue of jobs that remembers the messages they came with.

    Args:
        queue: in this process; coalesces, delays, lets trees take turns.
        room: messages in hand above which `room` waits.
        before: awaited when a job has ended, before its messages are acknowledged.
        clock: for the log.
        log: gets one line a job.
    """

    def __init__(
        self,
        queue: SummaryJobs,
        *,
        room: int,
        before: Callable[[], Awaitable[object]],
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        self._queue = queue
        self._room = room
        self._before = before
        self._clock = clock
        self._log = log
        self._runs: dict[_Key, _Run] = {}
        self.stages = Stages(clock)
        """`summary`, the whole; those in between are told where they happen."""
        self.acknowledged: Callable[[Sequence[Delivery]], None] = lambda _: None
        """Told which messages were acknowledged."""
        self._waiting: dict[_Key, list[Message]] = {}
        """Taken since the node was last claimed."""
        self._claimed: dict[_Key, list[Message]] = {}
        self._order: dict[tuple[str, int], deque[Message]] = {}
        """By partition, in order of arrival, those not yet acknowledged."""
        self._changed = asyncio.Condition()
        self.draining = False
        self.in_hand = 0
        """Messages taken and not yet acknowledged."""

    def stand(self, message: Message) -> None:
        """A message has come; to be called for each in order of arrival, before anything else is done with it."""
        partition = (message.delivery.topic, message.delivery.partition)
        self._order.setdefault(partition, deque()).append(message)
        self.in_hand += 1

    async def take(self, job: SummaryJob, message: Message) -> None:
        """Put the job that a message brought."""
        self._waiting.setdefault((job.tree, job.node), []).append(message)
        await self._queue.put(job.tree, [job.node], seq=job.seq)

    async def settle(self, messages: Sequence[Message]) -> None:
        """Messages have been dealt with: acknowledge what stands at the head of each partition and is settled."""
        for message in messages:
            message.settled = True
        done: list[Delivery] = []
        for partition in {(message.delivery.topic, message.delivery.partition) for message in messages}:
            order = self._order[partition]
            while order and order[0].settled:
                message = order.popleft()
                message.acknowledge()
                done.append(message.delivery)
        self.in_hand -= len(done)
        self.acknowledged(done)
        await self._tell()

    async def room(self) -> None:
        """Wait until there is room for more messages."""
        async with self._changed:
            await self._changed.wait_for(lambda: self.in_hand < self._room)

    def oldest(self) -> float | None:
        """When the oldest message in hand was sent, in seconds since 1970; any thread may ask."""
        heads = [order[0] for order in list(self._order.values()) if order]
        return min((message.delivery.timestamp for message in heads), default=None)

    async def rest(self) -> None:
        """Wait until no job is claimed; with `draining` set, none will be any more."""
        async with self._changed:
            await self._changed.wait_for(lambda: not self._claimed)

    def messages(self, job: SummaryJob) -> Sequence[Message]:
        """What a claimed job came with."""
        return self._claimed.get((job.tree, job.node), ())

    async def put(self, tree: TreeId, nodes: Sequence[NodeId], *, seq: int = 0) -> None:
        """Queue nodes without a message."""
        await self._queue.put(tree, nodes, seq=seq)

    async def claim(self) -> SummaryJob:
        """Wait for a job and take it; never returns while draining."""
        job = await self._queue.claim()
        if self.draining:
            await self._queue.retry(job, after=0.0, failed=False)
            await asyncio.Event().wait()
        key = (job.tree, job.node)
        messages = self._claimed[key] = self._waiting.pop(key, [])
        about: dict[str, str | int] = {"banyan.tree": job.tree, "banyan.node": job.node, "banyan.jobs": len(messages)}
        traced = tracing.begin("summarize", of=(message.delivery.headers for message in messages), attributes=about)
        self._runs[key] = _Run(began=self._clock.monotonic(), spent=begin(), traced=traced)
        return job

    async def done(self, job: SummaryJob) -> None:
        """The job is finished: its messages are settled."""
        key = (job.tree, job.node)
        messages = self._claimed.pop(key, [])
        await self._queue.done(job)
        await self._before()
        await self.settle(messages)
        run = self._runs.pop(key)
        seconds = self._clock.monotonic() - run.began
        self.stages.took("summary", seconds)
        self._log.info(
            "summary",
            tree=job.tree,
            node=job.node,
            jobs=len(messages),
            attempt=job.attempt + 1,
            backlog=self.backlog(),
            **milliseconds(run.spent, STAGES),
            ms=round(seconds * 1000, 1),
        )
        run.end()

    async def retry(self, job: SummaryJob, *, after: float, failed: bool = True) -> None:
        """Give the job back, with its messages."""
        key = (job.tree, job.node)
        if (run := self._runs.pop(key, None)) is not None:
            run.end()
        if (messages := self._claimed.pop(key, None)) is not None:
            self._waiting[key] = [*messages, *self._waiting.get(key, [])]
        await self._queue.retry(job, after=after, failed=failed)
        await self._tell()

    def hurry(self, tree: TreeId | None = None) -> None:
        """Let no job linger that is here now."""
        self._queue.hurry(tree)

    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs waiting, delayed or claimed."""
        return self._queue.backlog(tree)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
