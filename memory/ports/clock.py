"""Time, as a port: decisions never read it, effects get it from here."""

from __future__ import annotations

from abc import ABC, abstractmethod
from datetime import datetime


class Clock(ABC):
    """Wall clock and monotonic clock."""

    @abstractmethod
    def now(self) -> datetime:
        """Wall-clock time with the UTC zone."""

    @abstractmethod
    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None:
        """Wait; 0 or less only lets others run."""
