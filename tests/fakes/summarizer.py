"""A summarizer that takes its time and fails on demand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from enum import StrEnum

from memory.errors import SummarizerAnswerError, SummarizerError
from memory.ports.clock import Clock
from memory.ports.summarizer import Summarizer, Summary, SummaryRequest

WORDS_KEPT = 40


class SummarizerFault(StrEnum):
    """What a call does instead of answering well."""

    AWAY = "away"
    LIES = "lies"
    EMPTY = "empty"
    HUGE = "huge"
    SURROGATE = "surrogate"
    HANG = "hang"
    CRASH = "crash"


class FakeSummarizer(Summarizer):
    """
    Says how many leaves it covers, then the newest words.

    Args:
        clock: what `delay` is slept on; None sleeps never.
        delay: seconds a call takes.
        tokens_max: budget of one call.
        vector_from_text: as the port says.
        faults: what the next calls do, one each; afterwards all is well.
        poison: requests for which every call gives an unusable answer.
        retry_after: seconds that one that is away asks to wait.
    """

    def __init__(
        self,
        clock: Clock | None = None,
        *,
        delay: float = 0.0,
        tokens_max: int = 2_000,
        vector_from_text: bool = False,
        faults: Iterable[SummarizerFault] = (),
        poison: Callable[[SummaryRequest], bool] = lambda _: False,
        retry_after: float | None = None,
    ) -> None:
        self._clock = clock
        self._delay = delay
        self._tokens_max = tokens_max
        self._vector_from_text = vector_from_text
        self._poison = poison
        self._retry_after = retry_after
        self.faults = deque(faults)
        self.requests: list[SummaryRequest] = []
        """Of each call, failed ones included."""
        self.running = 0
        self.running_most = 0

    @property
    def name(self) -> str:
        return "fake"

    @property
    def vector_from_text(self) -> bool:
        return self._vector_from_text

    @property
    def tokens_max(self) -> int:
        return self._tokens_max

    async def summarize(self, request: SummaryRequest) -> Summary:
        self.requests.append(request)
        fault = self.faults.popleft() if self.faults else None
        self.running += 1
        self.running_most = max(self.running_most, self.running)
        try:
            if self._clock is not None and self._delay:
                await self._clock.sleep(self._delay)
            return self._answer(request, await self._failed(fault) or self._said(request))
        finally:
            self.running -= 1

    async def _failed(self, fault: SummarizerFault | None) -> str | None:
        match fault:
            case SummarizerFault.AWAY:
                raise SummarizerError("the fake model is away (503)", retry_after=self._retry_after)
            case SummarizerFault.LIES:
                raise SummarizerAnswerError("the fake model refused")
            case SummarizerFault.CRASH:
                raise RuntimeError("a mistake in the fake model")
            case SummarizerFault.HANG:
                await asyncio.Event().wait()
            case SummarizerFault.HUGE:
                return "word " * 200_000
            case SummarizerFault.EMPTY:
                return " \n"
            case SummarizerFault.SURROGATE:
                return "half a pair: \ud83d"
            case None:
                pass
        return None

    def _said(self, request: SummaryRequest) -> str:
        words = " ".join(request.new).split()[-WORDS_KEPT:]
        return f"{request.covered + len(request.new)} of {request.descendants}\n{' '.join(words)}"

    def _answer(self, request: SummaryRequest, text: str) -> Summary:
        if self._poison(request):
            raise SummarizerAnswerError("the fake model never likes this")
        return Summary(text=text, calls=1, tokens_in=sum(map(len, request.new)) // 4, tokens_out=len(text) // 4)
