"""What the agents of one process share: settings, the pipeline once it is open, how far they are, and the way out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import structlog

from streams.liveness import Progress, end_process
from streams.settings import Settings
from streams.topics import Topics, topics

_log = structlog.stdlib.get_logger("streams.worker")


class Pipeline(Protocol):
    """What an agent hands its messages to."""

    async def drain(self) -> None:
        """Begin nothing new, and wait until what was begun is finished."""

    async def close(self) -> None:
        """Release what it holds."""


P = TypeVar("P", bound=Pipeline)


class Runtime(Generic[P]):
    """
    One process's worker.

    Args:
        settings: in force.
        open_pipeline: makes the pipeline, with connections and models; called once, in the loop it works in.
        end: ends the process when it cannot go on; never returns but in tests.
    """

    def __init__(
        self, settings: Settings, open_pipeline: Callable[[Settings], Awaitable[P]], *, end: Callable[[str], None] = end_process
    ) -> None:
        self.settings = settings
        self.topics: Topics = topics(settings.kafka)
        self.progress = Progress()
        self.draining = False
        """No new work is taken."""
        self._open = open_pipeline
        self._end = end
        self._pipeline: P | None = None
        self._opening = asyncio.Lock()
        self._batches = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def pipeline(self) -> P:
        """The pipeline, opened at the first call."""
        if self._pipeline is None:
            async with self._opening:
                if self._pipeline is None:
                    self._pipeline = await self._open(self.settings)
        return self._pipeline

    @contextmanager
    def batch(self) -> Iterator[None]:
        """
        A batch is being dealt with.

        An error in it ends the process: whatever it was, an agent that raises it acknowledges what it was on.
        """
        self._batches += 1
        self._idle.clear()
        try:
            yield
        except Exception as error:
            _log.error("batch failed", error=f"{type(error).__name__}: {error}", exc_info=True)
            self._end(f"a batch failed: {type(error).__name__}: {error}")
            raise
        finally:
            self._batches -= 1
            if not self._batches:
                self._idle.set()

    def taken(self, records: int) -> None:
        """Records came."""
        self.progress.taken(time.monotonic(), records)

    def acknowledged(self, records: int) -> None:
        """Records were acknowledged."""
        self.progress.done(time.monotonic(), records)

    async def unless_draining(self) -> None:
        """Return at once, or never when no new work is to be taken; the agent's task is cancelled meanwhile."""
        if self.draining:
            await asyncio.Event().wait()

    async def drain(self) -> None:
        """Take no new work, and wait until what is in hand is finished."""
        self.draining = True
        if self._pipeline is not None:
            await self._pipeline.drain()
        await self._idle.wait()

    async def close(self) -> None:
        """Close the pipeline; idempotent."""
        pipeline, self._pipeline = self._pipeline, None
        if pipeline is not None:
            await pipeline.close()
