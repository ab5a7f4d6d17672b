"""Where feedback goes that is posted to a service with a broker."""

from __future__ import annotations

import msgspec

from memory.model import TreeId
from memory.records import parse_feedback
from memory.results import EventStatus
from streams.broker import Broker
from streams.query.writing import KafkaWriter
from streams.setting_tables import KafkaSettings
from streams.settings import Settings
from streams.topics import topics
from tests.fakes.producer import FakeProducer


class _Producer(FakeProducer):
    async def start(self) -> _Producer:
        return self


async def test_it_goes_to_its_topic_with_the_tree_as_its_key() -> None:
    producer = _Producer()
    names = topics(KafkaSettings(prefix="mine"))
    writer = KafkaWriter(Broker.of(Settings()), names, limit=5.0, make=lambda _: producer)
    given = parse_feedback({"tree": "me", "id": "f1", "event": "t1", "verdict": "rebuttal", "at": "2026-05-08"})
    [result] = await writer.feedback(TreeId("me"), [given])
    assert (result.id, result.status, result.seq) == ("f1", EventStatus.ACCEPTED, 0)
    [message] = producer.of("mine.feedback")
    assert message.key == b"me"
    assert ("banyan-schema", b"feedback/1") in message.headers
    assert parse_feedback(msgspec.json.decode(message.value or b"")) == given
    await writer.close()
