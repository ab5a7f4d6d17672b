"""What the agents of one process share: settings, the pipeline once it is open, how far they are, and the way out."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, Protocol, TypeVar

import structlog

from memory.errors import TransientError
from memory.service.stages import Stages
from streams.deliveries import Delivery
from streams.liveness import end_process
from streams.progress import Progress
from streams.settings import Settings
from streams.spending import spend
from streams.topics import Topics, topics

_log = structlog.stdlib.get_logger("streams.worker")


class Pipeline(Protocol):
    """What an agent hands its messages to."""

    @property
    def stages(self) -> Sequence[Stages]:
        """What times its parts."""

    def waited_for(self) -> Sequence[TransientError]:
        """The errors that it waits out just now; any thread may ask."""

    async def probe(self) -> None:
        """
        Ask the store for something small.

        Raises:
            TransientError: it is away.
        """

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
        self.client = f"{settings.kafka.prefix}-{socket.gethostname()}-{os.getpid()}-{os.urandom(4).hex()}"
        """What this worker, and no other, is called among Kafka's clients."""
        self.draining = False
        """No new work is taken."""
        self.on_batch: Callable[[str, int], None] | None = None
        """Told the topic and the size of each batch that is dealt with."""
        self.on_stage: Callable[[str, float], None] = spend
        """Told the name and the seconds of each stage; to be set before the pipeline is opened."""
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
                    for stages in self._pipeline.stages:
                        stages.told = self.on_stage
        return self._pipeline

    @property
    def opened(self) -> P | None:
        """The pipeline, once it is open."""
        return self._pipeline

    def waited_for(self) -> Sequence[TransientError]:
        """The errors that are waited out just now; any thread may ask."""
        pipeline = self._pipeline
        return pipeline.waited_for() if pipeline is not None else ()

    async def probe(self) -> None:
        """
        Ask the store for something small, once it is open.

        Raises:
            TransientError: it is away.
        """
        if self._pipeline is not None:
            await self._pipeline.probe()

    @contextmanager
    def batch(self, deliveries: Sequence[Delivery] = ()) -> Iterator[None]:
        """
        A batch, of one topic, is being dealt with.

        An error in it ends the process: whatever it was, an agent that raises it acknowledges what it was on.
        """
        self._batches += 1
        self._idle.clear()
        if self.on_batch is not None and deliveries:
            self.on_batch(deliveries[0].topic, len(deliveries))
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

    def taken(self, deliveries: Sequence[Delivery]) -> None:
        """An agent was given these."""
        self.progress.taken(time.monotonic(), deliveries)

    def acknowledged(self, deliveries: Sequence[Delivery]) -> None:
        """These were acknowledged."""
        self.progress.done(time.monotonic(), deliveries)

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
