"""
What a store that has lost commits is to forget again, before records come back to it (`streams.repairing`).

Events by their ids: those that forgets name, and those that workers said on the topic of commits were forgotten. A conversation or
a past, of which no worker may have said what they named, choose again: what was there when they were sent, by its commit, and what
was on its way then, by its record. What was said after them is not theirs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import msgspec

from memory.errors import RecordError, TreeMismatchError, TreeNotFoundError
from memory.model import EventId, TreeId
from memory.ports.store import TreeStore
from memory.records import Document, Forget, Record
from memory.settings import IngestSettings
from streams.commit_topic import CommitMessage
from streams.deliveries import Delivery
from streams.events import decode, decode_forget
from streams.pipelines import Ingesting
from streams.topic_reader import Span, TopicReader
from streams.topics import Topics

READ_TOGETHER = 500
RECEIPTS_TOGETHER = 500

Again = Callable[[TreeId, Sequence[EventId]], Awaitable[int]]
"""Has a store know again that events are forgotten, or only looks; says of how many it did not know it."""


@dataclass(slots=True)
class Selections:
    """What forgets of one tree chose otherwise than by ids, and when they were sent."""

    conversations: dict[str, datetime] = field(default_factory=dict)
    """Of each when its last forget was sent."""
    pasts: dict[datetime, datetime] = field(default_factory=dict)
    """Of each time, before which something was said, when the last forget was sent that names it."""

    def add(self, forget: Forget, sent: datetime) -> None:
        """One more forget."""
        # Kafka counts whole milliseconds: what has the forget's was not surely later.
        until = sent + timedelta(milliseconds=1)
        if forget.conversation is not None:
            self.conversations[forget.conversation] = max(until, self.conversations.get(forget.conversation, until))
        if forget.before is not None:
            self.pasts[forget.before] = max(until, self.pasts.get(forget.before, until))

    def until(self, conversation: str | None, at: datetime | None) -> datetime | None:
        """Before when what is of that conversation and time must have come for a forget to choose it; None: none does."""
        found = [until for before, until in self.pasts.items() if at is not None and at < before]
        if conversation is not None and conversation in self.conversations:
            found.append(self.conversations[conversation])
        return max(found, default=None)


@dataclass(slots=True)
class Forgotten:
    """What forgets say, by tree."""

    events: dict[TreeId, dict[EventId, None]] = field(default_factory=dict)
    """In order; those that selections have chosen join them."""
    selections: dict[TreeId, Selections] = field(default_factory=dict)

    def add(self, tree: TreeId, events: Sequence[EventId]) -> list[EventId]:
        """These as well; returns those that were not among them."""
        known = self.events.setdefault(tree, {})
        new = [event for event in dict.fromkeys(events) if event not in known]
        known.update(dict.fromkeys(new))
        return new

    def __len__(self) -> int:
        """Events and selections."""
        chosen = sum(len(each.conversations) + len(each.pasts) for each in self.selections.values())
        return chosen + sum(map(len, self.events.values()))


async def read_forgotten(reader: TopicReader, spans: Sequence[Span], names: Topics) -> Forgotten:
    """
    What messages on the topics of forgets and of commits say; what is neither is passed over.

    Raises:
        BrokerUnavailableError: Kafka is away.
    """
    found = Forgotten()
    async for batch in reader.messages(spans, batch=READ_TOGETHER):
        for delivery in batch:
            if delivery.topic == names.commits.name:
                _add_commit(found, delivery)
            else:
                _add_forget(found, delivery)
    return found


def _add_commit(found: Forgotten, delivery: Delivery) -> None:
    try:
        commit = msgspec.json.decode(delivery.value or b"", type=CommitMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return
    if commit.forgotten:
        found.add(TreeId(commit.tree), [EventId(event) for event in commit.forgotten])


def _add_forget(found: Forgotten, delivery: Delivery) -> None:
    try:
        forget = decode_forget(delivery.value or b"")
    except RecordError:
        return
    if forget.event is not None:
        found.add(TreeId(forget.tree), [EventId(forget.event)])
    else:
        found.selections.setdefault(TreeId(forget.tree), Selections()).add(forget, _sent(delivery))


async def forget_first(store: TreeStore, forgotten: Forgotten, again: Again) -> int:
    """
    Forget by ids, and of what a store has what selections chose then; returns of how much it did not know it.

    Raises:
        StoreDamagedError, StoreVersionError: going on is pointless.
    """
    count = 0
    for tree, events in list(forgotten.events.items()):
        count += await again(tree, list(events))
    for tree, selections in forgotten.selections.items():
        new = forgotten.add(tree, await _there_then(store, tree, selections))
        count += await again(tree, new) if new else 0
    return count


async def forget_among(deliveries: Sequence[Delivery], forgotten: Forgotten, again: Again, *, limits: IngestSettings) -> int:
    """
    Forget what selections choose among records that are about to be put in; returns of how many it was not known.

    A record that was on its topic when the forget was sent is not put in and taken out again: it is known to be forgotten when it
    comes, and none of its words reaches the store.

    Raises:
        StoreDamagedError, StoreVersionError: going on is pointless.
    """
    if not forgotten.selections:
        return 0
    chosen: dict[TreeId, list[EventId]] = {}
    for delivery in deliveries:
        try:
            record = decode(delivery.value or b"", limits=limits)
        except RecordError:
            continue
        tree = TreeId(record.tree)
        until = forgotten.selections[tree].until(*_said(record)) if tree in forgotten.selections else None
        if until is not None and _sent(delivery) < until:
            chosen.setdefault(tree, []).append(EventId(record.id))
    count = 0
    for tree, events in chosen.items():
        new = forgotten.add(tree, events)
        count += await again(tree, new) if new else 0
    return count


def forgetting(ingesting: Ingesting) -> Again:
    """Forgets as a worker does; what it leaves to be summarized is sent with all that is pending."""

    async def again(tree: TreeId, events: Sequence[EventId]) -> int:
        try:
            report = await ingesting.erasures.again(tree, events)
        except TreeMismatchError:
            return 0  # nothing is put into such a tree
        return report.forgotten + report.unknown

    return again


def looking(store: TreeStore) -> Again:
    """Changes nothing."""

    async def again(tree: TreeId, events: Sequence[EventId]) -> int:
        try:
            known = await store.receipts(tree, events)
        except TreeNotFoundError:
            known = {}
        return sum(event not in known or not known[event].forgotten for event in events)

    return again


async def _there_then(store: TreeStore, tree: TreeId, selections: Selections) -> list[EventId]:
    """The events that selections choose and that were committed when these were sent."""
    chosen: dict[EventId, datetime] = {}
    try:
        async for node in store.all_nodes(tree):
            until = None if node.item is None else selections.until(node.item.conversation, node.item.at)
            if node.item is not None and until is not None:
                chosen[node.item.event_id] = until
    except TreeNotFoundError:
        return []
    events, found, times = list(chosen), [], dict[int, datetime]()
    for first in range(0, len(events), RECEIPTS_TOGETHER):
        receipts = await store.receipts(tree, events[first : first + RECEIPTS_TOGETHER])
        for event, receipt in receipts.items():
            if (seq := receipt.seq) not in times:
                times.update({entry.seq: entry.at for entry in await store.changes(tree, seq - 1, limit=1)})
            if seq in times and times[seq] < chosen[event]:
                found.append(event)
    return found


def _said(record: Record) -> tuple[str | None, datetime | None]:
    """The conversation and the time of a record's items."""
    if isinstance(record, Document):
        return None, record.published_at
    return record.conversation, record.at


def _sent(delivery: Delivery) -> datetime:
    return datetime.fromtimestamp(delivery.timestamp, UTC)
