"""How much waits to be summarized, in the whole store, whoever is to do it: looked at now and then, for the metrics."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

from memory.errors import BanyanError, ClaimBusyError
from memory.model import NodeId, TreeId
from memory.ports.claims import Claim, NodeClaims
from memory.ports.clock import Clock
from memory.ports.store import Pending, TreeStore

EVERY = 15.0  # seconds
SHARE = 20
"""A look that took long is followed by a pause of so many times that: looking takes at most a twentieth of a worker's time."""

TURN = timedelta(seconds=45)
"""So long after its next look is due, one that looks no more is taken to be gone, and another looks in its place."""

_STORE, _LOOKER = TreeId("*"), NodeId("pending")
"""What is claimed: no tree can have that name."""


class Waiting:
    """
    Looks at a store, one worker at a time: a look goes over every tree, and all would see the same.

    The one whose turn it is keeps it until it stops. The others have nothing to tell, and try for the turn every 15 s.

    Args:
        store: looked at.
        claims: of all workers of that store.
        clock: for the pauses.
    """

    def __init__(self, store: TreeStore, claims: NodeClaims, clock: Clock) -> None:
        self._store = store
        self._claims = claims
        self._clock = clock
        self._turn: Claim | None = None
        self.found: Pending | None = None
        """By the last look that succeeded; None before the first, and while another worker looks."""
        self._looking: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._looking = asyncio.ensure_future(self._look())

    async def stop(self) -> None:
        """Look no more, and let another; idempotent."""
        looking, self._looking = self._looking, None
        if looking is not None:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
        turn, self._turn = self._turn, None
        if turn is not None:
            # Otherwise it ends by itself.
            with suppress(BanyanError):
                await self._claims.release(turn)

    async def _look(self) -> None:
        pause = EVERY
        while True:
            # A store that is away is told of by what waits for it.
            with suppress(BanyanError):
                if await self._is_mine(TURN):
                    began = self._clock.monotonic()
                    self.found = await self._store.pending()
                    pause = max(EVERY, SHARE * (self._clock.monotonic() - began))
                    # What took longer than the turn may have been looked at by another meanwhile.
                    await self._is_mine(TURN + timedelta(seconds=pause))
                else:
                    pause = EVERY
            await self._clock.sleep(pause)

    async def _is_mine(self, ttl: timedelta) -> bool:
        """Whether it is this worker's turn, for so long from now."""
        try:
            if self._turn is None:
                self._turn = await self._claims.claim(_STORE, _LOOKER, ttl=ttl)
            elif not await self._claims.renew(self._turn, ttl=ttl):
                self._turn = self.found = None
        except ClaimBusyError:
            return False
        return self._turn is not None
