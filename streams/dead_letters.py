"""
Messages that no repetition helps: kept on their own topic, as they came, with the reason.

A dead letter is on the broker before the message it is about is acknowledged.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from dataclasses import dataclass, field

import msgspec

from memory.errors import BanyanError, RecordError
from memory.ports.clock import Clock
from streams.deliveries import Delivery
from streams.producing import SCHEMA_HEADER, Message, Producer

SCHEMA = b"dead-letter/1"
REASON_CHARACTERS_MAX = 2_000


class Envelope(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter, as JSON on the topic."""

    topic: str
    """Where the message came from."""
    partition: int
    offset: int
    timestamp: float
    """Of the message, seconds since 1970."""
    key: str | None
    """In base64, as are `raw` and the headers' values: they may be anything."""
    raw: str | None
    headers: list[tuple[str, str]]
    error: str
    """What kind of error: the field that is wrong (`text`, `record`, …), or the error's name."""
    reason: str
    """For people."""
    attempts: int
    at: str
    """When it was given up, ISO 8601 in UTC."""

    @property
    def delivery(self) -> Delivery:
        """The message as it came."""
        return Delivery(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            key=None if self.key is None else b64decode(self.key),
            value=None if self.raw is None else b64decode(self.raw),
            headers=tuple((name, b64decode(value)) for name, value in self.headers),
            timestamp=self.timestamp,
        )


def envelope(delivery: Delivery, error: Exception, *, attempts: int, at: str) -> Envelope:
    """What is kept of a message that failed with `error`."""
    return Envelope(
        topic=delivery.topic,
        partition=delivery.partition,
        offset=delivery.offset,
        timestamp=delivery.timestamp,
        key=None if delivery.key is None else b64encode(delivery.key).decode(),
        raw=None if delivery.value is None else b64encode(delivery.value).decode(),
        headers=[(name, b64encode(value or b"").decode()) for name, value in delivery.headers],
        error=error.field if isinstance(error, RecordError) else type(error).__name__,
        reason=_reason(error),
        attempts=attempts,
        at=at,
    )


def decode_envelope(data: bytes) -> Envelope:
    """
    A dead letter as read from the topic.

    Raises:
        RecordError: it is none.
    """
    try:
        return msgspec.json.decode(data, type=Envelope)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError("record", f"is no dead letter: {error}") from error


@dataclass(slots=True)
class DeadLetters:
    """
    Collects dead letters and sends them when told to, so that a batch of them waits for the broker once.

    Args:
        producer: ours.
        topic: the name of the topic of dead letters.
        clock: says when.
    """

    producer: Producer
    topic: str
    clock: Clock
    count: int = 0
    """Since the process started."""
    _unsent: list[Message] = field(default_factory=list)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def put(self, delivery: Delivery, error: Exception, *, attempts: int = 1) -> Envelope:
        """Collect one; it keeps its key, so that the letters about one conversation keep their order."""
        letter = envelope(delivery, error, attempts=attempts, at=self.clock.now().isoformat())
        headers = [(SCHEMA_HEADER, SCHEMA)]
        self._unsent.append(Message(topic=self.topic, value=msgspec.json.encode(letter), key=delivery.key, headers=headers))
        self.count += 1
        return letter

    async def flush(self) -> int:
        """
        Send what was collected; returns how many are on the broker now. On an error all are kept for the next call.

        Raises:
            BrokerUnavailableError, BrokerRefusedError: Kafka did not take them.
        """
        async with self._sending:
            letters = list(self._unsent)
            await self.producer.send(letters)
            del self._unsent[: len(letters)]
            return len(letters)


def _reason(error: Exception) -> str:
    if isinstance(error, RecordError):
        return error.reason[:REASON_CHARACTERS_MAX]
    text = str(error) if isinstance(error, BanyanError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:REASON_CHARACTERS_MAX]
