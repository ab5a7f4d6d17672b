"""A model's turns at its provider, and what the provider says about coming back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from memory.errors import TransientError
from memory.ports.budget import CallBudget


@dataclass(slots=True)
class ThrottleCounts:
    """What the budget has cost since the process started."""

    turns: int = 0
    """Calls that were let through."""
    waits: int = 0
    """Of those, the ones that waited."""
    waited_s: float = 0.0
    """Seconds that they waited, together."""
    refused: int = 0
    """Calls that were put off because their turn was too far away."""
    pauses: int = 0
    """Times that the provider asked to be left alone."""


class Throttle:
    """
    Waits for a call's turn.

    Args:
        budget: shared with whoever else asks the provider.
        what: who is asked, for messages.
        transient: raised for a call whose turn is too far away; carries `retry_after`.
        wait_max: longest wait for a turn, in seconds.
        sleep: waits.
    """

    def __init__(
        self,
        budget: CallBudget,
        *,
        what: str,
        transient: type[TransientError],
        wait_max: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._budget = budget
        self._what = what
        self._transient = transient
        self._wait_max = wait_max
        self._sleep = sleep
        self.counts = ThrottleCounts()

    async def turn(self, tokens: int) -> None:
        """
        Return when a call that is expected to cost so many tokens may be made.

        Raises:
            TransientError: of the kind given, when that would take too long; of another, when the budget cannot be had.
        """
        left = self._wait_max
        waited = 0.0
        while True:
            turn = await self._budget.take(tokens, wait_max=left)
            if not turn.granted:
                self.counts.refused += 1
                message = f"{self._what}: the limit of requests or tokens a minute is used up, or it asked to be left alone"
                raise self._transient(f"{message}; the next turn is in {turn.wait:.1f} s", retry_after=turn.wait)
            if turn.wait > 0:
                await self._sleep(turn.wait)
            waited += turn.wait
            left = max(0.0, left - turn.wait)
            # A pause that began meanwhile voids the turn: all are lined up anew behind it.
            if turn.wait <= 0 or await self._budget.paused() <= 0:
                break
        self.counts.turns += 1
        self.counts.waits += waited > 0
        self.counts.waited_s += waited

    async def pause(self, seconds: float) -> None:
        """The provider wants to be left alone; whoever shares the budget leaves it alone."""
        self.counts.pauses += 1
        with suppress(TransientError):
            await self._budget.pause(seconds)

    async def correct(self, expected: int, used: int) -> None:
        """A call has cost `used` tokens instead of `expected`."""
        with suppress(TransientError):
            await self._budget.correct(used - expected)
