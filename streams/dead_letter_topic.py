"""
Dead letters for people: which there are, which were sent again already, and sending them again.

That a letter was replayed is written to the topic of dead letters itself, after the broker has the message on its old topic. So a
replay that is interrupted goes on when it is repeated, and one that was finished does nothing when it is; what is sent twice in
between has its effect once, by its event id.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from memory.errors import RecordError
from streams.dead_letters import NO_PLACE, REPLAYED_HEADER, Envelope, decode_envelope
from streams.deliveries import Delivery
from streams.producing import Message, Producer
from streams.schema_versions import SCHEMA_HEADER, check_schema, schema_of
from streams.topic_reader import Span, TopicReader
from streams.topics import Topics

READ_TOGETHER = 500
SENT_BYTES_MAX = 8 * 1024 * 1024
"""Of messages sent before they are waited for; one that is longer goes alone."""
_REPLAYED = schema_of("dead-letter-replayed")


class Replayed(msgspec.Struct, frozen=True, kw_only=True):
    """On the topic of dead letters: one of them was sent again."""

    partition: int
    """Of the letter."""
    offset: int
    at: str
    """ISO 8601 in UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """A dead letter and where it lies."""

    partition: int
    offset: int
    envelope: Envelope
    replayed: bool
    """It was sent again."""

    @property
    def place(self) -> str:
        """What commands call it: `PARTITION:OFFSET`."""
        return f"{self.partition}:{self.offset}"

    @property
    def came_back(self) -> bool:
        """Its message had been replayed before, and failed again."""
        return any(name == REPLAYED_HEADER for name, _ in self.envelope.headers)


def parse_place(text: str) -> tuple[int, int]:
    """
    Partition and offset of `PARTITION:OFFSET`.

    Raises:
        RecordError: it is no such place.
    """
    partition, _, offset = text.partition(":")
    if not (partition.isascii() and partition.isdigit() and offset.isascii() and offset.isdigit()):
        raise RecordError("place", f"{text[:60]!r} is not PARTITION:OFFSET, as `banyan dead-letters list` shows it")
    return int(partition), int(offset)


@dataclass(slots=True)
class DeadLetterTopic:
    """
    The topic of dead letters, as it stands when it is first asked for.

    Args:
        reader: of the broker.
        names: the installation's topics; messages are sent again to these only, whatever a letter says.
        choose: which letters are wanted.
    """

    reader: TopicReader
    names: Topics
    choose: Callable[[Letter], bool] = lambda _: True
    unreadable: int = 0
    """Messages on the topic that are no dead letters."""
    _spans: list[Span] | None = None
    _replayed: set[tuple[int, int]] = field(default_factory=set)

    async def letters(self) -> AsyncIterator[list[Letter]]:
        """
        Those that are wanted, in the order of each partition, some at a time.

        Raises:
            TopicsMissingError: there is no such topic.
            BrokerUnavailableError: Kafka is away.
        """
        if self._spans is None:
            # A first time through, for what was replayed: that is said behind the letter, maybe in another partition.
            self._spans = await self.reader.spans([self.names.dead_letters.name])
            async for messages in self.reader.messages(self._spans, batch=READ_TOGETHER):
                self._note(messages)
        self.unreadable = 0
        async for messages in self.reader.messages(self._spans, batch=READ_TOGETHER):
            found = [letter for message in messages if (letter := self._letter(message)) is not None and self.choose(letter)]
            if found:
                yield found

    @property
    def spans(self) -> Sequence[Span]:
        """What is read of the topic; nothing before it was first asked for."""
        return self._spans or ()

    def stays(self, message: Delivery, ends: Mapping[int, int]) -> bool:
        """
        Whether a message is to be kept when all before these offsets goes, by partition.

        Letters that were replayed are not, nor are notes of letters that go.
        """
        noted = _noted(message)
        if noted is not None:
            return noted[1] >= ends.get(noted[0], 0)
        return (message.partition, message.offset) not in self._replayed

    def _note(self, messages: Sequence[Delivery]) -> None:
        self._replayed.update(noted for message in messages if (noted := _noted(message)) is not None)

    def _letter(self, message: Delivery) -> Letter | None:
        if (SCHEMA_HEADER, _REPLAYED) in message.headers:
            return None
        try:
            check_schema(message.headers, "dead-letter")
            envelope = decode_envelope(message.value or b"")
            _ = envelope.delivery  # whether its base64 is any
        except (RecordError, ValueError):
            self.unreadable += 1
            return None
        place = (message.partition, message.offset)
        return Letter(partition=place[0], offset=place[1], envelope=envelope, replayed=place in self._replayed)

    async def replay(self, letters: Sequence[Letter], producer: Producer, *, at: str) -> int:
        """
        Send the letters' messages to the topics they came from, as they were, then note that it was done.

        Letters that were replayed are passed over, and so are those from topics that are not ours.

        Args:
            letters: some of `letters()`.
            producer: ours, started.
            at: now, ISO 8601 in UTC.

        Returns:
            How many were sent.

        Raises:
            BrokerUnavailableError, BrokerRefusedError: Kafka did not take them; the same call does no harm.
        """
        ours = [letter for letter in letters if not letter.replayed and self.goes(letter)]
        for part in _bounded(ours):
            await producer.send(_again(letter) for letter in part)
            await producer.send(self._note_of(letter, at) for letter in part)
            self._replayed.update((letter.partition, letter.offset) for letter in part)
        return len(ours)

    def goes(self, letter: Letter) -> bool:
        """Whether the letter has its message, and that came from a topic that workers read."""
        ours = {topic.name for topic in self.names.all if topic.readers.endswith("workers")}
        return not letter.envelope.left_out and letter.envelope.topic in ours

    def _note_of(self, letter: Letter, at: str) -> Message:
        value = msgspec.json.encode(Replayed(partition=letter.partition, offset=letter.offset, at=at))
        headers = [(SCHEMA_HEADER, _REPLAYED)]
        return Message(topic=self.names.dead_letters.name, value=value, key=letter.envelope.delivery.key, headers=headers)


def _noted(message: Delivery) -> tuple[int, int] | None:
    """The place of the letter that a message says was replayed."""
    if (SCHEMA_HEADER, _REPLAYED) not in message.headers:
        return None
    try:
        replayed = msgspec.json.decode(message.value or b"", type=Replayed)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return replayed.partition, replayed.offset


def _again(letter: Letter) -> Message:
    delivery = letter.envelope.delivery
    headers = [(name, value) for name, value in delivery.headers if name != REPLAYED_HEADER]
    return Message(
        topic=delivery.topic,
        value=delivery.value,
        key=delivery.key,
        headers=[*headers, (REPLAYED_HEADER, letter.place.encode())],
    )


def _bounded(letters: Sequence[Letter]) -> list[list[Letter]]:
    parts: list[list[Letter]] = []
    size = 0
    for letter in letters:
        length = len(letter.envelope.raw or "")
        if not parts or size + length > SENT_BYTES_MAX:
            parts.append([])
            size = 0
        parts[-1].append(letter)
        size += length
    return parts


def source(envelope: Envelope) -> str:
    """Where the message came from, for people."""
    return envelope.topic if envelope.offset == NO_PLACE else envelope.delivery.place
