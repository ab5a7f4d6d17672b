"""A provider's budget among the tasks of one process."""

from __future__ import annotations

from memory.ports.budget import BURST, CallBudget, Rate, Turn
from memory.ports.clock import Clock


class InProcessBudget(CallBudget):
    """
    A budget within one process, on one event loop.

    A bucket is kept as the time at which it is out of debt: each call moves it on by what it costs, and it never lies further
    back than `BURST`.

    Args:
        rate: the limits.
        clock: what they are measured by.
    """

    def __init__(self, rate: Rate, clock: Clock) -> None:
        self._clock = clock
        self._request_seconds = 60.0 / rate.requests_per_minute if rate.requests_per_minute else 0.0
        self._token_seconds = 60.0 / rate.tokens_per_minute if rate.tokens_per_minute else 0.0
        self._requests = self._tokens = self._until = clock.monotonic() - BURST

    async def take(self, tokens: int, *, wait_max: float) -> Turn:
        """Take a call from the budget."""
        now = self._clock.monotonic()
        requests, of_tokens = max(self._requests, now - BURST), max(self._tokens, now - BURST)
        wait = max(0.0, self._until - now)
        if self._request_seconds:
            wait = max(wait, requests - now)
        if self._token_seconds:
            wait = max(wait, of_tokens - now)
        if wait > wait_max:
            return Turn(granted=False, wait=wait)
        self._requests = requests + self._request_seconds
        self._tokens = of_tokens + tokens * self._token_seconds
        return Turn(granted=True, wait=wait)

    async def correct(self, tokens: int) -> None:
        """Put right what a call was expected to cost."""
        self._tokens = max(self._tokens, self._clock.monotonic() - BURST) + tokens * self._token_seconds

    async def pause(self, seconds: float) -> None:
        """Give nobody a turn for so long."""
        self._until = max(self._until, self._clock.monotonic() + seconds)
        self._requests = max(self._requests, self._until)
        self._tokens = max(self._tokens, self._until)

    async def paused(self) -> float:
        """Seconds that are left of a pause."""
        return max(0.0, self._until - self._clock.monotonic())
