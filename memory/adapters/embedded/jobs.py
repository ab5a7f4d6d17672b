"""Summary jobs among the tasks of one process."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJob, SummaryJobs

_Key = tuple[TreeId, NodeId]


class _Waiting(msgspec.Struct, gc=False):
    attempt: int
    seq: int


@dataclass(slots=True)
class _Delayed:
    attempt: int
    seq: int
    number: int
    """Of its entry in the heap; others of the same node mean nothing any more."""
    lingers: bool
    """Whether it waits for more contributions only."""


@dataclass(slots=True)
class _Claimed:
    again: int | None = None
    """The commit that it was put for while it was being worked on; None when it was not put."""
    hurried: bool = False
    """Whether that one is not to linger."""


class InProcessSummaryJobs(SummaryJobs):
    """
    A queue in memory, on one event loop. A crash forgets it; jobs are then made again from the store's dirty nodes.

    Args:
        clock: what delays are measured by.
        linger: seconds from a node's first contribution until it can be claimed: the longer, the more of them one call takes in.
        tree_max: jobs of one tree that may be claimed at once, the others go first; 0 for no limit.
    """

    def __init__(self, clock: Clock, *, linger: float = 0.0, tree_max: int = 0) -> None:
        self._clock = clock
        self._linger = linger
        self._tree_max = tree_max
        self._waiting: dict[TreeId, dict[NodeId, _Waiting]] = {}
        """In order, by tree; the trees in the order of their turns."""
        self._delayed: dict[_Key, _Delayed] = {}
        self._due: list[tuple[float, int, _Key]] = []
        """Heap of the delayed: when, and a running number that keeps equal times in order."""
        self._claimed: dict[_Key, _Claimed] = {}
        self._claimed_of: Counter[TreeId] = Counter()
        self._sizes: Counter[TreeId] = Counter()
        self._numbers = itertools.count()
        self._idle: deque[asyncio.Future[None]] = deque()
        """Claims that wait."""

    async def put(self, tree: TreeId, nodes: Sequence[NodeId], *, seq: int = 0) -> None:
        """Queue the nodes. One that is delayed stays so."""
        for node in nodes:
            # Where a commit names hundreds of nodes, most of them wait already.
            here: _Waiting | _Delayed | None = self._waiting.get(tree, {}).get(node)
            if here is not None:
                here.seq = _later(here.seq, seq)
                continue
            key = (tree, node)
            if (claimed := self._claimed.get(key)) is not None:
                claimed.again = seq if claimed.again is None else _later(claimed.again, seq)
            elif (here := self._delayed.get(key)) is not None:
                here.seq = _later(here.seq, seq)
            else:
                self._sizes[tree] += 1
                self._first(key, seq)

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
        claimed = self._unclaim(key)
        if claimed is None:
            return
        if claimed.again is None:
            self._forget(job.tree)
        else:
            self._first(key, claimed.again, hurried=claimed.hurried)
        self._wake()

    async def retry(self, job: SummaryJob, *, after: float, failed: bool = True) -> None:
        """Give the claimed job back."""
        key = (job.tree, job.node)
        claimed = self._unclaim(key)
        if claimed is not None:
            seq = job.seq if claimed.again is None else _later(job.seq, claimed.again)
            self._delay(key, job.attempt + failed, seq, after)

    def hurry(self, tree: TreeId | None = None) -> None:
        """Let what lingers be had at once."""
        for key, delayed in list(self._delayed.items()):
            if delayed.lingers and tree in (None, key[0]):
                del self._delayed[key]
                self._enqueue(key, delayed.attempt, delayed.seq)
        for key, claimed in self._claimed.items():
            claimed.hurried |= tree in (None, key[0])

    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs waiting, delayed or claimed."""
        return self._sizes.total() if tree is None else self._sizes[tree]

    def _enqueue(self, key: _Key, attempt: int, seq: int) -> None:
        self._waiting.setdefault(key[0], {})[key[1]] = _Waiting(attempt, seq)
        self._wake()

    def _first(self, key: _Key, seq: int, *, hurried: bool = False) -> None:
        """Queue a node for its first attempt."""
        if self._linger > 0 and not hurried:
            self._delay(key, 0, seq, self._linger, lingers=True)
        else:
            self._enqueue(key, 0, seq)

    def _delay(self, key: _Key, attempt: int, seq: int, after: float, *, lingers: bool = False) -> None:
        number = next(self._numbers)
        self._delayed[key] = _Delayed(attempt, seq, number, lingers)
        heapq.heappush(self._due, (self._clock.monotonic() + after, number, key))
        # Whoever waits may have to wake earlier than it planned to.
        self._wake()

    def _promote(self) -> None:
        """Queue the delayed whose time has come."""
        now = self._clock.monotonic()
        while self._due and self._due[0][0] <= now:
            _, number, key = heapq.heappop(self._due)
            delayed = self._delayed.get(key)
            if delayed is not None and delayed.number == number:
                del self._delayed[key]
                self._enqueue(key, delayed.attempt, delayed.seq)

    def _take(self) -> SummaryJob | None:
        open_trees = (tree for tree in self._waiting if not self._tree_max or self._claimed_of[tree] < self._tree_max)
        tree = next(open_trees, None)
        if tree is None:
            return None
        nodes = self._waiting.pop(tree)
        node = next(iter(nodes))
        taken = nodes.pop(node)
        if nodes:
            self._waiting[tree] = nodes  # at the end: the other trees come first
        self._claimed[tree, node] = _Claimed()
        self._claimed_of[tree] += 1
        return SummaryJob(tree=tree, node=node, attempt=taken.attempt, seq=taken.seq)

    def _unclaim(self, key: _Key) -> _Claimed | None:
        claimed = self._claimed.pop(key, None)
        if claimed is not None:
            self._claimed_of[key[0]] -= 1
            if not self._claimed_of[key[0]]:
                del self._claimed_of[key[0]]
        return claimed

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


def _later(one: int, other: int) -> int:
    """The commit that both are about; 0, not known, is about all."""
    return max(one, other) if one and other else 0
