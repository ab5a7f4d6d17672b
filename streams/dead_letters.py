"""
Messages that no repetition helps: kept on their own topic, as they came, with the reason.

A dead letter is on the broker before the message it is about is acknowledged.
"""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self

import msgspec

from memory.errors import BanyanError, RecordError
from memory.ports.clock import Clock
from streams.broker import DEAD_LETTER_BYTES_MAX
from streams.deliveries import Delivery
from streams.producing import Message, Producer
from streams.schema_versions import SCHEMA_HEADER, schema_of
from streams.topics import Topic

SCHEMA = schema_of("dead-letter")
REASON_CHARACTERS_MAX = 2_000
REPLAYED_HEADER = "banyan-replayed"
"""On a message that `banyan dead-letters replay` sent again: the letter's place on its topic, `PARTITION:OFFSET`."""
ALSO_MAX = 100
"""Places of further messages that one letter names."""
LETTER_BYTES_MAX = DEAD_LETTER_BYTES_MAX - 65_536
"""Of a letter and its key: what the topic takes, less what the broker adds."""
KEY_BYTES_MAX = 1_024
"""Of the key of a letter that leaves its message out."""
NO_PLACE = -1
"""Partition and offset of what did not come as a message: a job that the worker found by itself."""


class TooManyDeadLettersError(BanyanError):
    """So many records cannot be taken that something must be set wrong; going on would give them all up."""


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
    also: list[tuple[int, int]] = []
    """Partition and offset of further messages of the topic that asked for the same, at most 100: all jobs of one node say the
    same, so that one letter stands for them."""
    left_out: bool = False
    """Whether key, bytes and headers were too long for a letter: they are at the message's place, for its topic's retention."""

    @property
    def delivery(self) -> Delivery:
        """The message as it came."""
        return Delivery(
            topic=self.topic,
            partition=self.partition,
            offset=self.offset,
            key=None if self.key is None else b64decode(self.key, validate=True),
            value=None if self.raw is None else b64decode(self.raw, validate=True),
            headers=tuple((name, b64decode(value, validate=True)) for name, value in self.headers),
            timestamp=self.timestamp,
        )


def envelope(delivery: Delivery, error: Exception, *, attempts: int, at: str, also: Sequence[Delivery] = ()) -> Envelope:
    """What is kept of a message that failed with `error`, and of others that asked for the same."""
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
        also=[(each.partition, each.offset) for each in also[:ALSO_MAX]],
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


class DeadLetterShare:
    """
    How many of the last records became dead letters: far too many mean that not the records are at fault.

    Args:
        limit: the greatest share that is borne, 0 to 1; 1 bears all.
        window: records that are looked back on. Nothing is judged before a tenth of them was seen.
    """

    def __init__(self, limit: float, window: int) -> None:
        self._limit = limit
        self._least = max(1, window // 10)
        self._last: deque[str | None] = deque(maxlen=window)
        self._errors: Counter[str] = Counter()

    def add(self, error: str | None) -> None:
        """A record went in (None), or was given up with an error of that name."""
        if len(self._last) == self._last.maxlen and (gone := self._last[0]) is not None:
            self._errors[gone] -= 1
        self._last.append(error)
        if error is not None:
            self._errors[error] += 1

    @property
    def share(self) -> float:
        """Of the window."""
        return self._errors.total() / len(self._last) if self._last else 0.0

    def check(self) -> None:
        """
        Judge the window.

        Raises:
            TooManyDeadLettersError: the share is above the limit.
        """
        if len(self._last) < self._least or self.share <= self._limit:
            return
        (error, count), *_ = self._errors.most_common(1)
        raise TooManyDeadLettersError(
            f"{self._errors.total():,} of the last {len(self._last):,} records cannot be taken, {count:,} of them for {error!r}: "
            f"something is likely set wrong (the store, the model, a limit, what sends them). Nothing of the batch in hand was "
            f"acknowledged or given up. If it is the records, raise BANYAN_WORKER_DEAD_LETTERS_MAX"
        )


@dataclass(slots=True)
class DeadLetters:
    """
    Collects dead letters and sends them when told to, so that a batch of them waits for the broker once.

    Args:
        producer: ours.
        topic: the name of the topic of dead letters.
        clock: says when.
        share: watches how many there are; without it any number is borne.
    """

    producer: Producer
    topic: str
    clock: Clock
    share: DeadLetterShare | None = None
    told: bool = True
    """Whether each is told in the log."""
    counts: Counter[str] = field(default_factory=Counter)
    """By the topic of the message, since the process started."""
    _unsent: list[Message] = field(default_factory=list)
    _sending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def count_from_zero(self, *topics: Topic) -> None:
        """Show these topics in `counts` before anything was given up: Prometheus sees no rise in what begins with its first."""
        for topic in topics:
            self.counts[topic.name] += 0

    def unwatched(self) -> Self:
        """Another that sends to the same topic and counts here, of whose letters any number is borne."""
        return type(self)(self.producer, self.topic, self.clock, told=self.told, counts=self.counts)

    def put(self, delivery: Delivery, error: Exception, *, attempts: int = 1, also: Sequence[Delivery] = ()) -> Envelope:
        """Collect one; it keeps its key, so that the letters about one conversation keep their order."""
        letter = envelope(delivery, error, attempts=attempts, at=self.clock.now().isoformat(), also=also)
        if self.share is not None and all(name != REPLAYED_HEADER for name, _ in delivery.headers):
            # What people sent again on purpose says nothing about the settings.
            self.share.add(letter.error)
        headers = [(SCHEMA_HEADER, SCHEMA)]
        key, value = delivery.key, msgspec.json.encode(letter)
        if len(key or b"") + len(value) > LETTER_BYTES_MAX:
            # The topic would not take it, and the message, which cannot be acknowledged then, would stop its partition for good.
            letter = _without_message(letter, delivery)
            key, value = (key or b"")[:KEY_BYTES_MAX], msgspec.json.encode(letter)
        self._unsent.append(Message(topic=self.topic, value=value, key=key, headers=headers))
        self.counts[delivery.topic] += 1
        return letter

    def passed(self, records: int) -> None:
        """So many records were taken."""
        if self.share is not None:
            for _ in range(records):
                self.share.add(None)

    async def flush(self) -> int:
        """
        Send what was collected; returns how many are on the broker now. On an error all are kept for the next call.

        Raises:
            TooManyDeadLettersError: nothing was sent, and the process is to end without acknowledging what it has in hand.
            BrokerUnavailableError, BrokerRefusedError: Kafka did not take them.
        """
        if self._unsent and self.share is not None:
            self.share.check()
        async with self._sending:
            letters = list(self._unsent)
            await self.producer.send(letters)
            del self._unsent[: len(letters)]
            return len(letters)


def _without_message(letter: Envelope, delivery: Delivery) -> Envelope:
    in_headers = sum(len(name) + len(value or b"") for name, value in delivery.headers)
    size = len(delivery.key or b"") + len(delivery.value or b"") + in_headers
    reason = f"{letter.reason} (the message has {size:,} bytes, too many for a letter: it is at {delivery.place} only)"
    return msgspec.structs.replace(letter, key=None, raw=None, headers=[], reason=reason, left_out=True)


def _reason(error: Exception) -> str:
    if isinstance(error, RecordError):
        return error.reason[:REASON_CHARACTERS_MAX]
    text = str(error) if isinstance(error, BanyanError) else f"{type(error).__name__}: {error}"
    return " ".join(text.split())[:REASON_CHARACTERS_MAX]
