"""Topics read from a given place to where they end now, without a consumer group: nothing is acknowledged, nothing is moved."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from streams.broker import Broker, BrokerUnavailableError, open_admin, translated
from streams.deliveries import Delivery
from streams.fetching import take_any_header
from streams.topics import require

if TYPE_CHECKING:
    from aiokafka import AIOKafkaConsumer

_POLL_MS = 500
_BYTES_PER_PARTITION = 2 * 1024 * 1024
"""A message that is longer comes alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of one partition."""

    topic: str
    partition: int
    earliest: int
    """The first offset that the broker still has."""
    first: int
    end: int
    """The offset after the last."""

    @property
    def size(self) -> int:
        """Offsets in it: no fewer than the messages."""
        return max(0, self.end - self.first)


class TopicReader:
    """
    Reads topics; made by `reading`.

    Args:
        consumer: started, with no group.
        broker: for messages to people.
        patience: seconds without an answer of the broker after which reading is given up.
    """

    def __init__(self, consumer: AIOKafkaConsumer, broker: Broker, patience: float) -> None:
        self._consumer = consumer
        self._broker = broker
        self._patience = patience

    async def spans(self, names: Sequence[str], *, partition: int | None = None) -> list[Span]:
        """
        All of these topics, from the first message that is kept to the last one now, by partition.

        Raises:
            TopicsMissingError: one is not there.
            BrokerUnavailableError: Kafka is away.
        """
        admin = await open_admin(self._broker)
        try:
            await require(admin, names, self._broker.address)
            with translated(self._broker.address):
                found = await admin.describe_topics(list(names))
        finally:
            await admin.close()
        numbers = {each["topic"]: sorted(one["partition"] for one in each["partitions"]) for each in found}
        wanted = [(name, number) for name in names for number in numbers[name] if partition is None or number == partition]
        if not wanted:
            return []
        with translated(self._broker.address):
            firsts = await self._consumer.beginning_offsets(_partitions(wanted))
            ends = await self._consumer.end_offsets(_partitions(wanted))
        return [
            Span(topic=at.topic, partition=at.partition, earliest=first, first=first, end=ends[at]) for at, first in firsts.items()
        ]

    async def since(self, spans: Sequence[Span], at: datetime) -> list[Span]:
        """The same, each from its first message with that time or a later one."""
        if not spans:
            return []
        wanted = _partitions([(span.topic, span.partition) for span in spans])
        with translated(self._broker.address):
            found = await self._consumer.offsets_for_times(dict.fromkeys(wanted, round(at.timestamp() * 1000)))
        firsts = {(key.topic, key.partition): value.offset for key, value in found.items() if value is not None}
        return [replace(span, first=firsts.get((span.topic, span.partition), span.end)) for span in spans]

    async def messages(self, spans: Sequence[Span], *, batch: int) -> AsyncIterator[list[Delivery]]:
        """
        Everything in these spans, in the order of each partition, at most `batch` messages at a time.

        Raises:
            BrokerUnavailableError: nothing has come for longer than the patience.
        """
        left = {(span.topic, span.partition): span for span in spans if span.size}
        if not left:
            return
        with translated(self._broker.address):
            self._consumer.assign(_partitions(list(left)))
            for at, span in zip(_partitions(list(left)), left.values(), strict=True):
                self._consumer.seek(at, span.first)
        heard = time.monotonic()
        while left:
            with translated(self._broker.address):
                taken = await self._consumer.getmany(*_partitions(list(left)), timeout_ms=_POLL_MS, max_records=batch)
            found = [message for messages in taken.values() for message in messages if message.offset < _end(left, message)]
            if found:
                yield [_delivery(message) for message in found]
            ended = [key for key, span in left.items() if await self._position(key) >= span.end]
            if taken or ended:
                heard = time.monotonic()
            elif time.monotonic() - heard > self._patience:
                raise BrokerUnavailableError(f"Kafka at {self._broker.address} has given nothing for {self._patience:.0f} s")
            for key in ended:
                del left[key]

    async def _position(self, key: tuple[str, int]) -> int:
        # What is at an end need not be a message: markers of transactions have offsets too.
        with translated(self._broker.address):
            return int(await self._consumer.position(_partitions([key])[0]))


@asynccontextmanager
async def reading(broker: Broker, *, patience: float = 60.0) -> AsyncIterator[TopicReader]:
    """
    A reader, until the context ends.

    Raises:
        BrokerUnavailableError: nobody answers there.
        BrokerRefusedError: it does not let us in.
    """
    from aiokafka import AIOKafkaConsumer  # noqa: PLC0415  # an optional extra

    options = broker.client_options()
    take_any_header()
    with translated(broker.address):
        consumer = AIOKafkaConsumer(
            **options, enable_auto_commit=False, auto_offset_reset="earliest", max_partition_fetch_bytes=_BYTES_PER_PARTITION
        )
        try:
            await consumer.start()
        except BaseException:
            await consumer.stop()
            raise
    try:
        yield TopicReader(consumer, broker, patience)
    finally:
        await consumer.stop()


def _partitions(keys: Sequence[tuple[str, int]]) -> list[Any]:
    from aiokafka import TopicPartition  # noqa: PLC0415

    return [TopicPartition(topic, number) for topic, number in keys]


def _end(left: dict[tuple[str, int], Span], message: Any) -> int:
    return left[message.topic, message.partition].end


def _delivery(message: Any) -> Delivery:
    return Delivery(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple((name, value) for name, value in message.headers),
        timestamp=(message.timestamp or 0) / 1000,
    )
