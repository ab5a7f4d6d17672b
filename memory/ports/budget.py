"""How often and how much a provider may be asked, among all who ask it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

BURST = 6.0  # seconds
"""What was left unused in the last so many seconds may be made up for at once: a tenth of a minute's limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A provider's limits; 0 is none."""

    requests_per_minute: int = 0
    tokens_per_minute: int = 0

    @property
    def limited(self) -> bool:
        """Whether there is any."""
        return bool(self.requests_per_minute or self.tokens_per_minute)


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The answer to who wants to make a call."""

    granted: bool
    """False: nothing was taken from the budget."""
    wait: float
    """Seconds, not negative: until the call may be made, or, when it was not granted, until it is worth asking again."""


class CallBudget(ABC):
    """
    A token bucket of requests and one of tokens, and the pauses that the provider asked for.

    Every call has its turn: those that ask earlier have earlier ones, and nobody asks twice for the same. A call that costs more
    than a bucket holds is let through when the bucket is not in debt, and puts it there, so that the rate holds over time.
    Calls are safe from several tasks and, where the adapter says so, from several processes and machines.
    """

    @abstractmethod
    async def take(self, tokens: int, *, wait_max: float) -> Turn:
        """
        Take one request and so many tokens from the budget, for a call that is made after `Turn.wait`.

        Args:
            tokens: what the call is expected to cost, both ways; not negative.
            wait_max: seconds; when it would be longer nothing is taken.
        """

    @abstractmethod
    async def correct(self, tokens: int) -> None:
        """A call has cost so many tokens more than it was expected to (negative: fewer)."""

    @abstractmethod
    async def pause(self, seconds: float) -> None:
        """
        The provider wants to be left alone for so long: nobody has a turn before.

        Never shortens a pause. Nothing is left in the buckets after it, so that not all who waited come at once.
        """

    @abstractmethod
    async def paused(self) -> float:
        """Seconds that the provider is still to be left alone; 0 when it is not."""
