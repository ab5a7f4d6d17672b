"""
Summary jobs as they come from Kafka: coalesced by node, worked on out of order, acknowledged in order.

A job's messages are acknowledged once the node was brought up to date by a call that began after they were taken, and never before
those that stand before them in their partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJob, SummaryJobs
from memory.service.stages import Stages
from streams import tracing
from streams.acknowledging import Message, Standing
from streams.deliveries import Delivery
from streams.spending import begin, milliseconds
from streams.workers.spilling import Spill

STAGES = ("read", "model", "embed", "write")
"""On the line of each job, summed over the calls that it took."""
MESSAGES_A_NODE = 16
"""Kept, for traces and dead letters; the first alone would do, since nothing behind it is acknowledged before it."""
HELD_MAX = 30_000
"""Messages in hand above which `room` waits, settled ones behind one that is not included: some 2 KB each. Ten seconds of lingering
at 3,000 messages a second stay below it."""
SHARES = 4
"""Parts that the room is in when one tree floods: it has one, the others are for those that come."""
__all__ = ["Message", "TakenJobs"]
_Key = tuple[TreeId, NodeId]
Dirty = Callable[[TreeId, int], Awaitable[Sequence[NodeId]]]
Renew = Callable[[TreeId, NodeId], Awaitable[object]]


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
        room: nodes in hand above which `room` waits; it also waits above `HELD_MAX` messages.
        before: awaited when a job has ended, before its messages are acknowledged.
        clock: for the log.
        log: gets one line a job.
        dirty: gives a tree's dirty nodes, at most so many; waits until they can be had. Without it a tree that floods is held as
            far as there is room.
        renew: puts a message on the topic that stands for all dirty nodes of a tree, given one of them; returns when the broker has
            it. Without it the first messages of a tree that floods are kept until it is through.
    """

    def __init__(
        self,
        queue: SummaryJobs,
        *,
        room: int,
        before: Callable[[], Awaitable[object]],
        clock: Clock,
        log: structlog.stdlib.BoundLogger,
        dirty: Dirty | None = None,
        renew: Renew | None = None,
    ) -> None:
        self._dirty = dirty
        self._renew = renew
        self._spill = Spill()
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
        self._standing = Standing()
        self._changed = asyncio.Condition()
        self.draining = False

    @property
    def in_hand(self) -> int:
        """Messages taken and not yet acknowledged."""
        return self._standing.count

    def stand(self, message: Message) -> None:
        """A message has come; to be called for each in order of arrival, before anything else is done with it."""
        self._standing.stand(message)

    async def take(self, job: SummaryJob, message: Message, *, whole: bool = False) -> None:
        """
        Put the job that a message brought.

        Args:
            job: what it says.
            message: the message.
            whole: whether it stands for all dirty nodes of the tree.
        """
        known = self._waiting.get((job.tree, job.node))
        if self._dirty is not None and (whole or (known is None and self._floods(job.tree))):
            if self._spill.add(job.tree, message):
                await self.settle([message])
            crowded = self._standing.count >= HELD_MAX // 2
            if self._renew is not None and self._spill.due(job.tree, crowded=crowded):
                await self._renew(job.tree, job.node)
                await self.settle(self._spill.renewed(job.tree))
            if whole:
                await self._refill(job.tree)  # there may be nothing in hand whose end would do so
            return
        if known is not None and len(known) >= MESSAGES_A_NODE:
            await self.settle([message])
        else:
            self._waiting.setdefault((job.tree, job.node), []).append(message)
        await self._queue.put(job.tree, [job.node], seq=job.seq)

    def _floods(self, tree: TreeId) -> bool:
        return tree in self._spill or self._queue.backlog(tree) >= self._share

    @property
    def _share(self) -> int:
        return max(1, self._room // SHARES)

    async def settle(self, messages: Sequence[Message]) -> None:
        """Messages have been dealt with: acknowledge what stands at the head of each partition and is settled."""
        self.acknowledged(self._standing.settle(messages))
        await self._tell()

    async def room(self) -> None:
        """Wait until there is room for more messages."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._queue.backlog() < self._room and self._standing.count < HELD_MAX)

    def oldest(self) -> float | None:
        """When the oldest message in hand was sent, in seconds since 1970; any thread may ask."""
        return self._standing.oldest()

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
        await self.settle([*messages, *self._spill.done(job.tree, job.node)])
        await self._refill(job.tree)
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
        self._spill.retried(job.tree, job.node)
        await self._queue.retry(job, after=after, failed=failed)
        await self._tell()

    def hurry(self, tree: TreeId | None = None) -> None:
        """Let no job linger that is here now."""
        self._queue.hurry(tree)

    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs waiting, delayed or claimed."""
        return self._queue.backlog(tree)

    async def _refill(self, tree: TreeId) -> None:
        """Read the dirty nodes of a tree whose messages were not held, when half of its share is free."""
        while self._dirty is not None and self._spill.wants(tree) and self._queue.backlog(tree) <= self._share // 2:
            self._spill.begin(tree)
            try:
                nodes = await self._dirty(tree, self._share)
            except BaseException:
                self._spill.give_up(tree)
                raise
            claimed = [node for of, node in self._claimed if of == tree]
            self._spill.found(tree, nodes, whole=len(nodes) < self._share, claimed=claimed)
            await self._queue.put(tree, nodes)
            self._queue.hurry(tree)  # they have waited
            await self.settle(self._spill.settled(tree))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
