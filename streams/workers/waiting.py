"""How much waits to be summarized, in the whole store, whoever is to do it: looked at now and then, for the metrics."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from memory.errors import BanyanError
from memory.ports.clock import Clock
from memory.ports.store import Pending, TreeStore

EVERY = 15.0  # seconds
SHARE = 20
"""A look that took long is followed by a pause of so many times that: looking takes at most a twentieth of a worker's time."""


class Waiting:
    """
    Looks at a store.

    Args:
        store: looked at.
        clock: for the pauses.
    """

    def __init__(self, store: TreeStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self.found: Pending | None = None
        """By the last look that succeeded; None before the first."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._looking = asyncio.ensure_future(self._look())

    async def stop(self) -> None:
        """Look no more; idempotent."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)

    async def _look(self) -> None:
        while True:
            began = self._clock.monotonic()
            # A store that is away is told of by what waits for it.
            with suppress(BanyanError):
                self.found = await self._store.pending()
            await self._clock.sleep(max(EVERY, SHARE * (self._clock.monotonic() - began)))
