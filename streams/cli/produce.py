"""`banyan produce`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from streams.cli.app import Exit
from streams.cli.common import Session, run_async, shared_options
from streams.cli.console import Progress, counted, duration
from streams.cli.interrupts import Interrupts
from streams.cli.reading import Input, open_inputs

if TYPE_CHECKING:
    import asyncio

    from memory.records import Record
    from streams.cli.feed import Feed, Place
    from streams.producing import Producer
    from streams.settings import Settings
    from streams.topics import Topics

_STOPPING = "stopping after what is being sent; Ctrl-C again ends at once"
BATCH_RECORDS = 500
"""Records sent before they are waited for: enough to fill the producer's batches."""
BATCH_CHARACTERS = 4_000_000
"""Or that much text, to bound memory."""


@click.command(
    epilog="""
\b
Examples:
  banyan produce chat.jsonl --tree user-42
  banyan produce news-*.jsonl.gz
  tail -f chat.jsonl | banyan produce -
"""
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--tree", metavar="T", help="Tree for records that name none; without it each must name its own.")
@click.option("--after", metavar="FILE:LINE", help="Go on after this line, as a run that was interrupted says at its end.")
@shared_options
@run_async
async def produce(files: Sequence[str], tree: str | None, after: str | None, session: Session) -> int:
    """
    Send turns and documents from JSONL files to Kafka, for the workers to put into trees.

    Takes the same files as `banyan ingest`. Lines that are no record are reported as `file:line: field: reason`, the rest is sent,
    and the exit code is 3. Sending a file again does no harm: a record that a tree has already changes nothing.
    """
    inputs = open_inputs(files)
    begin = None if after is None else _place(after, [each.label for each in inputs])
    session.load()
    from streams.broker import Broker, need_kafka, open_admin  # noqa: PLC0415
    from streams.producing import Producer  # noqa: PLC0415  # brings numpy
    from streams.topics import require, topics  # noqa: PLC0415

    need_kafka()
    if tree is not None:
        from memory.records import tree_id  # noqa: PLC0415

        tree_id(tree)
    settings = session.settings
    names = topics(settings.kafka)
    admin = await open_admin(Broker.of(settings))
    try:
        await require(admin, [names.turns.name, names.documents.name], settings.broker)
    finally:
        await admin.close()
    with Interrupts(session.output, _STOPPING) as interrupts, _traced(settings):
        producer = await Producer(Broker.of(settings)).start()
        try:
            sending = _Sending(session, producer, names)
            await sending.run(inputs, tree=tree, after=begin, stop=interrupts.stop)
        finally:
            await producer.stop()
        return Exit.INTERRUPTED if interrupts.stop.is_set() else sending.exit


def _place(text: str, labels: Sequence[str]) -> tuple[str, int]:
    label, _, line = text.rpartition(":")
    if not (line.isascii() and line.isdigit()):
        raise click.UsageError(f"--after: {text!r} is not FILE:LINE")
    if label not in labels:
        raise click.UsageError(f"--after: {label!r} is none of the files: {', '.join(labels)}")
    return label, int(line)


@contextmanager
def _traced(settings: Settings) -> Iterator[None]:
    """Trace if traces are to be sent."""
    if not settings.tracing:
        yield
        return
    from streams.tracing import configure_tracing  # noqa: PLC0415

    end = configure_tracing(f"{settings.kafka.prefix}-produce")
    try:
        yield
    finally:
        end()


class _Sending:
    """What is sent, and what is said about it."""

    def __init__(self, session: Session, producer: Producer, names: Topics) -> None:
        self._session = session
        self._output = session.output
        self._producer = producer
        self._names = names
        self._started = time.monotonic()
        self._sent: Counter[str] = Counter()
        self._rejected = 0
        self._last: Place | None = None
        """Of the last record that the broker has."""
        self._ended = False

    @property
    def exit(self) -> Exit:
        return Exit.REFUSED if self._rejected else Exit.OK

    async def run(self, inputs: Sequence[Input], *, tree: str | None, after: tuple[str, int] | None, stop: asyncio.Event) -> None:
        from streams.cli.feed import Feed  # noqa: PLC0415

        limits = self._session.settings.memory.ingest
        feed = Feed(inputs, tree=tree, limits=limits, on_refused=self._refuse, on_empty=self._empty, after=after)
        sizes = [each.size for each in inputs]
        total = None if None in sizes else sum(size or 0 for size in sizes)
        try:
            with self._output.progress("sending", total=total, of_bytes=True) as progress:
                while not feed.ended and not stop.is_set():
                    batch: list[Record] = []
                    characters = 0
                    async for record in feed.records(stop):
                        batch.append(record)
                        characters += len(record.text)
                        if len(batch) >= BATCH_RECORDS or characters >= BATCH_CHARACTERS:
                            await self._send(batch, feed, progress)
                            batch, characters = [], 0
                    await self._send(batch, feed, progress)
            self._ended = feed.ended
        finally:
            self._report(interrupted=stop.is_set())

    async def _send(self, batch: Sequence[Record], feed: Feed, progress: Progress) -> None:
        from memory.model import EventId, TreeId  # noqa: PLC0415
        from memory.results import EventResult, EventStatus  # noqa: PLC0415
        from streams.record_messages import message_of, topic_of  # noqa: PLC0415

        if not batch:
            return
        await self._producer.send(message_of(self._names, record) for record in batch)
        for record in batch:
            self._sent[topic_of(self._names, record).name] += 1
        results = [EventResult(tree=TreeId(each.tree), id=EventId(each.id), status=EventStatus.ACCEPTED, seq=0) for each in batch]
        self._last = feed.settle(results)[-1][0]
        progress.update(self._last.position, detail=f"{counted(self._sent.total(), 'record')}, {self._rate():,.0f}/s")

    def _refuse(self, place: Place, reason: str) -> None:
        self._rejected += 1
        self._output.note(f"{place}: {reason}")

    def _empty(self, source: Input) -> None:
        self._output.warn(f"{source.label} is empty")

    def _report(self, *, interrupted: bool) -> None:
        if self._output.as_json:
            self._output.emit(
                {
                    "sent": self._sent.total(),
                    "rejected": self._rejected,
                    "topics": self._sent,
                    "interrupted": interrupted,
                    "after": None if self._ended or self._last is None else str(self._last),
                }
            )
            return
        refused = f", {self._rejected:,} refused" if self._rejected else ""
        seconds = time.monotonic() - self._started
        self._output.show(f"{self._sent.total():,} sent{refused} in {duration(seconds)} ({self._rate():,.0f}/s)")
        if not self._ended and self._last is not None:
            self._output.note(f"stopped in the middle: the same command with --after {self._last} goes on from there")

    def _rate(self) -> float:
        return self._sent.total() / max(0.001, time.monotonic() - self._started)
