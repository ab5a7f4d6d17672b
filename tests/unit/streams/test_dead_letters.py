"""Dead letters: what they keep, how many are borne, and how they are sent again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from memory.errors import RecordError
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from streams.broker import BrokerUnavailableError
from streams.dead_letter_topic import DeadLetterTopic, Letter, parse_place
from streams.dead_letters import (
    ALSO_MAX,
    LETTER_BYTES_MAX,
    REPLAYED_HEADER,
    DeadLetters,
    DeadLetterShare,
    TooManyDeadLettersError,
    decode_envelope,
)
from streams.deliveries import Delivery
from streams.job_topic import decode_job, job_delivery
from streams.producing import Message
from streams.schema_versions import SCHEMA_HEADER, VERSIONS, check_schema, schema_of
from streams.setting_tables import KafkaSettings
from streams.topic_reader import Span
from streams.topics import topics
from tests.fakes.clock import FakeClock
from tests.fakes.producer import FakeProducer

NAMES = topics(KafkaSettings())
HEADERS = ((SCHEMA_HEADER, b"turn/1"), ("traceparent", b"00-\xff"))


def came(offset: int, *, value: bytes | None = b"\xff{", topic: str = "banyan.turns", headers: Any = HEADERS) -> Delivery:
    return Delivery(topic=topic, partition=2, offset=offset, key=b"t/c", value=value, headers=headers, timestamp=12.5)


def dead(producer: FakeProducer, share: DeadLetterShare | None = None) -> DeadLetters:
    return DeadLetters(producer, NAMES.dead_letters.name, FakeClock(), share)


class FakeReader:
    """A broker's topic of dead letters, made of what a fake producer was given."""

    def __init__(self, producer: FakeProducer) -> None:
        self.producer = producer

    async def spans(self, names: Sequence[str]) -> list[Span]:
        return [Span(topic=names[0], partition=0, earliest=0, first=0, end=len(self.producer.of(names[0])))]

    async def messages(self, spans: Sequence[Span], *, batch: int) -> AsyncIterator[list[Delivery]]:
        assert batch > 0
        (span,) = spans
        for offset, message in list(enumerate(self.producer.of(span.topic)))[: span.end]:
            headers = tuple((name, value) for name, value in message.headers)
            key, value = message.key, message.value
            yield [Delivery(topic=span.topic, partition=0, offset=offset, key=key, value=value, headers=headers)]


async def letters(producer: FakeProducer) -> tuple[DeadLetterTopic, list[Letter]]:
    found = DeadLetterTopic(FakeReader(producer), NAMES)  # type: ignore[arg-type]  # reads like one
    return found, [letter async for some in found.letters() for letter in some]


async def test_a_letter_keeps_everything_of_its_message() -> None:
    producer = FakeProducer()
    box = dead(producer)
    box.put(came(7), RecordError("text", "is empty"), attempts=3)
    await box.flush()
    (sent,) = producer.sent
    kept = decode_envelope(sent.value or b"")
    assert kept.delivery == came(7)
    assert (kept.error, kept.reason, kept.attempts, kept.also) == ("text", "is empty", 3, [])
    assert (sent.key, list(sent.headers)) == (b"t/c", [(SCHEMA_HEADER, schema_of("dead-letter"))])


async def test_one_letter_stands_for_all_messages_about_a_node_and_names_them() -> None:
    producer = FakeProducer()
    box = dead(producer)
    first, *others = [came(offset, topic=NAMES.summaries.name) for offset in range(ALSO_MAX + 50)]
    box.put(first, ValueError("rubbish"), also=others)
    await box.flush()
    kept = decode_envelope(producer.sent[0].value or b"")
    assert kept.offset == 0
    assert kept.also == [(2, offset) for offset in range(1, ALSO_MAX + 1)]


async def test_a_job_without_a_message_has_a_letter_that_can_be_replayed() -> None:
    producer = FakeProducer()
    box = dead(producer)
    job = SummaryJob(tree=TreeId("t"), node=NodeId("n1"), seq=5)
    box.put(job_delivery(NAMES.summaries.name, job), ValueError("rubbish"))
    await box.flush()
    topic, found = await letters(producer)
    assert await topic.replay(found, producer, at="now") == 1
    (again,) = producer.of(NAMES.summaries.name)
    assert decode_job(again.value) == job
    assert again.key == b"t/n1"


