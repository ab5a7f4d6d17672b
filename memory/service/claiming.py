"""Keeping a claim while the work under it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from memory.errors import TransientError
from memory.ports.claims import Claim, NodeClaims
from memory.ports.clock import Clock

TTL = timedelta(seconds=30)
"""After this long a dead worker's node is anybody's. Longer than a busy machine stops a process for."""
BEATS = 3
"""Renewals in that time: one that is lost does no harm."""


@asynccontextmanager
async def kept(claims: NodeClaims, claim: Claim, clock: Clock) -> AsyncIterator[None]:
    """
    Renew the claim while the body runs; it is the body's to give it back.

    A claim that another has taken meanwhile is let go without a word: the answer of a call that was paid for is still written,
    unless the other was faster.
    """
    beating = asyncio.create_task(_renewed(claims, claim, clock), name=f"banyan-claim-{claim.node}")
    try:
        yield
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)


async def _renewed(claims: NodeClaims, claim: Claim, clock: Clock) -> None:
    held = True
    while held:
        await clock.sleep(TTL.total_seconds() / BEATS)
        with suppress(TransientError):
            held = await claims.renew(claim, ttl=TTL)
