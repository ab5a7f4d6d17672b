"""A clock that a test moves."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from datetime import UTC, datetime, timedelta

from memory.ports.clock import Clock

SETTLE_ROUNDS = 20


class FakeClock(Clock):
    """
    Stands still until `advance`; sleepers wake in order of their time, each seeing the clock at exactly that time.

    Args:
        start: the wall clock's start.
    """

    def __init__(self, start: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:  # immutable
        self._start = start
        self._seconds = 0.0
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []
        self._numbers = itertools.count()

    def now(self) -> datetime:
        return self._start + timedelta(seconds=self._seconds)

    def monotonic(self) -> float:
        return self._seconds

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        sleeper: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._seconds + seconds, next(self._numbers), sleeper))
        await sleeper

    @property
    def sleeping(self) -> int:
        """How many sleep now."""
        return sum(not sleeper.done() for _, _, sleeper in self._sleepers)

    async def settle(self) -> None:
        """Let everything that can run without time passing run."""
        for _ in range(SETTLE_ROUNDS):
            await asyncio.sleep(0)

    async def advance(self, seconds: float) -> None:
        """Move time forward, waking sleepers on the way."""
        await self.settle()
        end = self._seconds + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            due, _, sleeper = heapq.heappop(self._sleepers)
            if not sleeper.done():
                self._seconds = max(self._seconds, due)
                sleeper.set_result(None)
                await self.settle()
        self._seconds = end
        await self.settle()
