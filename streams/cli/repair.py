"""`banyan repair`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import click

from streams.cli.app import Exit
from streams.cli.common import Session, run_async, shared_options
from streams.cli.console import counted, one_line
from streams.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from streams.forgotten_again import Forgotten
    from streams.repairing import Repaired
    from streams.topic_reader import Span, TopicReader

_STOPPING = "stopping after the batch in hand; the same command begins anew, which does no harm"
_TREES_SHOWN = 10


@click.command(
    epilog="""
\b
Examples:
  banyan repair --dry-run
  banyan repair --from 2h
  banyan repair --from 2026-05-08T13:00:00Z --topic turns
  banyan repair --topic turns --partition 3 --from 120000
  banyan repair --topic forgets
"""
)
@click.option(
    "--from",
    "start",
    metavar="OFFSET|TIME",
    help="Where to begin: an offset, a time (ISO 8601), or how long ago (2h). [default: all]",
)
@click.option(
    "--topic",
    "chosen",
    multiple=True,
    type=click.Choice(["forgets", "turns", "documents", "feedback"]),
    help="Only this topic; forgets come first in any case.",
)
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only this partition of each topic.")
@click.option("--dry-run", is_flag=True, help="Only count what the store has lost; needs no model.")
@shared_options
@run_async
async def repair(start: str | None, chosen: Sequence[str], partition: int | None, dry_run: bool, session: Session) -> int:
    """
    Put records again into a store that has lost commits: after a failover, a restored copy, a flush.

    Reads the topics of records up to where they end now and puts into their trees what is not there, as workers do; what is there
    is recognised by its id and stays as it is. What was forgotten is forgotten again first, whatever the topic. Does the same with
    feedback after the records, then has every pending summary made. May run beside workers, and again. Run it with the workers'
    settings: trees that are gone are made again with this command's model and structure. Exit code 3 when some records cannot be
    taken.
    """
    session.load()
    from streams.broker import Broker, need_kafka  # noqa: PLC0415
    from streams.forgotten_again import read_forgotten  # noqa: PLC0415
    from streams.repairing import parse_start, spans  # noqa: PLC0415
    from streams.topic_reader import reading  # noqa: PLC0415
    from streams.topics import topics  # noqa: PLC0415

    need_kafka()
    settings = session.settings
    begin = None if start is None else parse_start(start, datetime.now(UTC))
    names = topics(settings.kafka)
    known = {"turns": names.turns.name, "documents": names.documents.name, "feedback": names.feedback.name}
    wanted = [known[name] for name in chosen if name in known] if chosen else list(known.values())
    with Interrupts(session.output, _STOPPING) as interrupts:
        async with reading(Broker.of(settings), patience=settings.worker.patience.total_seconds()) as reader:
            # All forgets: one may have waited until after `begin` for its commit. They are few.
            said = await reader.spans([names.forgets.name])
            since = begin if isinstance(begin, datetime) else None
            said += await spans(reader, [names.commits.name], start=since, partition=None)
            forgotten = await read_forgotten(reader, said, names)
            found = await spans(reader, wanted, start=begin, partition=partition)
            _begin(session, found, begin, forgotten)
            feedback = [span for span in found if span.topic == known["feedback"]]
            records = [span for span in found if span not in feedback]
            repairing = _Repairing(session, interrupts, reader, records, feedback, forgotten)
            await (repairing.look() if dry_run else repairing.put_back())
    interrupted = interrupts.stop.is_set()
    _report(session, repairing.done, dry_run=dry_run, interrupted=interrupted)
    if interrupted:
        return Exit.INTERRUPTED
    return Exit.REFUSED if repairing.done.rejected else Exit.OK


class _Repairing:
    """One run over the spans, those of feedback after all others: it is about what they hold."""

    def __init__(
        self,
        session: Session,
        interrupts: Interrupts,
        reader: TopicReader,
        records: Sequence[Span],
        feedback: Sequence[Span],
        forgotten: Forgotten,
    ) -> None:
        from streams.repairing import Repaired  # noqa: PLC0415

        self._session = session
        self._interrupts = interrupts
        self._reader = reader
        self._records = records
        self._feedback = feedback
        self._forgotten = forgotten
        self._total = sum(span.size for span in (*records, *feedback))
        self.done: Repaired = Repaired()

    async def look(self) -> None:
        """Only count."""
        from streams.bootstrap import open_backend  # noqa: PLC0415
        from streams.forgotten_again import forget_first, looking  # noqa: PLC0415
        from streams.repairing import look  # noqa: PLC0415

        settings = self._session.settings
        backend = await open_backend(settings)
        try:
            self.done.forgotten += await forget_first(backend.store, self._forgotten, looking(backend.store))
            with self._session.output.progress("reading", total=self._total) as progress:
                for spans, feedback in ((self._records, False), (self._feedback, True)):
                    async for batch in self._reader.messages(spans, batch=settings.worker.batch_records):
                        await look(
                            backend.store,
                            batch,
                            limits=settings.memory.ingest,
                            feedback=feedback,
                            forgotten=self._forgotten,
                            done=self.done,
                        )
                        progress.update(self.done.read, detail=f"{self.done.missing:,} missing")
                        if self._interrupts.stop.is_set():
                            return
        finally:
            await backend.close()

    async def put_back(self) -> None:
        """Put in what is missing."""
        from streams.forgotten_again import forget_first, forgetting  # noqa: PLC0415
        from streams.pipelines import open_ingesting  # noqa: PLC0415
        from streams.repairing import KnownLetters, put_back, send_pending, weigh_again  # noqa: PLC0415

        settings = self._session.settings
        # What has not come by now is not on the way.
        settings = replace(settings, worker=replace(settings.worker, feedback_wait=timedelta(0)))
        ingesting = await open_ingesting(settings, dead=KnownLetters, repeats=False)
        try:
            again = forgetting(ingesting)
            self.done.forgotten += await forget_first(ingesting.batches.store, self._forgotten, again)
            put = partial(put_back, limits=settings.memory.ingest, forgotten=self._forgotten)
            with self._session.output.progress("repairing", total=self._total) as progress:
                for spans, take in ((self._records, put), (self._feedback, weigh_again)):
                    async for batch in self._reader.messages(spans, batch=settings.worker.batch_records):
                        await take(ingesting, batch, self.done)
                        progress.update(self.done.read, detail=f"{self.done.missing:,} put back")
                        if self._interrupts.stop.is_set():
                            return
            await send_pending(ingesting, self.done, stop=self._interrupts.stop.is_set)
        finally:
            await ingesting.close()


def _begin(session: Session, spans: Sequence[Span], begin: int | datetime | None, forgotten: Forgotten) -> None:
    output = session.output
    where = (
        "from the beginning"
        if begin is None
        else f"from {begin:%Y-%m-%d %H:%M:%S} UTC"
        if isinstance(begin, datetime)
        else f"from {begin}"
    )
    total = sum(span.size for span in spans)
    first = f"{len(forgotten):,} to be forgotten; then " if len(forgotten) else ""
    output.note(
        f"{first}{counted(total, 'record')} at most in {counted(len(spans), 'partition')}, {where} to now, into {_store(session)}"
    )
    gone = [span for span in spans if span.earliest and span.first == span.earliest]
    if gone:
        which = ", ".join(f"{span.topic}[{span.partition}]" for span in gone[:3])
        output.warn(f"what stood before the first record that Kafka still has cannot be put back (its retention): {which}")


def _store(session: Session) -> str:
    from streams.setting_values import show_value  # noqa: PLC0415

    return str(show_value(session.settings.store))


def _report(session: Session, done: Repaired, *, dry_run: bool, interrupted: bool) -> None:
    output = session.output
    if output.as_json:
        output.emit(
            {
                "read": done.read,
                "known": done.known,
                "missing": done.missing,
                "put_back": 0 if dry_run else done.missing,
                "conflicts": done.conflicts,
                "rejected": done.rejected.total(),
                "errors": done.rejected,
                "forgotten": done.forgotten,
                "jobs": done.jobs,
                "interrupted": interrupted,
            }
        )
        return
    missing = "missing in the store" if dry_run else "put back"
    conflicts = f", {counted(done.conflicts, 'conflict')}" if done.conflicts else ""
    forgotten = f", {done.forgotten:,} to be forgotten again" if done.forgotten and dry_run else ""
    forgotten = f", {done.forgotten:,} forgotten again" if done.forgotten and not dry_run else forgotten
    jobs = "" if dry_run else f", {counted(done.jobs, 'summary job')} sent"
    output.show(
        f"{counted(done.read, 'record')} read: {done.missing:,} {missing}, {done.known:,} known{conflicts}{forgotten}{jobs}"
    )
    for tree, count in done.trees.most_common(_TREES_SHOWN):
        output.show(f"  {one_line(tree)}: {count:,}")
    if len(done.trees) > _TREES_SHOWN:
        output.show(f"  and {len(done.trees) - _TREES_SHOWN:,} more trees")
    if done.rejected:
        said = ", ".join(f"{count:,} {one_line(error)}" for error, count in done.rejected.most_common(10))
        output.note(f"{counted(done.rejected.total(), 'record')} cannot be taken: {said}; `banyan dead-letters list` has them")
