"""Infrastructure errors are waited out in place: nothing that is in hand is dropped or skipped, and the log is not flooded."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from memory.errors import TransientError
from memory.ports.clock import Clock

Result = TypeVar("Result")

WAIT_FIRST = 0.2  # seconds
WAIT_MAX = 10.0  # seconds
LOG_EVERY = 30.0  # seconds


class Retry:
    """
    Does things until they succeed.

    Args:
        clock: what is waited by.
        log: gets a line at the first failure, one every `LOG_EVERY` seconds, and one when it is over.
    """

    def __init__(self, clock: Clock, log: structlog.stdlib.BoundLogger) -> None:
        self._clock = clock
        self._log = log
        self.failures_of: Counter[str] = Counter()
        """Failed attempts since the process started, by what was done."""
        self._waiting: dict[object, TransientError] = {}

    @property
    def waited_for(self) -> list[TransientError]:
        """The errors that are waited out just now; any thread may ask."""
        return list(self._waiting.values())

    async def __call__(self, what: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """
        The result of `work`, called again while it raises `TransientError`; everything else is passed on.

        Args:
            what: is being done, in a word or two.
            work: must do no harm when it is done again.
        """
        call = object()
        try:
            return await self._until_it_succeeds(what, work, call)
        finally:
            self._waiting.pop(call, None)

    async def _until_it_succeeds(self, what: str, work: Callable[[], Awaitable[Result]], call: object) -> Result:
        start = said = self._clock.monotonic()
        for attempt in itertools.count():
            try:
                result = await work()
            except TransientError as error:
                self.failures_of[what] += 1
                self._waiting[call] = error
                now = self._clock.monotonic()
                if attempt == 0 or now - said >= LOG_EVERY:
                    said = now
                    self._log.warning("waiting", what=what, attempts=attempt + 1, seconds=round(now - start, 1), error=str(error))
                # Many workers that lost the same thing must not come back at the same moment.
                wait = min(WAIT_FIRST * 2 ** min(attempt, 20), WAIT_MAX) * random.uniform(0.5, 1.0)  # noqa: S311  # jitter
                await self._clock.sleep(max(wait, error.retry_after or 0.0))
            else:
                if attempt:
                    self._log.info("going on", what=what, attempts=attempt + 1, seconds=round(self._clock.monotonic() - start, 1))
                return result
        raise AssertionError("itertools.count does not end")
