"""Summary jobs among the tasks of one process."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Sequence

from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJob, SummaryJobs

_Key = tuple[TreeId, NodeId]


class InProcessSummaryJobs(SummaryJobs):
    """
    A queue in memory, on one event loop. A crash forgets it; jobs are then made again from the store's dirty nodes.

    Args:
        clock: what delays are measured by.
        linger: seconds from a node's first contribution until it can be claimed: the longer, the more of them one call takes in.
    """

    def __init__(self, clock: Clock, *, linger: float = 0.0) -> None:
        self._clock = clock
        self._linger = linger
        self._waiting: dict[TreeId, dict[NodeId, int]] = {}
        """Attempts by node, in order, by tree; the trees in the order of their turns."""
        self._delayed: dict[_Key, int] = {}
        """Attempts."""
        self._due: list[tuple[float, int, _Key]] = []
        """Heap of the delayed: when, and a running number that keeps equal times in order."""
        self._claimed: dict[_Key, bool] = {}
        """Whether the node was put while it was being worked on."""
        self._sizes: Counter[TreeId] = Counter()
        self._numbers = itertools.count()
        self._idle: deque[asyncio.Future[None]] = deque()
        """Claims that wait."""

    async def put(self, tree: TreeId, nodes: Sequence[NodeId]) -> None:
        """Queue the nodes. One that is delayed stays so."""
        for node in nodes:
            key = (tree, node)
            if key in self._claimed:
                self._claimed[key] = True
            elif key not in self._delayed and node not in self._waiting.get(tree, ()):
                self._sizes[tree] += 1
                self._first(key)

    async def claim(self) -> SummaryJob:
        """Wait for a job and take it."""
        while True:
            self._promote()
            job = self._take()
            if job is not None:
                return job
            await self._wait()

    async def done(self, job: SummaryJob) -> None:
        """The claimed job is finished."""
        key = (job.tree, job.node)
        again = self._claimed.pop(key, None)
        if again:
            self._first(key)
        elif again is not None:
            self._forget(job.tree)

    async def retry(self, job: SummaryJob, *, after: float) -> None:
        """Give the claimed job back with one more attempt."""
        key = (job.tree, job.node)
        if self._claimed.pop(key, None) is not None:
            self._delay(key, job.attempt + 1, after)

    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs waiting, delayed or claimed."""
        return self._sizes.total() if tree is None else self._sizes[tree]

    def _enqueue(self, key: _Key, attempt: int) -> None:
        self._waiting.setdefault(key[0], {})[key[1]] = attempt
        self._wake()

    def _first(self, key: _Key) -> None:
        """Queue a node for its first attempt."""
        if self._linger > 0:
            self._delay(key, 0, self._linger)
        else:
            self._enqueue(key, 0)

    def _delay(self, key: _Key, attempt: int, after: float) -> None:
        self._delayed[key] = attempt
        heapq.heappush(self._due, (self._clock.monotonic() + after, next(self._numbers), key))
        # Whoever waits may have to wake earlier than it planned to.
        self._wake()

    def _promote(self) -> None:
        """Queue the delayed whose time has come."""
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            *_, key = heapq.heappop(self._due)
            self._enqueue(key, self._delayed.pop(key))

    def _take(self) -> SummaryJob | None:
        tree = next(iter(self._waiting), None)
        if tree is None:
            return None
        nodes = self._waiting.pop(tree)
        node = next(iter(nodes))
        attempt = nodes.pop(node)
        if nodes:
            self._waiting[tree] = nodes  # at the end: the other trees come first
        self._claimed[tree, node] = False
        return SummaryJob(tree=tree, node=node, attempt=attempt)

    def _forget(self, tree: TreeId) -> None:
        self._sizes[tree] -= 1
        if not self._sizes[tree]:
            del self._sizes[tree]

    def _wake(self) -> None:
        while self._idle:
            claim = self._idle.popleft()
            if not claim.done():
                claim.set_result(None)
                return

    async def _wait(self) -> None:
        """Until something was queued or the next delay is over."""
        woken = asyncio.get_running_loop().create_future()
        self._idle.append(woken)
        pause = self._due[0][0] - self._clock.monotonic() if self._due else None
        sleeper = None if pause is None else asyncio.ensure_future(self._clock.sleep(pause))
        try:
            await asyncio.wait({woken, sleeper} if sleeper else {woken}, return_when=asyncio.FIRST_COMPLETED)
        except BaseException:
            if woken.done():
                self._wake()  # this claim was called and goes away: another one must look
            raise
        finally:
            if woken in self._idle:
                self._idle.remove(woken)
            if sleeper is not None:
                sleeper.cancel()
