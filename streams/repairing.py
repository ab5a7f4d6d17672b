"""
A store that has lost commits gets them back from the topics of records.

Those are kept for the retention, and event ids make reading them again harmless. The records go the way that a worker's go
(`streams.agents`); what was not lost is answered as known. Feedback goes after what it is about. Summaries that were lost with
their commits are pending again, and their jobs are sent.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Self

from memory.errors import RecordError, SettingError, TreeNotFoundError
from memory.model import EventId, TreeId
from memory.ports.store import TreeStore
from memory.records import Feedback, Record, parse_time
from memory.results import EventStatus
from memory.settings import IngestSettings
from streams.agents.batches import RECORDS
from streams.dead_letters import DeadLetters, Envelope
from streams.deliveries import Delivery
from streams.events import decode, decode_feedback
from streams.forgotten_again import Forgotten, forget_among, forgetting, looking
from streams.pipelines import Ingesting
from streams.schema_versions import check_schema
from streams.setting_values import parse_value
from streams.topic_reader import Span, TopicReader


@dataclass(slots=True)
class Repaired:
    """What was done, or would be."""

    read: int = 0
    missing: int = 0
    """Records that were not in the store."""
    known: int = 0
    """Records that are there, or were forgotten."""
    conflicts: int = 0
    """Known with another text; the first stands."""
    rejected: Counter[str] = field(default_factory=Counter)
    """Records that cannot be taken, by error."""
    jobs: int = 0
    """Summary jobs sent."""
    forgotten: int = 0
    """Events that the store did not know to be forgotten any more."""
    trees: Counter[str] = field(default_factory=Counter)
    """Missing records by tree; only counted when nothing is done."""


@dataclass(slots=True)
class KnownLetters(DeadLetters):
    """Counts, and sends none: what could not be taken then is on the topic of dead letters already."""

    told: bool = False
    rejected: Counter[str] = field(default_factory=Counter)
    """By error."""

    def put(self, delivery: Delivery, error: Exception, *, attempts: int = 1, also: Sequence[Delivery] = ()) -> Envelope:
        """Count one."""
        letter = DeadLetters.put(self, delivery, error, attempts=attempts, also=also)
        self.rejected[letter.error] += 1
        return letter

    def unwatched(self) -> Self:
        """Another that counts here, and whose letters say nothing about the settings."""
        made = DeadLetters.unwatched(self)
        made.rejected = self.rejected
        return made

    async def flush(self) -> int:
        """
        Forget what was collected; returns 0.

        Raises:
            TooManyDeadLettersError: most records cannot be taken.
        """
        unsent, self._unsent = self._unsent, []
        if unsent and self.share is not None:
            self.share.check()
        return 0


def parse_start(text: str, now: datetime) -> int | datetime:
    """
    Where to begin: an offset, a time in ISO 8601, or how long ago (`90m`, `24h`).

    Raises:
        SettingError: it is none of these.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        ago: timedelta = parse_value(text, timedelta, label="--from", bounds=(0, 10**9))
        return now - ago
    except SettingError:
        pass
    try:
        return parse_time("--from", text)
    except RecordError as error:
        raise SettingError(
            f"--from: {text[:60]!r} is no offset, no time such as 2026-05-08T13:56:00Z, and no duration such as 24h"
        ) from error


async def spans(reader: TopicReader, names: Sequence[str], *, start: int | datetime | None, partition: int | None) -> list[Span]:
    """
    What is to be read, by partition: to where the topics end now.

    Raises:
        TopicsMissingError: a topic is not there.
        BrokerUnavailableError: Kafka is away.
    """
    found = await reader.spans(names, partition=partition) if names else []
    if isinstance(start, datetime):
        return await reader.since(found, start)
    if start is not None:
        return [replace(span, first=max(span.earliest, start)) for span in found]
    return found


async def look(
    store: TreeStore,
    deliveries: Sequence[Delivery],
    *,
    limits: IngestSettings,
    feedback: bool,
    forgotten: Forgotten,
    done: Repaired,
) -> None:
    """
    Count what of some messages the store has, and change nothing.

    Args:
        store: looked into.
        deliveries: the messages.
        limits: of records.
        feedback: whether they are feedback. Whether what it is about is there is not looked at.
        forgotten: what counts as known, since it would be forgotten again before; what it chooses of these joins it.
        done: is counted up.
    """
    if not feedback:
        done.forgotten += await forget_among(deliveries, forgotten, looking(store), limits=limits)
    wanted: dict[str, set[str]] = {}
    for each in deliveries:
        done.read += 1
        record: Record | Feedback
        try:
            if feedback:
                check_schema(each.headers, Feedback.KIND)
                record = decode_feedback(each.value or b"")
            else:
                check_schema(each.headers, *RECORDS)
                record = decode(each.value or b"", limits=limits)
        except RecordError as error:
            done.rejected[error.field] += 1
            continue
        wanted.setdefault(record.tree, set()).add(record.id)
    for tree, ids in wanted.items():
        try:
            known = await store.receipts(TreeId(tree), [EventId(each) for each in sorted(ids)])
        except TreeNotFoundError:
            known = {}
        answered = known.keys() | (forgotten.events.get(TreeId(tree), {}).keys() & ids)
        done.known += len(answered)
        missing = len(ids) - len(answered)
        done.missing += missing
        if missing:
            done.trees[tree] += missing


async def put_back(
    ingesting: Ingesting, deliveries: Sequence[Delivery], done: Repaired, *, limits: IngestSettings, forgotten: Forgotten
) -> None:
    """
    Put messages into their trees as a worker does, without giving any up; those that `forgotten` chooses are not put in.

    Raises:
        CannotGoOnError, TooManyDeadLettersError, StoreDamagedError, StoreVersionError: going on is pointless.
    """
    done.forgotten += await forget_among(deliveries, forgotten, forgetting(ingesting), limits=limits)
    batches = ingesting.batches
    before, jobs = Counter(batches.counters.events), batches.counters.jobs
    await batches.take(deliveries)
    _count(ingesting, deliveries, batches.counters.events - before, done)
    done.jobs += batches.counters.jobs - jobs


async def weigh_again(ingesting: Ingesting, deliveries: Sequence[Delivery], done: Repaired) -> None:
    """
    Put feedback into its trees as a worker does; what it is about is there by now, or is not to come.

    Raises:
        StoreDamagedError, StoreVersionError: going on is pointless.
    """
    opinions = ingesting.opinions
    before = Counter(opinions.events)
    await opinions.take(deliveries)
    _count(ingesting, deliveries, opinions.events - before, done)


def _count(ingesting: Ingesting, deliveries: Sequence[Delivery], new: Counter[str], done: Repaired) -> None:
    done.read += len(deliveries)
    done.missing += new[EventStatus.ACCEPTED.value]
    done.known += new[EventStatus.DUPLICATE.value] + new["forgotten"]
    done.conflicts += new[EventStatus.CONFLICT.value]
    if isinstance(ingesting.batches.dead, KnownLetters):
        done.rejected = Counter(ingesting.batches.dead.rejected)


async def send_pending(ingesting: Ingesting, done: Repaired, *, stop: Callable[[], bool]) -> None:
    """
    Send the job of every pending summary of the store: a summary that was lost with its commit has no job any more.

    Args:
        ingesting: the parts of a worker.
        done: is counted up.
        stop: whether to stop before the next tree.
    """
    for info in await ingesting.batches.store.trees():
        if stop():
            return
        done.jobs += await ingesting.batches.send_pending(info.id)
