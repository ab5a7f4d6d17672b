"""The machine's clock."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from memory.ports.clock import Clock


class SystemClock(Clock):
    """Wall clock and monotonic clock of this machine; sleeping is the event loop's."""

    def now(self) -> datetime:
        """Wall-clock time with the UTC zone."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds since the machine's start, roughly."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the running event loop."""
        await asyncio.sleep(max(0.0, seconds))
