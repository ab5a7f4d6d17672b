"""
Our own producer: idempotent, acknowledged by all replicas.

Faust's own is not idempotent by default, and a future of it that nobody awaits hides a failed send.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Self

from memory.errors import BanyanError
from streams.broker import DEAD_LETTER_BYTES_MAX, Broker, translated

if TYPE_CHECKING:
    from aiokafka import AIOKafkaProducer

_LINGER_MS = 5
_BATCH_BYTES = 131_072
_REQUEST_TIMEOUT_MS = 40_000
TOGETHER = 16
"""So many messages or more are put into batches here, at a third of the price of handing them over one by one."""
SMALL = _BATCH_BYTES // 4  # bytes
"""Of a message, above which they are handed over one by one."""
HASHES_KEPT = 16_384
"""Of keys: jobs name the same few nodes over and over."""
_SEQUENCE_LOST = frozenset(
    {"OutOfOrderSequenceNumber", "ProducerFenced", "InvalidProducerEpoch", "InvalidProducerIdMapping", "UnknownProducerId"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent: a value, a key, or both."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes]] = ()


class Producer:
    """
    Sends messages to Kafka.

    Args:
        broker: where Kafka is.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._address = broker.address
        self._producer: AIOKafkaProducer | None = None
        self._broken = False
        """The broker does not know this producer's sequence any more, or what sends has died: only a new one can go on."""
        self._renewing = asyncio.Lock()

    async def start(self) -> Self:
        """
        Connect.

        Raises:
            BrokerUnavailableError: nobody answers there.
            BrokerRefusedError: it does not let us in.
            SettingError: the address or the security settings cannot be used.
        """
        from aiokafka import AIOKafkaProducer  # noqa: PLC0415  # an optional extra

        options = self._broker.client_options()
        with translated(self._address):
            producer = AIOKafkaProducer(
                **options,
                enable_idempotence=True,
                acks="all",
                linger_ms=_LINGER_MS,
                max_batch_size=_BATCH_BYTES,
                max_request_size=DEAD_LETTER_BYTES_MAX,
                request_timeout_ms=_REQUEST_TIMEOUT_MS,
            )
            try:
                await producer.start()
            except BaseException:
                await producer.stop()
                raise
        self._producer = producer
        self._broken = False
        return self

    async def send(self, messages: Iterable[Message]) -> None:
        """
        Send messages, in order within a key, and wait until the broker has all of them on all replicas.

        Raises:
            BrokerUnavailableError, BrokerRefusedError: of one that it has not. Which ones it has is not known then: all are to be
                sent again.
        """
        await self._renew()
        producer = self._producer
        assert producer is not None, "start() comes first"
        futures: list[asyncio.Future[object]] = []
        with self._told(producer), translated(self._address):
            try:
                # Waits while the producer's buffer is full.
                async for future in _handed(producer, list(messages)):
                    futures.append(future)  # noqa: PERF401  # those before one that fails are to be awaited too
            finally:
                # All are waited for, whatever becomes of one: a future that is dropped hides a failure.
                outcomes = await asyncio.gather(*futures, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome

    async def stop(self) -> None:
        """Send what is left and disconnect; idempotent."""
        producer, self._producer = self._producer, None
        if producer is not None:
            await producer.stop()

    async def _renew(self) -> None:
        """Put a new producer in the place of one that is broken; of several senders one does, and the others wait for it."""
        self._broken = self._broken or _ended(self._producer)
        if not self._broken:
            return
        async with self._renewing:
            if self._broken:
                await self.stop()
                await self.start()

    @contextmanager
    def _told(self, producer: AIOKafkaProducer) -> Iterator[None]:
        try:
            yield
        except BanyanError as error:
            # What is told of one that was replaced meanwhile says nothing about its successor.
            if producer is self._producer and type(error.__cause__).__name__ in _SEQUENCE_LOST:
                self._broken = True
            raise


def _ended(producer: AIOKafkaProducer | None) -> bool:
    """Whether the task that sends has come to an end: what is handed over would wait for ever."""
    task = None if producer is None else producer._sender.sender_task  # noqa: SLF001  # no other way to see it
    return task is not None and task.done()


async def _handed(producer: AIOKafkaProducer, messages: Sequence[Message]) -> AsyncIterator[asyncio.Future[object]]:
    """Give messages to the client, in order within a partition; yields what is to be awaited: many share one."""
    few = len(messages) < TOGETHER or any(
        message.key is None or len(message.key) + len(message.value or b"") > SMALL for message in messages
    )
    if few:
        for message in messages:
            yield await producer.send(message.topic, message.value, key=message.key, headers=list(message.headers))
        return
    partitions = {topic: sorted(await producer.partitions_for(topic)) for topic in {message.topic for message in messages}}
    batches: dict[tuple[str, int], Any] = {}
    for message in messages:
        numbers = partitions[message.topic]
        place = (message.topic, numbers[_hash(message.key or b"") % len(numbers)])
        for _ in range(2):
            batch = batches.get(place) or batches.setdefault(place, producer.create_batch())
            if batch.append(timestamp=None, key=message.key, value=message.value, headers=list(message.headers)) is not None:
                break
            del batches[place]  # it is full, and closed
            yield await producer.send_batch(batch, place[0], partition=place[1])
        else:
            raise AssertionError("an empty batch takes a small message")
    for (topic, partition), batch in batches.items():
        batch.close()  # it is whole: nothing is waited for
        yield await producer.send_batch(batch, topic, partition=partition)


@lru_cache(HASHES_KEPT)
def _hash(key: bytes) -> int:
    """What every client of Kafka takes a key's partition from; in Python alone, 10 µs."""
    from aiokafka.partitioner import murmur2  # noqa: PLC0415  # an optional extra

    found: int = murmur2(key) & 0x7FFFFFFF
    return found