async def test_replaying_sends_bytes_key_and_headers_as_they_came_and_a_marker() -> None:
    producer = FakeProducer()
    box = dead(producer)
    box.put(came(7), RecordError("record", "is not JSON"))
    box.put(came(8, value=None), RecordError("record", "is empty"))
    await box.flush()
    topic, found = await letters(producer)
    assert await topic.replay(found, producer, at="now") == 2
    first, second = producer.of("banyan.turns")
    assert (first.value, first.key, tuple(first.headers)) == (b"\xff{", b"t/c", (*HEADERS, (REPLAYED_HEADER, b"0:0")))
    assert second.value is None


@pytest.mark.parametrize(
    "long",
    [
        pytest.param({"key": b"k" * 6_000_000, "value": b"x" * 2_000_000}, id="key"),
        pytest.param({"headers": (("\x00" * 3_000_000, b"v"),)}, id="header's name"),
        pytest.param({"value": b"x" * 20_000_000}, id="topic that takes more than ours"),
    ],
)
async def test_a_message_that_no_letter_can_hold_has_one_all_the_same(long: dict[str, Any]) -> None:
    producer = FakeProducer()
    box = dead(producer)
    message = replace(came(7), **long)
    box.put(message, RecordError("record", "is not JSON"))
    box.put(came(8), RecordError("record", "is not JSON"))
    await box.flush()
    sent = producer.of(NAMES.dead_letters.name)
    assert all(len(each.key or b"") + len(each.value or b"") <= LETTER_BYTES_MAX for each in sent)
    kept = decode_envelope(sent[0].value or b"")
    assert (kept.topic, kept.partition, kept.offset, kept.error, kept.left_out) == ("banyan.turns", 2, 7, "record", True)
    assert "bytes, too many for a letter: it is at banyan.turns[2]@7 only" in kept.reason
    topic, found = await letters(producer)
    assert await topic.replay(found, producer, at="now") == 1, "what is not there is not sent"


async def test_topics_are_counted_from_zero() -> None:
    box = dead(FakeProducer())
    box.count_from_zero(NAMES.turns, NAMES.documents)
    assert box.unwatched().counts == {"banyan.turns": 0, "banyan.documents": 0}


async def test_a_replay_that_is_repeated_sends_nothing_twice() -> None:
    producer = FakeProducer()
    box = dead(producer)
    box.put(came(7), RecordError("record", "is not JSON"))
    await box.flush()
    topic, found = await letters(producer)
    await topic.replay(found, producer, at="now")
    assert await topic.replay(found, producer, at="now") == 1  # what was read before is as it was read
    before = len(producer.of("banyan.turns"))
    topic, found = await letters(producer)
    assert [letter.replayed for letter in found] == [True]
    assert await topic.replay(found, producer, at="now") == 0
    assert len(producer.of("banyan.turns")) == before


class FailsOn(FakeProducer):
    """Takes nothing for one topic."""

    def __init__(self, topic: str) -> None:
        super().__init__()
        self.topic: str | None = topic

    async def send(self, messages: Any) -> None:
        given: list[Message] = list(messages)
        if any(message.topic == self.topic for message in given):
            raise BrokerUnavailableError("away")
        await super().send(given)


@pytest.mark.parametrize("topic", ["banyan.turns", "banyan.dead-letters"])
async def test_a_replay_that_is_interrupted_anywhere_loses_nothing(topic: str) -> None:
    producer = FailsOn("")
    box = dead(producer)
    box.put(came(7), RecordError("record", "is not JSON"))
    await box.flush()
    producer.topic = topic
    box_topic, found = await letters(producer)
    with pytest.raises(BrokerUnavailableError):
        await box_topic.replay(found, producer, at="now")
    producer.topic = None
    box_topic, found = await letters(producer)
    assert [letter.replayed for letter in found] == [False]
    assert await box_topic.replay(found, producer, at="now") == 1
    assert {message.value for message in producer.of("banyan.turns")} == {b"\xff{"}


