"""The extractive summarizer in a process of its own, for processes that answer questions meanwhile."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection

from memory.adapters.embedded.extractive.summarizer import ExtractiveSummarizer, summarize
from memory.ports.summarizer import Summary, SummaryRequest

NICENESS = 10
"""How much the process gives way to others: a summary may come later, an answer not."""


class ApartSummarizer(ExtractiveSummarizer):
    """
    Makes the same summaries, one at a time, in another process.

    Each takes milliseconds of pure Python, during which nothing else would be answered here. The process begins with the first
    summary. Should it be killed, the summary in hand is made here, and the next one in a new process.
    """

    def __init__(self) -> None:
        super().__init__()
        self._turn = asyncio.Lock()
        self._other: _Other | None = None

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Make one summary; never fails, never empty."""
        async with self._turn:
            try:
                if self._other is None:
                    self._other = await asyncio.to_thread(_Other)
                return Summary(text=await asyncio.to_thread(self._other.ask, request))
            except (EOFError, OSError):
                self._end()
            except BaseException:
                # Nobody waits for this answer any more, and the next request would get it.
                self._end()
                raise
        return await super().summarize(request)

    async def close(self) -> None:
        """End the process."""
        self._end()

    def _end(self) -> None:
        if self._other is not None:
            self._other.end()
            self._other = None


class _Other:
    """The process, and our end of the pipe to it."""

    def __init__(self) -> None:
        # Forked it would have this process's locks, and none of the threads that would release them.
        context = get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_work, args=(theirs,), name="banyan-summaries", daemon=True)
        self._process.start()
        theirs.close()

    def ask(self, request: SummaryRequest) -> str:
        self._pipe.send(request)
        return str(self._pipe.recv())

    def end(self) -> None:
        """Whoever waits for an answer gets EOFError."""
        self._process.kill()
        self._process.join()


def _work(pipe: Connection) -> None:
    os.nice(NICENESS)
    # A terminal's Ctrl-C goes to this process too.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The pipe ends with whoever holds its other end.
    with suppress(EOFError, OSError):
        while True:
            pipe.send(summarize(pipe.recv()))
