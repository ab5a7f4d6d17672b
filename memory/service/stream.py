"""Records in order, by micro-batches of one tree each: the next is embedded while one is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from memory.model import EventId, TreeId
from memory.records import Record
from memory.results import EventResult, EventStatus
from memory.service.ingest import Ingest, Prepared

TEXT_PER_BATCH = 1_000_000
"""Characters after which a batch is full whatever its count: bounds memory and the time of one embedding call."""


@dataclass(slots=True)
class IngestTotals:
    """What became of a stream of records."""

    accepted: int = 0
    duplicates: int = 0
    conflicts: int = 0
    forgotten: int = 0
    """That were forgotten before they came, or came again."""
    seq: dict[TreeId, int] = field(default_factory=dict)
    """Of each tree, the last commit that holds one of the records."""

    def add(self, results: Sequence[EventResult]) -> None:
        """Count a batch."""
        for result in results:
            match result.status:
                case EventStatus.ACCEPTED:
                    self.accepted += 1
                case EventStatus.DUPLICATE:
                    self.duplicates += 1
                case EventStatus.CONFLICT:
                    self.conflicts += 1
                case EventStatus.FORGOTTEN:
                    self.forgotten += 1
                case EventStatus.REJECTED:
                    pass
            self.seq[result.tree] = max(result.seq, self.seq.get(result.tree, 0))


async def stream(
    ingest: Ingest,
    records: AsyncIterator[Record] | Iterable[Record],
    *,
    batch_items: int,
    on_batch: Callable[[Sequence[EventResult]], None] | None = None,
    stop: asyncio.Event | None = None,
) -> IngestTotals:
    """
    Put records in.

    A batch holds records of one tree; records of other trees in between make batches of their own, and the order within a tree is
    kept. A record whose id stands in the batch already starts a new one, so that it is compared with the first.

    Args:
        ingest: the use case.
        records: validated, in order.
        batch_items: records a batch.
        on_batch: called after each commit with its results in the records' order.
        stop: when set, the batch in hand is finished and the rest is left.
    """
    totals = IngestTotals()
    ahead: tuple[list[Record], asyncio.Task[Prepared]] | None = None

    async def finish(batch: list[Record], task: asyncio.Task[Prepared]) -> None:
        results = await ingest.commit(await task, batch)
        totals.add(results)
        if on_batch is not None:
            on_batch(results)

    try:
        async for batch in _batches(records, batch_items, stop):
            following = (batch, asyncio.create_task(ingest.prepare(TreeId(batch[0].tree), batch)))
            current, ahead = ahead, following
            if current is not None:
                await finish(*current)
        if ahead is not None:
            current, ahead = ahead, None
            await finish(*current)
    finally:
        if ahead is not None:
            ahead[1].cancel()
            await asyncio.gather(ahead[1], return_exceptions=True)
    return totals


async def _batches(
    records: AsyncIterator[Record] | Iterable[Record], batch_items: int, stop: asyncio.Event | None
) -> AsyncIterator[list[Record]]:
    open_batches: dict[str, list[Record]] = {}
    ids: dict[str, set[EventId]] = {}
    sizes: dict[str, int] = {}
    waiting = 0
    async for record in _each(records):
        if stop is not None and stop.is_set():
            break
        batch = open_batches.setdefault(record.tree, [])
        seen = ids.setdefault(record.tree, set())
        full = len(batch) >= batch_items or sizes.get(record.tree, 0) + len(record.text) > TEXT_PER_BATCH
        if batch and (full or record.id in seen):
            yield batch
            waiting -= len(batch)
            batch = open_batches[record.tree] = []
            seen = ids[record.tree] = set()
            sizes[record.tree] = 0
        batch.append(record)
        seen.add(EventId(record.id))
        sizes[record.tree] = sizes.get(record.tree, 0) + len(record.text)
        waiting += 1
        if waiting >= batch_items * 16:
            # Very many trees at once: the fullest goes, so that memory stays bounded.
            fullest = max(open_batches, key=lambda tree: len(open_batches[tree]))
            yield open_batches.pop(fullest)
            waiting -= len(ids.pop(fullest))
            sizes.pop(fullest)
    for batch in open_batches.values():
        if batch:
            yield batch


async def _each(records: AsyncIterator[Record] | Iterable[Record]) -> AsyncIterator[Record]:
    if isinstance(records, Iterable):
        for record in records:
            yield record
    else:
        async for record in records:
            yield record
