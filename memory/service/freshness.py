"""Waiting until summaries are up to date, whoever makes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJobs
from memory.ports.store import TreeStore
from memory.service.pool import SummaryPool

POLL = 0.05  # seconds
POLL_MAX = 2.0  # seconds
TREES_PER_SECOND = 400
"""Trees that are read a second at most, until `POLL_MAX`: with many of them waiting would else be the store's main work."""
ADOPT_AFTER = 5.0  # seconds
"""Stillness of a tree after which pending nodes that nobody queued here are taken over: whoever had them may be dead. If it is only
slow, one of the two calls is in vain."""
DIRTY_PER_READ = 10_000


class Freshness:
    """
    Waits for summaries.

    Args:
        store, jobs, clock: the ports.
        pool: of this process.
    """

    def __init__(self, *, store: TreeStore, jobs: SummaryJobs, pool: SummaryPool, clock: Clock) -> None:
        self._store = store
        self._jobs = jobs
        self._pool = pool
        self._clock = clock

    async def wait(self, tree: TreeId | None, *, progress: Callable[[int], None] | None, seconds: float | None) -> bool:
        """
        Wait until no summary is pending, neither in this process's queue nor in the store.

        Jobs that are here when the wait begins do not linger for more contributions: somebody waits for their summaries.

        Args:
            tree: None for all.
            progress: called with the number of nodes left, at most twenty times a second.
            seconds: longest wait; None for no limit.

        Returns:
            False when the time was over, or nodes were given up meanwhile.
        """
        report = progress or (lambda _: None)
        given_up = self._pool.given_up_in(tree)
        end = None if seconds is None else self._clock.monotonic() + seconds
        still: dict[TreeId, tuple[int, float]] = {}
        self._jobs.hurry(tree)
        while True:
            pause = POLL
            left = self._jobs.backlog(tree)
            if not left or not self._pool.running:
                if self._pool.given_up_in(tree) != given_up:
                    report(0)
                    return False
                pending = await self._pending(tree)
                left = sum(map(len, pending.values()))
                pause = min(max(POLL, len(pending) / TREES_PER_SECOND), POLL_MAX)
                if not left:
                    report(0)
                    return True
                if self._pool.running:
                    await self._adopt(pending, still)
            report(left)
            now = self._clock.monotonic()
            if end is not None and now >= end:
                return False
            await self._clock.sleep(pause if end is None else min(pause, end - now))

    async def _pending(self, tree: TreeId | None) -> dict[TreeId, Sequence[NodeId]]:
        trees = [tree] if tree is not None else [info.id for info in await self._store.trees()]
        return {name: [dirty.node for dirty in await self._store.dirty(name, limit=DIRTY_PER_READ)] for name in trees}

    async def _adopt(self, pending: dict[TreeId, Sequence[NodeId]], still: dict[TreeId, tuple[int, float]]) -> None:
        """Queue what other processes left behind: pending nodes of trees in which nothing has happened for a while."""
        now = self._clock.monotonic()
        for tree, nodes in pending.items():
            if nodes:
                seq = (await self._store.tree(tree)).seq
                known, since = still.get(tree, (-1, now))
                if known != seq:
                    still[tree] = seq, now
                elif now - since >= ADOPT_AFTER:
                    await self._jobs.put(tree, nodes)
                    self._jobs.hurry(tree)
