"""
Dead letters of what was forgotten: which they are, and taking them off the topic.

Kafka cannot delete a message in the middle of a partition, only all before a place. So letters of other records that lie before
the last one that is to go are sent to the end of the topic first, as they are; a crash in between leaves these twice, which does no
harm.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from memory.errors import RecordError, TreeNotFoundError
from memory.model import EventId, TreeId
from memory.ports.store import TreeStore
from memory.records import parse_time
from streams.broker import translated
from streams.dead_letter_topic import READ_TOGETHER, SENT_BYTES_MAX, DeadLetterTopic, Letter
from streams.deliveries import Delivery
from streams.producing import Message, Producer
from streams.topic_reader import Span

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

Place = tuple[int, int]
"""Partition and offset of a letter."""
Choose = Callable[[Sequence[Letter]], Awaitable[set[Place]]]
"""Which of some letters are to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selected:
    """What a letter's record says of itself, as far as it can be read."""

    tree: TreeId
    id: EventId
    conversation: str | None
    at: datetime | None
    """When it was said or published."""


@dataclass(slots=True, kw_only=True)
class Purged:
    """What was done."""

    removed: int = 0
    """Letters of what was forgotten."""
    moved: int = 0
    """Others, and notes, that were sent to the end of the topic."""
    dropped: int = 0
    """Others that went with them since they had been replayed."""


def record_of(letter: Letter) -> Selected | None:
    """What a letter is about; None where its message names no tree and no event. Nothing else has to be right about it."""
    raw = letter.envelope.delivery.value
    try:
        # Not the decoder: what it refuses is what letters are full of.
        value = json.loads((raw or b"").decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    tree, identity, conversation = (value.get(name) for name in ("tree", "id", "conversation"))
    if not isinstance(tree, str) or not isinstance(identity, str):
        return None
    return Selected(
        tree=TreeId(tree),
        id=EventId(identity),
        conversation=conversation if isinstance(conversation, str) else None,
        at=_time(value.get("at") or value.get("published_at")),
    )


def _time(value: Any) -> datetime | None:
    try:
        return parse_time("at", value)
    except RecordError:
        return None


def selecting(
    tree: TreeId, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
) -> Choose:
    """Letters of one tree's records: of these events, of a conversation, or of before a time."""
    ids = frozenset(events)

    def goes(record: Selected) -> bool:
        return record.tree == tree and (
            record.id in ids
            or (conversation is not None and record.conversation == conversation)
            or (before is not None and record.at is not None and record.at < before)
        )

    async def choose(letters: Sequence[Letter]) -> set[Place]:
        found = {(letter.partition, letter.offset): record_of(letter) for letter in letters}
        return {place for place, record in found.items() if record is not None and goes(record)}

    return choose


def forgotten_in(store: TreeStore) -> Choose:
    """Letters of events that a store has forgotten, of any tree."""

    async def choose(letters: Sequence[Letter]) -> set[Place]:
        places: defaultdict[TreeId, defaultdict[EventId, set[Place]]] = defaultdict(lambda: defaultdict(set))
        for letter in letters:
            record = record_of(letter)
            if record is not None:
                places[record.tree][record.id].add((letter.partition, letter.offset))
        found: set[Place] = set()
        for tree, events in places.items():
            try:
                receipts = await store.receipts(tree, list(events))
            except TreeNotFoundError:
                continue
            for event, receipt in receipts.items():
                found |= events[event] if receipt.forgotten else set()
        return found

    return choose


async def purge(topic: DeadLetterTopic, choose: Choose, *, producer: Producer, admin: AIOKafkaAdminClient, address: str) -> Purged:
    """
    Take letters off the topic of dead letters.

    Args:
        topic: with all its letters wanted.
        choose: which go.
        producer: ours, started.
        admin: of the same broker, connected.
        address: of the broker, for messages to people.

    Raises:
        TopicsMissingError: there is no such topic.
        BrokerUnavailableError, BrokerRefusedError: Kafka is away, or does not allow it; the same call goes on.
    """
    done = Purged()
    going: set[Place] = set()
    async for letters in topic.letters():
        going |= await choose(letters)
    if not going:
        return done
    ends: dict[int, int] = {}
    for partition, offset in going:
        ends[partition] = max(ends.get(partition, 0), offset + 1)
    done.removed = len(going)
    async for messages in topic.reader.messages(_before(ends, topic.spans), batch=READ_TOGETHER):
        staying = []
        for message in messages:
            if (message.partition, message.offset) in going:
                continue
            if topic.stays(message, ends):
                staying.append(message)
            else:
                done.dropped += 1
        await _moved(staying, producer, topic.names.dead_letters.name)
        done.moved += len(staying)
    await _deleted(admin, topic.names.dead_letters.name, ends, address)
    return done


def _before(ends: Mapping[int, int], spans: Sequence[Span]) -> list[Span]:
    return [
        Span(topic=span.topic, partition=span.partition, earliest=span.earliest, first=span.first, end=ends[span.partition])
        for span in spans
        if span.partition in ends
    ]


async def _moved(messages: Sequence[Delivery], producer: Producer, topic: str) -> None:
    part: list[Message] = []
    size = 0
    for message in messages:
        if part and size + len(message.value or b"") > SENT_BYTES_MAX:
            await producer.send(part)
            part, size = [], 0
        part.append(Message(topic=topic, value=message.value, key=message.key, headers=message.headers))
        size += len(message.value or b"")
    await producer.send(part)


async def _deleted(admin: AIOKafkaAdminClient, topic: str, ends: Mapping[int, int], address: str) -> None:
    from aiokafka import TopicPartition  # noqa: PLC0415  # an optional extra
    from aiokafka.admin import RecordsToDelete  # noqa: PLC0415

    with translated(address):
        await admin.delete_records({TopicPartition(topic, number): RecordsToDelete(end) for number, end in ends.items()})
