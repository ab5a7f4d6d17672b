"""Where feedback goes that is posted to a service with a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec
import pytest

from memory.model import TreeId
from memory.records import parse, parse_feedback
from memory.results import EventStatus
from streams.broker import Broker
from streams.query.writing import KafkaWriter
from streams.setting_tables import KafkaSettings
from streams.settings import Settings
from streams.topics import TopicsMissingError, topics
from tests.fakes.producer import FakeProducer


class _Kafka:
    """Has some topics; counts how often it is asked."""

    def __init__(self, *names: str) -> None:
        self.names = set(names)
        self.asked: list[tuple[str, ...]] = []
        self.seen = asyncio.Event()

    async def demand(self, _broker: Broker, names: Sequence[str]) -> None:
        self.asked.append(tuple(names))
        self.seen.set()
        if missing := set(names) - self.names:
            raise TopicsMissingError(f"there is no topic {', '.join(missing)}")


class _Producer(FakeProducer):
    async def start(self) -> _Producer:
        return self


async def test_it_goes_to_its_topic_with_the_tree_as_its_key() -> None:
    producer = _Producer()
    names = topics(KafkaSettings(prefix="mine"))
    kafka = _Kafka("mine.feedback")
    writer = KafkaWriter(Broker.of(Settings()), names, limit=5.0, make=lambda _: producer, demand=kafka.demand)
    given = parse_feedback({"tree": "me", "id": "f1", "event": "t1", "verdict": "rebuttal", "at": "2026-05-08"})
    [result] = await writer.feedback(TreeId("me"), [given])
    assert (result.id, result.status, result.seq) == ("f1", EventStatus.ACCEPTED, 0)
    [message] = producer.of("mine.feedback")
    assert message.key == b"me"
    assert ("banyan-schema", b"feedback/1") in message.headers
    assert parse_feedback(msgspec.json.decode(message.value or b"")) == given
    await writer.close()


async def test_turns_are_taken_where_the_topic_of_feedback_is_not_there_yet() -> None:
    producer = _Producer()
    kafka = _Kafka("mine.turns", "mine.documents")
    writer = KafkaWriter(
        Broker.of(Settings()), topics(KafkaSettings(prefix="mine")), limit=5.0, make=lambda _: producer, demand=kafka.demand
    )
    await writer.start()
    await kafka.seen.wait()
    await asyncio.sleep(0)
    assert writer.missing() == {}
    given = parse_feedback({"tree": "me", "id": "f1", "event": "t1", "verdict": "rebuttal", "at": "2026-05-08"})
    with pytest.raises(TopicsMissingError, match=r"mine\.feedback"):
        await writer.feedback(TreeId("me"), [given])
    [result] = await writer.put(TreeId("me"), [parse({"type": "turn", "id": "t1", "text": "hello"}, tree="me")])
    assert result.status is EventStatus.ACCEPTED
    assert writer.missing() == {}
    kafka.names.add("mine.feedback")
    for _ in range(2):
        await writer.feedback(TreeId("me"), [given])
    assert len(producer.of("mine.feedback")) == 2
    assert kafka.asked[1:] == [("mine.feedback",), ("mine.feedback",)]
    await writer.close()