async def test_a_letter_from_elsewhere_is_not_sent_there() -> None:
    producer = FakeProducer()
    box = dead(producer)
    box.put(came(1, topic="payments"), RecordError("record", "is not JSON"))
    await box.flush()
    topic, found = await letters(producer)
    assert await topic.replay(found, producer, at="now") == 0
    assert producer.of("payments") == []


async def test_what_is_no_letter_is_counted_and_passed_over() -> None:
    producer = FakeProducer()
    await producer.send([Message(topic=NAMES.dead_letters.name, value=value) for value in (b"", b"{}", b"\xff", None)])
    bad = msgspec.json.encode({**msgspec.to_builtins(decode_envelope(await _sent())), "raw": "no base64!"})
    await producer.send([Message(topic=NAMES.dead_letters.name, value=bad)])
    topic, found = await letters(producer)
    assert (found, topic.unreadable) == ([], 5)


async def _sent() -> bytes:
    producer = FakeProducer()
    box = dead(producer)
    box.put(came(7), RecordError("text", "is empty"))
    await box.flush()
    return producer.sent[0].value or b""


def test_the_share_is_judged_from_a_tenth_of_the_window_on() -> None:
    share = DeadLetterShare(0.5, 100)
    for _ in range(9):
        share.add("text")
        share.check()
    share.add("text")
    with pytest.raises(TooManyDeadLettersError, match=r"10 of the last 10 records cannot be taken, 10 of them for 'text'"):
        share.check()


def test_the_share_is_of_the_window_only() -> None:
    share = DeadLetterShare(0.5, 100)
    for number in range(1_000):
        share.add("text" if number < 800 else None)
    assert share.share == 0
    for _ in range(50):
        share.add("at")
    share.check()
    share.add("at")
    with pytest.raises(TooManyDeadLettersError, match="51 of the last 100"):
        share.check()


def test_a_limit_of_1_bears_everything() -> None:
    share = DeadLetterShare(1.0, 10)
    for _ in range(100):
        share.add("text")
    share.check()


async def test_nothing_is_sent_when_there_are_too_many_and_replayed_ones_do_not_count() -> None:
    producer = FakeProducer()
    box = dead(producer, DeadLetterShare(0.5, 10))
    for offset in range(20):
        box.put(came(offset, headers=((REPLAYED_HEADER, b"0:1"),)), RecordError("text", "is empty"))
    assert await box.flush() == 20
    box.passed(4)
    for offset in range(6):
        box.put(came(offset), RecordError("text", "is empty"))
    with pytest.raises(TooManyDeadLettersError, match="BANYAN_WORKER_DEAD_LETTERS_MAX"):
        await box.flush()
    assert len(producer.sent) == 20


@pytest.mark.parametrize("headers", [(), (("other", b"turn/9"),), ((SCHEMA_HEADER, b"turn/1"),), ((SCHEMA_HEADER, b"document/1"),)])
def test_a_message_of_a_known_form_or_without_one_is_taken(headers: Any) -> None:
    check_schema(headers, "turn", "document")


@pytest.mark.parametrize("value", [b"turn/2", b"turn", b"summary-job/1", b"", b"\xff", b"x" * 10_000])
def test_another_form_or_version_is_refused_with_what_is_read(value: bytes) -> None:
    with pytest.raises(RecordError, match=r"this version reads document/1 and turn/1") as caught:
        check_schema(((SCHEMA_HEADER, value),), "turn", "document")
    assert caught.value.field == SCHEMA_HEADER
    assert len(str(caught.value)) < 300


def test_every_form_has_a_version() -> None:
    assert {schema_of(form) for form in VERSIONS} >= {b"turn/1", b"document/1", b"summary-job/2", b"dead-letter/1"}


@pytest.mark.parametrize("text", ["", "3", "3:", ":3", "a:1", "-1:2", "1:2:3", "²:1"])
def test_a_place_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(RecordError, match="PARTITION:OFFSET"):
        parse_place(text)
