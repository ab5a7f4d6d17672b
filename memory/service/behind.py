"""The index following behind ingestion, so that the first query does not find all the work left to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from functools import partial

from memory.model import TreeId
from memory.service.indexing import Indexing

INDEX_LAG = 1.0
"""Seconds that the index may stay behind while records come in, for want of a query: updates of few commits make many small
segments, whose merging took more time at 100,000 leaves than the commits themselves."""


class IndexingBehind:
    """
    Has the index of trees that were written to catch up soon, one task a tree.

    Args:
        indexing: does it.
    """

    def __init__(self, indexing: Indexing) -> None:
        self._indexing = indexing
        self._running: dict[TreeId, asyncio.Task[int]] = {}
        self._ending = asyncio.Event()

    @property
    def running(self) -> list[asyncio.Task[int]]:
        """What is waiting or at work."""
        return list(self._running.values())

    def written(self, trees: Iterable[TreeId]) -> None:
        """These have new commits."""
        for tree in trees:
            running = self._running.get(tree)
            if running is None or running.done():
                task = asyncio.create_task(self._catch_up(tree), name=f"banyan-index-{tree}")
                task.add_done_callback(partial(self._done, tree))
                self._running[tree] = task

    async def finish(self) -> None:
        """Let what is begun end, without waiting for more commits; its errors are the next query's, which does the same work."""
        self._ending.set()
        await asyncio.gather(*self._running.values(), return_exceptions=True)

    async def _catch_up(self, tree: TreeId) -> int:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ending.wait(), INDEX_LAG)
        return await self._indexing.catch_up(tree)

    def _done(self, tree: TreeId, task: asyncio.Task[int]) -> None:
        if self._running.get(tree) is task:
            del self._running[tree]
        if not task.cancelled():
            task.exception()  # shows itself to the next query, which does the same work and waits for it
