"""Letters of what was forgotten go, and of the others none is lost."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from memory.errors import RecordError
from memory.model import TreeId
from streams.broker import BrokerUnavailableError
from streams.dead_letter_topic import DeadLetterTopic, Letter
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.forgotten_letters import Purged, purge, record_of, selecting
from streams.producing import Message
from streams.setting_tables import KafkaSettings
from streams.topic_reader import Span
from streams.topics import topics
from tests.fakes.clock import FakeClock
from tests.fakes.producer import FakeProducer

NAMES = topics(KafkaSettings())
TREE = TreeId("t")
SECRET = "the word zanzibar"


class Topic(FakeProducer):
    """The topic of dead letters in two partitions: what is sent can be read, and what lies before a place can be deleted."""

    def __init__(self) -> None:
        super().__init__()
        self.partitions: dict[int, list[Message]] = {0: [], 1: []}
        self.starts = {0: 0, 1: 0}
        self.left = 10**6
        """Messages taken before the broker is away."""

    async def send(self, messages: Iterable[Message]) -> None:
        for message in messages:
            if not self.left:
                raise BrokerUnavailableError("away")
            self.left -= 1
            if message.topic == NAMES.dead_letters.name:
                self.partitions[(message.key or b"0")[-1] % 2].append(message)
            else:
                self.sent.append(message)

    async def delete_records(self, ends: dict[Any, Any]) -> None:
        if not self.left:
            raise BrokerUnavailableError("away")
        for at, records in ends.items():
            assert at.topic == NAMES.dead_letters.name
            self.starts[at.partition] = records.before_offset

    async def spans(self, names: Sequence[str]) -> list[Span]:
        return [
            Span(topic=names[0], partition=number, earliest=start, first=start, end=len(self.partitions[number]))
            for number, start in self.starts.items()
        ]

    async def messages(self, spans: Sequence[Span], *, batch: int) -> AsyncIterator[list[Delivery]]:
        assert batch > 0
        for span in spans:
            for offset in range(span.first, span.end):
                message = self.partitions[span.partition][offset]
                yield [
                    Delivery(
                        topic=span.topic,
                        partition=span.partition,
                        offset=offset,
                        key=message.key,
                        value=message.value,
                        headers=tuple(message.headers),
                    )
                ]

    def readable(self) -> list[Message]:
        return [message for number, start in self.starts.items() for message in self.partitions[number][start:]]

    def opened(self) -> DeadLetterTopic:
        return DeadLetterTopic(self, NAMES)  # type: ignore[arg-type]  # reads like one

    async def letters(self, *, replayed: bool = False) -> list[Letter]:
        return [each async for some in self.opened().letters() for each in some if each.replayed is replayed]

    async def purge(self, **selection: Any) -> Purged:
        choose = selecting(TREE, **selection)
        return await purge(self.opened(), choose, producer=self, admin=self, address="nowhere")


async def given(*records: object) -> Topic:
    """Letters of these, one after the other into each partition in turn."""
    topic = Topic()
    box = DeadLetters(topic, NAMES.dead_letters.name, FakeClock())
    for offset, record in enumerate(records):
        value = record if isinstance(record, bytes) else json.dumps(record).encode()
        came = Delivery(topic=NAMES.turns.name, partition=0, offset=offset, key=b"%d" % offset, value=value)
        box.put(came, RecordError("text", "is too long"))
    await box.flush()
    return topic


def said(identity: str, text: str = "hello", **more: object) -> dict[str, object]:
    return {"tree": TREE, "id": identity, "text": text, **more}


def ids(letters: Sequence[Letter]) -> list[str]:
    return sorted(record.id for letter in letters if (record := record_of(letter)) is not None)


async def test_letters_of_what_was_forgotten_go_and_the_others_stay() -> None:
    topic = await given(
        said("a"), said("b"), said("gone", SECRET), said("c"), {**said("gone"), "tree": "other"}, said("d"), b"no json"
    )
    assert await topic.purge(events=["gone", "never"]) == Purged(removed=1, moved=1)
    kept = [letter.envelope.delivery.value or b"" for letter in await topic.letters()]
    assert not any(SECRET.encode() in value for value in kept)
    assert ids(await topic.letters()) == ["a", "b", "c", "d", "gone"]
    assert [record_of(letter) for letter in await topic.letters()].count(None) == 1
    assert topic.starts == {0: 2, 1: 0}, "the partition without such a letter is left alone"
    assert await topic.purge(events=["gone"]) == Purged()


async def test_a_conversation_or_a_time_names_letters_whose_records_never_came_in() -> None:
    records = (
        said("a", conversation="c1", at="2026-05-01"),
        said("b", conversation="c2", at="2026-06-01T00:00:00+02:00"),
        said("c", conversation=7, at="soon"),
        {"tree": TREE, "id": "d", "title": "x", "published_at": "2026-05-02"},
        {"tree": TREE, "id": 5},
        [1],
    )
    topic = await given(*records)
    await topic.purge(conversation="c1")
    assert ids(await topic.letters()) == ["b", "c", "d"]
    topic = await given(*records)
    await topic.purge(before=datetime(2026, 6, 1, tzinfo=UTC))
    assert ids(await topic.letters()) == ["c"]
    assert len(await topic.letters()) == 3


async def test_a_letter_that_was_replayed_goes_with_what_says_so() -> None:
    topic = await given(said("a"), said("x"), said("b"), said("y"), said("gone", SECRET))
    opened = topic.opened()
    found = [letter async for some in opened.letters() for letter in some]
    await opened.replay([letter for letter in found if ids([letter])[0] in ("a", "y", "gone")], topic, at="now")
    assert ids(await topic.letters()) == ["b", "x"]
    assert await topic.purge(events=["gone"]) == Purged(removed=1, moved=1, dropped=1)
    assert ids(await topic.letters()) == ["b", "x"]
    assert ids(await topic.letters(replayed=True)) == ["y"]
    assert not any(b"emFuemliYX" in (message.value or b"") for message in topic.readable())


async def test_a_note_of_a_letter_elsewhere_is_kept() -> None:
    topic = await given(said("a"), said("b"), said("gone"))
    opened = topic.opened()
    found = [letter async for some in opened.letters() for letter in some]
    await opened.replay([letter for letter in found if ids([letter]) == ["b"]], topic, at="now")
    # A note that lies in another partition than its letter: there are more partitions than there were.
    topic.partitions[0].insert(0, topic.partitions[1].pop())
    assert await topic.purge(events=["gone"]) == Purged(removed=1, moved=2)
    assert (ids(await topic.letters()), ids(await topic.letters(replayed=True))) == (["a"], ["b"])


@pytest.mark.parametrize("left", range(4))
async def test_one_that_is_interrupted_anywhere_loses_nothing(left: int) -> None:
    topic = await given(said("a"), said("x"), said("b"), said("y"), said("c"), said("z"), said("gone", SECRET))
    topic.left = left
    with pytest.raises(BrokerUnavailableError):
        await topic.purge(events=["gone"])
    assert set(ids(await topic.letters())) == {"a", "b", "c", "x", "y", "z", "gone"}
    topic.left = 10**6
    await topic.purge(events=["gone"])
    assert set(ids(await topic.letters())) == {"a", "b", "c", "x", "y", "z"}
