"""`banyan ingest`."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from streams.cli.app import Exit
from streams.cli.common import Session, asking_options, run_async
from streams.cli.console import Progress, counted, duration
from streams.cli.interrupts import Interrupts
from streams.cli.reading import Input, open_inputs

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from memory.results import EventResult
    from streams.cli.feed import Feed, Place
    from streams.remote import RemoteMemory

_STOPPING = "stopping after the batch in hand; Ctrl-C again ends at once"
_NOT_WAITING = "not waiting for the summaries any longer; Ctrl-C again ends at once"


@click.command(
    epilog="""
\b
Examples:
  banyan ingest chat.jsonl --tree user-42
  banyan ingest news-*.jsonl.gz
  tail -f chat.jsonl | banyan ingest - --tree user-42 --no-wait
  banyan ingest chat.jsonl --json | tail -1
\b
A line of a file, a turn or a document:
  {"tree":"user-42","id":"t-981","speaker":"Ana","text":"…","at":"2026-05-08T13:56:00Z"}
  {"tree":"feed-tech","id":"d-55","title":"…","text":"…","published_at":"2026-05-08"}
"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--tree", metavar="T", help="Tree for records that name none; without it each must name its own.")
@click.option("--structure", metavar="S", help="How trees that do not exist yet grow (BANYAN_STRUCTURE).")
@click.option("--no-wait", is_flag=True, help="Do not make the summaries now; the next ingest makes them.")
@asking_options
@run_async
async def ingest(files: Sequence[str], tree: str | None, structure: str | None, no_wait: bool, session: Session) -> int:
    """
    Put turns and documents from JSONL files into trees.

    FILE is JSON lines, plain or gzip; - is standard input. Lines that are no record are reported as `file:line: field: reason`,
    and so is an id that is there already with another content (the first stands); the rest goes in, and the exit code is 3.
    Records that are there already change nothing, so the same command can be run again at any time, also after Ctrl-C.
    With --url a service takes them, and makes the summaries behind them: they are not waited for.
    """
    inputs = open_inputs(files)
    if tree is not None:
        from memory.records import tree_id  # noqa: PLC0415  # brings numpy

        tree_id(tree)
    from memory.local import LocalMemory  # noqa: PLC0415  # brings numpy

    with Interrupts(session.output, _STOPPING) as interrupts:
        async with session.asked(mode="write", summaries=not no_wait, structure=structure) as memory:
            tally = await feed_files(session, memory, inputs, tree=tree, stop=interrupts.stop)
            if interrupts.stop.is_set():
                return Exit.INTERRUPTED
            if no_wait or not isinstance(memory, LocalMemory):
                return tally.exit
            interrupts.message = _NOT_WAITING
            fresh = await wait_for_summaries(session, memory, interrupts.stop)
            if interrupts.stop.is_set():
                return Exit.INTERRUPTED
            return tally.exit if fresh or tally.exit else Exit.UNAVAILABLE


async def feed_files(
    session: Session, memory: LocalMemory | RemoteMemory, inputs: Sequence[Input], *, tree: str | None, stop: asyncio.Event
) -> Tally:
    """
    Put the inputs' records in, with progress, and say what became of them, also when an error ends it.

    Args:
        session: whose output and limits.
        memory: to put them into, in this process or behind a service.
        inputs: as `open_inputs` gives them.
        tree: for records that name none.
        stop: when set, the batch in hand is finished and the rest is left.
    """
    from streams.cli.feed import Feed  # noqa: PLC0415  # brings numpy

    tally = Tally(session)
    feed = Feed(inputs, tree=tree, limits=session.settings.memory.ingest, on_refused=tally.refuse, on_empty=tally.empty)
    memory.on_embedder_wait(_Waits(session).say)
    sizes = [each.size for each in inputs]
    total = None if None in sizes else sum(size or 0 for size in sizes)
    try:
        with session.output.progress("ingesting", total=total, of_bytes=True) as progress:
            while not feed.ended and not stop.is_set():
                await memory.ingest_stream(
                    feed.records(stop), on_batch=lambda results: tally.add(feed, results, progress), stop=stop
                )
    finally:
        tally.report(interrupted=stop.is_set())
    return tally


