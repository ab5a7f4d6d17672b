"""A provider's budget in Redis: among all processes and machines that ask it."""

from __future__ import annotations

import hashlib
import math

from memory.adapters.redis.keys import budget_key
from memory.adapters.redis.link import Link
from memory.ports.budget import BURST, CallBudget, Rate, Turn


class RedisCallBudget(CallBudget):
    """
    The budget of all processes that use one Redis and prefix. Times are the server's.

    A call whose answer was lost on the way may be counted twice: the budget is then used a little less than it could be.

    Args:
        link: to Redis; not closed with the budget.
        provider: whose budget it is; all that name the same one share it.
        rate: the limits; meant to be the same everywhere.
    """

    def __init__(self, link: Link, provider: str, rate: Rate) -> None:
        self._link = link
        # An address may hold anything, a key may not.
        self._key = budget_key(link.settings.prefix, hashlib.sha256(provider.encode()).hexdigest()[:16])
        self._request_ms = 60_000 / rate.requests_per_minute if rate.requests_per_minute else 0
        self._token_ms = 60_000 / rate.tokens_per_minute if rate.tokens_per_minute else 0

    async def take(self, tokens: int, *, wait_max: float) -> Turn:
        """Take a call from the budget."""
        granted, wait = await self._ask("take", tokens, math.floor(wait_max * 1000))
        return Turn(granted=bool(granted), wait=wait / 1000)

    async def correct(self, tokens: int) -> None:
        """Put right what a call was expected to cost."""
        if tokens and self._token_ms:
            await self._ask("correct", tokens)

    async def pause(self, seconds: float) -> None:
        """Give nobody a turn for so long."""
        await self._ask("pause", math.ceil(seconds * 1000))

    async def paused(self) -> float:
        """Seconds that are left of a pause."""
        seconds, micros = await self._link.command("TIME")
        until = await self._link.command("HGET", self._key, "until")
        return max(0.0, float(until or 0) / 1000 - int(seconds) - int(micros) / 1_000_000)

    async def _ask(self, what: str, amount: int, wait_max_ms: int = 0) -> tuple[int, int]:
        burst_ms = int(BURST * 1000)
        granted, wait = await self._link.script(
            "budget", [self._key], what, amount, self._request_ms, self._token_ms, burst_ms, wait_max_ms
        )
        return int(granted), int(wait)
