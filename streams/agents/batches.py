"""
A micro-batch of messages into the trees: decode, prepare (one embedding call), commit by tree, send jobs and dead letters.

When `Batches.take` returns, the effect of every message is durable, and the caller acknowledges them. It raises only what makes
going on pointless; whatever passes by itself is waited for in place.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from memory.errors import NOT_THE_RECORD, BanyanError, RecordError, TreeMismatchError
from memory.model import EventId, TreeId
from memory.ports.clock import Clock
from memory.ports.store import TreeStore
from memory.records import Record
from memory.results import EventResult, EventStatus
from memory.service.ingest import Ingest, Prepared
from memory.service.pool import requeue_dirty
from memory.service.redelivery import put_again
from memory.service.stages import Stages
from memory.service.stream import TEXT_PER_BATCH
from memory.settings import IngestSettings
from streams import tracing
from streams.commit_topic import CommitTopic
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.events import decode
from streams.job_topic import JobTopic
from streams.retrying import WAIT_FIRST, Retry
from streams.schema_versions import check_schema
from streams.spending import milliseconds, spend, spending

TREES_AT_ONCE = 64
"""Trees committed to at the same time: four lots of commits on their way to Redis, so that it works while others are planned."""
RECORDS = ("turn", "document")
"""Forms of what is put into trees."""
ATTEMPTS = 3
"""For errors that nobody thought of; those that pass by themselves are waited for without limit."""
GIVEN_UP_IN_ROW_MAX = 10
"""Valid records given up with none in between that went in, before the process ends: then it is not the records."""

STAGES = ("decode", "embed", "plan", "lease", "commit", "send")
"""On the line of each batch, summed over the trees that were committed to at once."""

Result = TypeVar("Result")


class CannotGoOnError(BanyanError):
    """Going on would give up records that nothing is wrong with."""


@dataclass(frozen=True, slots=True)
class _Taken:
    delivery: Delivery
    record: Record


@dataclass(slots=True)
class _Outcome:
    """What became of a batch, for its log line."""

    topic: str
    records: int
    trees: set[str] = field(default_factory=set)
    statuses: Counter[str] = field(default_factory=Counter)
    dead: int = 0
    jobs: int = 0
    again: int = 0
    seq: int = 0

    def fields(self) -> dict[str, object]:
        """For the log; a batch of one tree names it."""
        return {
            "topic": self.topic,
            "records": self.records,
            "trees": len(self.trees),
            **({"tree": next(iter(self.trees))} if len(self.trees) == 1 else {}),
            **self.statuses,
            "dead_letters": self.dead,
            "jobs": self.jobs,
            "jobs_again": self.again,
            "seq": self.seq,
        }


@dataclass(slots=True)
class BatchCounters:
    """What became of all batches since the process started."""

    events: Counter[str] = field(default_factory=Counter)
    """Records by `EventStatus`."""
    jobs: int = 0
    """Sent."""
    jobs_again: int = 0
    """Put again since their records came again."""


class Batches:
    """
    Puts batches of messages into trees. Several may be in hand at once.

    Args:
        ingest: the use case.
        store: to find the dirty ancestors of what comes again.
        jobs, dead: what is sent before a batch is done.
        commits: likewise, what is said of it; None says nothing.
        clock: for the retries and the log.
        limits: of records; `batch_items` of one tree are committed together.
        log: gets one line a batch.
    """

    def __init__(
        self,
        *,
        ingest: Ingest,
        store: TreeStore,
        jobs: JobTopic,
        dead: DeadLetters,
        clock: Clock,
        limits: IngestSettings,
        log: structlog.stdlib.BoundLogger,
        commits: CommitTopic | None = None,
    ) -> None:
        self.ingest = ingest
        self.store = store
        self._jobs = jobs
        self._commits = commits
        if commits is not None:
            ingest.on_commit(commits.committed)
        self.dead = dead
        self._clock = clock
        self._limits = limits
        self._log = log
        self.retry = Retry(clock, log)
        self._given_up_in_row: Counter[str] = Counter()
        """By what could not be done."""
        self.counters = BatchCounters()
        self.stages = Stages(clock)
        """`decode`, `send`, `batch`; those in between are `ingest`'s."""
        self.stages.told = ingest.stages.told = spend

    async def take(self, deliveries: Sequence[Delivery], *, committed: Callable[[], None] = lambda: None) -> None:
        """
        Put the messages' records into their trees, those of one tree in the given order.

        Args:
            deliveries: the messages.
            committed: called once all is in the store; what remains is to send jobs and dead letters.

        Raises:
            CannotGoOnError, TooManyDeadLettersError, SettingError, StoreDamagedError, StoreVersionError: the process is to end;
                nothing may be acknowledged.
        """
        outcome = _Outcome(topic=deliveries[0].topic if deliveries else "", records=len(deliveries))
        received = {"messaging.system": "kafka", "messaging.destination.name": outcome.topic, "messaging.operation.type": "process"}
        with (
            spending() as spent,
            tracing.span(
                f"process {outcome.topic}",
                kind="consumer",
                of=(each.headers for each in deliveries),
                attributes={**received, "messaging.batch.message_count": len(deliveries)},
            ),
        ):
            try:
                with self.stages("batch"):
                    await self._take(deliveries, outcome, committed)
            except Exception as error:
                self._tell(outcome, spent, outcome="failed", error=type(error).__name__)
                raise
            self._tell(outcome, spent, outcome="done")

    async def send_pending(self, tree: TreeId) -> int:
        """Send the job of every node of a tree that has contributions; returns how many."""
        await self.retry("reading what is pending", lambda: requeue_dirty(self.store, self._jobs, [tree]))
        return await self.retry("sending summary jobs", self._jobs.flush)

    async def _take(self, deliveries: Sequence[Delivery], outcome: _Outcome, committed: Callable[[], None]) -> None:
        with self.stages("decode"):
            taken = list(self._decoded(deliveries, outcome))
        for batch in _distinct(iter(taken)):
            await self._put(batch, outcome)
        committed()
        self.dead.passed(outcome.statuses.total())
        with self.stages("send"):
            outcome.jobs, _ = await asyncio.gather(self.retry("sending summary jobs", self._jobs.flush), self._say())
            outcome.dead = await self.retry("sending dead letters", self.dead.flush)
        self.counters.events.update(outcome.statuses)
        self.counters.jobs += outcome.jobs
        self.counters.jobs_again += outcome.again

    async def _say(self) -> None:
        if self._commits is not None:
            await self.retry("saying what was committed", self._commits.flush)

    def _tell(self, done: _Outcome, spent: dict[str, float], **end: str) -> None:
        self._log.info("batch", **done.fields(), **milliseconds(spent, STAGES), ms=round(spent.get("batch", 0.0) * 1000, 1), **end)

    def _decoded(self, deliveries: Sequence[Delivery], outcome: _Outcome) -> Iterator[_Taken]:
        for each in deliveries:
            try:
                check_schema(each.headers, *RECORDS)
                record = decode(each.value or b"", limits=self._limits)
            except RecordError as error:
                self._give_up(each, error, attempts=1)
                continue
            outcome.trees.add(record.tree)
            yield _Taken(each, record)

    async def _put(self, batch: Sequence[_Taken], outcome: _Outcome) -> None:
        """Records with distinct ids, of any trees."""
        fit = await self._of_fitting_trees(batch)
        prepared = await self._prepared(fit)
        left = iter(prepared)

        async def committing() -> None:
            for group, ready in left:
                about: dict[str, str | int] = {"banyan.tree": ready.tree, "banyan.events": len(group)}
                with tracing.span("insert", of=(taken.delivery.headers for taken in group), attributes=about):
                    await self._committed(group, ready, outcome)

        await asyncio.gather(*(committing() for _ in range(min(TREES_AT_ONCE, len(prepared)))))

    async def _of_fitting_trees(self, batch: Sequence[_Taken]) -> list[_Taken]:
        """Those whose trees can be written with the configured model and structure; a tree that is not there yet is made."""
        unfit: dict[str, TreeMismatchError] = {}

        async def ensure(tree: str) -> None:
            try:
                await self.retry("making a tree", lambda: self.ingest.ensure_tree(TreeId(tree)))
            except TreeMismatchError as error:
                unfit[tree] = error

        unknown = {taken.record.tree for taken in batch if not self.ingest.knows(TreeId(taken.record.tree))}
        if not unknown:
            return list(batch)
        await asyncio.gather(*map(ensure, unknown))
        for taken in batch:
            if taken.record.tree in unfit:
                self._give_up(taken.delivery, unfit[taken.record.tree], attempts=1)
        return [taken for taken in batch if taken.record.tree not in unfit]

    async def _prepared(self, batch: Sequence[_Taken]) -> list[tuple[list[_Taken], Prepared]]:
        """Each tree's records with their vectors. A record that the model has no vector for is found by halving."""
        if not batch:
            return []
        groups = _by_tree(batch)
        try:
            ready = await self._bounded(
                "embedding",
                lambda: self.ingest.prepare_all({tree: [taken.record for taken in group] for tree, group in groups.items()}),
            )
        except NOT_THE_RECORD:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the record that causes it is to be found
            if len(batch) == 1:
                self._poison(batch[0], "embedding", error)
                return []
            half = len(batch) // 2
            return [*await self._prepared(batch[:half]), *await self._prepared(batch[half:])]
        self._given_up_in_row["embedding"] = 0
        return list(zip(groups.values(), ready, strict=True))

    async def _committed(self, group: Sequence[_Taken], ready: Prepared, outcome: _Outcome) -> None:
        size = self._limits.batch_items
        if len(group) > size:
            for first in range(0, len(group), size):
                part = group[first : first + size]
                await self._committed(part, _part_of(ready, part), outcome)
            return
        records = [taken.record for taken in group]
        try:
            results = await self._bounded("committing", lambda: self.ingest.commit(ready, records))
        except NOT_THE_RECORD:
            raise
        except Exception as error:  # noqa: BLE001
            if len(group) == 1:
                self._poison(group[0], "committing", error)
                return
            for half in (group[: len(group) // 2], group[len(group) // 2 :]):
                await self._committed(half, _part_of(ready, half), outcome)
            return
        self._given_up_in_row["committing"] = 0
        await self._settle(ready.tree, group, results, outcome)

    async def _settle(self, tree: TreeId, group: Sequence[_Taken], results: Sequence[EventResult], outcome: _Outcome) -> None:
        outcome.statuses.update(result.status.value for result in results)
        outcome.seq = max(outcome.seq, *(result.seq for result in results))
        again = [EventId(result.id) for result in results if result.status is EventStatus.DUPLICATE]
        if again:
            outcome.again += await self.retry("reading what came again", lambda: put_again(self.store, self._jobs, tree, again))
            if (commits := self._commits) is not None:
                seqs = {result.seq for result in results if result.status is EventStatus.DUPLICATE}
                await self.retry("reading what came again", lambda: commits.again(self.store, tree, seqs))
        for taken, result in zip(group, results, strict=True):
            if result.status is EventStatus.CONFLICT:
                self._log.warning("conflict", tree=tree, event_id=result.id, at=taken.delivery.place, reason=result.reason)

    async def _bounded(self, what: str, work: Callable[[], Awaitable[Result]]) -> Result:
        """`Retry`, with a few attempts for errors that nobody thought of."""
        for attempt in range(ATTEMPTS):
            try:
                return await self.retry(what, work)
            except BanyanError:
                raise
            except Exception as error:
                self._log.warning("unexpected", what=what, error=f"{type(error).__name__}: {error}", exc_info=attempt == 0)
                if attempt + 1 == ATTEMPTS:
                    raise
                await self._clock.sleep(WAIT_FIRST * 2**attempt)
        raise AssertionError("the last attempt raises")

    def _poison(self, taken: _Taken, what: str, error: Exception) -> None:
        self._given_up_in_row[what] += 1
        if self._given_up_in_row[what] > GIVEN_UP_IN_ROW_MAX:
            raise CannotGoOnError(
                f"{what} failed for {self._given_up_in_row[what]} valid records in a row, the last at {taken.delivery.place} with "
                f"{type(error).__name__}: {error}"
            ) from error
        self._give_up(taken.delivery, error, attempts=ATTEMPTS)

    def _give_up(self, delivery: Delivery, error: Exception, *, attempts: int) -> None:
        letter = self.dead.put(delivery, error, attempts=attempts)
        # The reason may quote what somebody wrote: it is in the letter, which `banyan dead-letters show` prints.
        if self.dead.told:
            self._log.warning("dead letter", at=delivery.place, error=letter.error, attempts=attempts)


def _distinct(stream: Iterator[_Taken]) -> Iterator[list[_Taken]]:
    """
    Cut where an id comes a second time, so that it is compared with the first, and where there is much text.

    What is cut follows after the part before it is committed: the order within a tree is kept.
    """
    batch: list[_Taken] = []
    ids: set[tuple[str, str]] = set()
    characters = 0
    for taken in stream:
        identity = (taken.record.tree, taken.record.id)
        if batch and (identity in ids or characters + len(taken.record.text) > TEXT_PER_BATCH):
            yield batch
            batch, ids, characters = [], set(), 0
        batch.append(taken)
        ids.add(identity)
        characters += len(taken.record.text)
    if batch:
        yield batch


def _by_tree(batch: Sequence[_Taken]) -> dict[TreeId, list[_Taken]]:
    groups: dict[TreeId, list[_Taken]] = {}
    for taken in batch:
        groups.setdefault(TreeId(taken.record.tree), []).append(taken)
    return groups


def _part_of(ready: Prepared, group: Sequence[_Taken]) -> Prepared:
    """What was prepared of some of the records."""
    wanted = {taken.record.id for taken in group}
    kept = [index for index, record in enumerate(ready.records) if record.id in wanted]
    return Prepared(
        ready.tree, tuple(ready.records[index] for index in kept), tuple(ready.insertions[index] for index in kept), ready.known
    )