class _Waits:
    """Says, once for each reason, that ingestion waits for the embedding model."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._said: set[str] = set()

    def say(self, error: Exception, seconds: float) -> None:
        """Say it."""
        reason = str(error)
        if reason not in self._said:
            self._said.add(reason)
            patience = self._session.settings.memory.ingest.embedder_patience.total_seconds()
            self._session.output.warn(
                f"waiting for the embedding model, the next attempt is in {duration(seconds)}, the last after "
                f"{duration(patience)}: {reason} (Ctrl-C twice ends at once; what was accepted stays)"
            )


async def wait_for_summaries(
    session: Session, memory: LocalMemory, stop: asyncio.Event, *, tree: str | None = None, counting: bool = True
) -> bool:
    """
    Wait, with progress, until every summary of a tree, or of all, is up to date or `stop` is set.

    Args:
        session: of the command.
        memory: of which the summaries are.
        stop: ends the wait.
        tree: which; None waits for all.
        counting: whether to say how many were made meanwhile.

    Returns:
        False when some were given up or not waited for; that has been said on standard error.
    """
    started = time.monotonic()
    before = memory.summary_counts.done
    most = 0
    said: set[str] = set()

    with session.output.progress("summarizing", total=None) as progress:

        def show(left: int) -> None:
            nonlocal most
            done = memory.summary_counts.done - before
            most = max(most, done + left)
            reason = memory.summary_counts.last_error
            if reason and reason not in said:
                said.add(reason)
                session.output.warn(f"a summary failed and is tried again: {reason} (Ctrl-C leaves the rest to the next ingest)")
            progress.update(most - left, total=most, detail=f"{counted(left, 'summary')} to go")

        waiting = asyncio.ensure_future(memory.fresh(tree, progress=show))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        for each in (waiting, stopped):
            if not each.done():
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each
    if stop.is_set():
        session.output.note("some summaries are pending; they are made at the next ingest, everything can be found meanwhile")
        return False
    if not waiting.result():
        reason = memory.summary_counts.last_error
        session.output.warn(
            f"{counted(memory.summary_counts.given_up, 'summary')} could not be made and stay pending; "
            f"the next ingest tries again{f' ({reason})' if reason else ''}"
        )
        return False
    done = memory.summary_counts.done - before
    if done and counting:
        session.output.note(f"{counted(done, 'summary')} made in {duration(time.monotonic() - started)}")
    return True


class Tally:
    """What became of the lines."""

    def __init__(self, session: Session) -> None:
        self._output = session.output
        self._started = time.monotonic()
        self._counts: Counter[str] = Counter()
        self._seqs: dict[str, int] = {}

    @property
    def exit(self) -> Exit:
        """The exit code the counts call for."""
        return Exit.REFUSED if self._counts["rejected"] or self._counts["conflict"] else Exit.OK

    def refuse(self, place: Place, reason: str) -> None:
        """A line that is no record."""
        self._counts["rejected"] += 1
        self._output.note(f"{place}: {reason}")

    def empty(self, source: Input) -> None:
        """An input without a line."""
        self._output.warn(f"{source.label} is empty")

    def add(self, feed: Feed, results: Sequence[EventResult], progress: Progress) -> None:
        """What became of a batch."""
        position = 0
        for place, result in feed.settle(results):
            self._counts[result.status.value] += 1
            if result.seq:
                self._seqs[result.tree] = max(result.seq, self._seqs.get(result.tree, 0))
            if result.status.value == "conflict":
                self._output.note(f"{place}: id: {result.reason}")
            elif result.status.value == "rejected":
                self._output.note(f"{place}: {result.reason}")
            position = place.position
        progress.update(position, detail=f"{self._so_far()}, {self._rate():,.0f}/s")

    def report(self, *, interrupted: bool) -> None:
        """Say what was done, also when an error ended it."""
        if self._output.as_json:
            self._output.emit(
                {
                    "accepted": self._counts["accepted"],
                    "duplicates": self._counts["duplicate"],
                    "rejected": self._counts["rejected"],
                    "conflicts": self._counts["conflict"],
                    "forgotten": self._counts["forgotten"],
                    "seq": max(self._seqs.values(), default=0),
                    "trees": self._seqs,
                    "interrupted": interrupted,
                }
            )
            return
        seconds = time.monotonic() - self._started
        where = (
            f" into {', '.join(self._seqs)}" if 0 < len(self._seqs) <= 3 else f" into {len(self._seqs)} trees" if self._seqs else ""
        )
        self._output.show(f"{self._so_far()}{where} in {duration(seconds)} ({self._rate():,.0f}/s)")
        if interrupted:
            self._output.note("interrupted; the same command goes on where this one stopped")

    def _so_far(self) -> str:
        parts = [f"{self._counts['accepted']:,} accepted"]
        if self._counts["duplicate"]:
            parts.append(f"{self._counts['duplicate']:,} there already")
        if self._counts["forgotten"]:
            parts.append(f"{self._counts['forgotten']:,} forgotten, not taken")
        if self._counts["rejected"]:
            parts.append(f"{self._counts['rejected']:,} refused")
        if self._counts["conflict"]:
            parts.append(f"{counted(self._counts['conflict'], 'conflict')}")
        return ", ".join(parts)

    def _rate(self) -> float:
        return sum(self._counts.values()) / max(0.001, time.monotonic() - self._started)
