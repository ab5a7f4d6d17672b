"""One structure measured on one data set, with progress: what `banyan eval` does, whether one is asked for or many."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from streams.cli.ingest import wait_for_summaries

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from streams.cli.common import Session
    from streams.cli.console import Progress
    from streams.evaluation.dataset import Dataset
    from streams.evaluation.run import Filled, StrategyRun
    from streams.evaluation.timing import CountedSummarizer, TimedEmbedder

Save = Callable[[dict[str, Any]], Awaitable[None]]
"""Takes what has been measured so far."""


class Measuring:
    """
    A memory being filled and asked.

    Args:
        session: with the output.
        memory, embedder, summarizer: as `streams.evaluation.run.open_memory` gives them.
        dataset: what to put in and ask.
        stop: when set, the rest is left.
    """

    def __init__(
        self,
        session: Session,
        memory: LocalMemory,
        embedder: TimedEmbedder,
        summarizer: CountedSummarizer,
        dataset: Dataset,
        stop: asyncio.Event,
    ) -> None:
        self._session = session
        self._output = session.output
        self._memory = memory
        self._embedder = embedder
        self._summarizer = summarizer
        self._dataset = dataset
        self._stop = stop

    async def measure(self, strategies: Iterable[str], *, save: Save | None = None) -> dict[str, Any] | None:
        """
        Everything but judged answers.

        Args:
            strategies: to be measured, the foremost first.
            save: told after each strategy.

        Returns:
            As `streams.evaluation.report.outcome`; None when it was interrupted.
        """
        from streams.evaluation.report import outcome  # noqa: PLC0415  # brings numpy

        filled = await self._fill()
        if filled is None:
            return None
        trees = [await self._memory.stats(tree) for tree in self._dataset.trees]
        contributions = await self._contributions()
        runs: dict[str, StrategyRun] = {}
        result = outcome(self._dataset, filled, runs, trees, contributions)
        for strategy in strategies:
            run = await self._ask(strategy)
            if self._stop.is_set():
                return None
            runs[strategy] = run
            result = outcome(self._dataset, filled, runs, trees, contributions)
            if save is not None:
                await save(result)
        return result

    async def _fill(self) -> Filled | None:
        """Put the records in and wait for the summaries; None when interrupted."""
        from streams.evaluation.run import fill  # noqa: PLC0415

        started, used = time.perf_counter(), time.process_time()
        with self._output.progress("ingesting", total=len(self._dataset.records)) as progress:
            filled = await fill(self._memory, self._dataset, stop=self._stop, report=reporter(progress))
        if not self._stop.is_set():
            await wait_for_summaries(self._session, self._memory, self._stop)
        filled.fresh_s = time.perf_counter() - started
        filled.cpu_s = time.process_time() - used
        filled.summaries = self._summarizer.asked
        return None if self._stop.is_set() else filled

    async def _ask(self, strategy: str) -> StrategyRun:
        from streams.evaluation.run import ask  # noqa: PLC0415

        with self._output.progress(strategy, total=len(self._dataset.cases)) as progress:
            return await ask(self._memory, self._embedder, self._dataset, strategy, stop=self._stop, report=reporter(progress))

    async def _contributions(self) -> int | None:
        from streams.evaluation.run import contributions  # noqa: PLC0415

        each = [await contributions(self._memory, tree) for tree in self._dataset.trees]
        known = [count for count in each if count is not None]
        return sum(known) if len(known) == len(each) else None


def reporter(progress: Progress) -> Callable[[int, int, str], None]:
    """What tells a progress bar how far it is."""
    return lambda done, total, detail: progress.update(done, total=total, detail=detail)
