"""An event loop whose time jumps to the next timer: minutes of waiting take milliseconds, and a deadlock is an error at once."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from memory.ports.clock import Clock

T = TypeVar("T")

STEP = 1e-9  # seconds


class Deadlock(Exception):  # noqa: N818  # what happened, not what went wrong
    """Nothing can run, and no timer is set."""


class _Jump(selectors.SelectSelector):
    """Instead of waiting, moves time."""

    elapsed = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Deadlock("nothing can run, and no timer is set")
        # As on a real machine every turn of the loop takes time: what is a rounding error away would be waited for without end.
        self.elapsed += max(STEP, timeout)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """
    Time all but stands still while anything can run.

    Nothing on it may wait for a thread or a socket: time would run away meanwhile.
    """

    def __init__(self) -> None:
        self._jump = _Jump()
        super().__init__(self._jump)

    def time(self) -> float:
        return self._jump.elapsed


class LoopClock(Clock):
    """The running loop's time, as a clock."""

    def now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.monotonic())

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))


def run_virtually(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end on a loop of its own."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(work)
