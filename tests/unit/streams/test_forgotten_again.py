"""What a repair forgets again: by ids, and by what forgets chose when they were sent."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from memory.model import EventId
from memory.results import EventStatus
from memory.settings import IngestSettings
from streams.commit_topic import CommitTopic
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.forgotten_again import Forgotten, forget_among, forget_first, forgetting, looking, read_forgotten
from streams.job_topic import JobTopic
from streams.pipelines import Ingesting
from streams.retrying import Retry
from streams.settings import Settings
from streams.topic_reader import TopicReader
from streams.topics import topics
from tests.fakes.erasures import erasing
from tests.fakes.producer import FakeProducer
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import TREE, World, turn, turns

LOG = structlog.stdlib.get_logger("test")
NAMES = topics(Settings().kafka)
SENT = datetime(2026, 5, 8, 12, tzinfo=UTC)
SECOND = timedelta(seconds=1)


class LaterClock(LoopClock):
    """Of whose times some is let go by."""

    def __init__(self) -> None:
        self.later = timedelta(0)

    def now(self) -> datetime:
        return super().now() + self.later


@pytest.fixture
def clock() -> LaterClock:
    return LaterClock()


@pytest.fixture
async def world(tmp_path: Path, clock: LaterClock) -> AsyncIterator[World]:
    made = World(tmp_path / "store.db", clock=clock)
    yield made
    await made.close()


def message(topic: str, sent: datetime, value: object) -> Delivery:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Delivery(topic=topic, partition=0, offset=0, key=b"k", value=raw, timestamp=sent.timestamp())


def forget(sent: datetime = SENT, tree: str = TREE, **what: str) -> Delivery:
    return message(NAMES.forgets.name, sent, {"tree": tree, "id": "x", **what})


def record(identity: str, sent: datetime, **said: str) -> Delivery:
    return message(NAMES.turns.name, sent, {"tree": TREE, "id": identity, "text": "what was said", **said})


async def read(*deliveries: Delivery) -> Forgotten:
    async def messages(spans: Sequence[object], *, batch: int) -> AsyncIterator[list[Delivery]]:
        assert (spans, batch > 0) == ([], True)
        yield list(deliveries)

    return await read_forgotten(cast(TopicReader, SimpleNamespace(messages=messages)), [], NAMES)


class Parts:
    """As a repair forgets: what is said of commits that came before is not said again."""

    def __init__(self, world: World) -> None:
        self.producer = FakeProducer()
        erasures = erasing(
            world,
            jobs=JobTopic(self.producer, "jobs"),
            dead=DeadLetters(self.producer, "dead", world.clock, None),
            retry=Retry(world.clock, LOG),
            log=LOG,
            commits=CommitTopic(self.producer, "commits", repeats=False),
        )
        self.again = forgetting(cast(Ingesting, SimpleNamespace(erasures=erasures)))

    def told(self) -> list[str]:
        return [event for each in self.producer.of("commits") for event in json.loads(each.value or b"")["forgotten"]]


async def left(world: World) -> set[str]:
    return {node.item.event_id async for node in world.store.all_nodes(TREE) if node.item is not None}


async def test_ids_are_those_of_forgets_and_of_commits(world: World) -> None:
    commit: dict[str, Any] = {"tree": TREE, "seq": 9, "at": "2026-05-08T12:00:00Z", "events": [], "leaves": 0, "summaries": 0}
    found = await read(
        forget(event="e1"),
        message(NAMES.commits.name, SENT, {**commit, "forgotten": ["e2", "e1"]}),
        message(NAMES.commits.name, SENT, {**commit, "events": ["e4"]}),
        message(NAMES.commits.name, SENT, b"\xff"),
        message(NAMES.forgets.name, SENT, b"nothing of the kind"),
        forget(event="e3", tree="other"),
        forget(conversation="c"),
    )
    assert {tree: list(events) for tree, events in found.events.items()} == {TREE: ["e1", "e2"], "other": ["e3"]}
    assert len(found) == 4
    await world.put(*turns(range(6)))
    parts = Parts(world)
    assert await forget_first(world.store, found, looking(world.store)) == 3
    assert {"e1", "e2"} <= await left(world), "only looked at"
    assert await forget_first(world.store, found, parts.again) == 3
    assert await left(world) == {"e0", "e3", "e4", "e5"}
    assert await forget_first(world.store, found, parts.again) == 0
    assert sorted(parts.told()) == ["e1", "e2", "e3"], "once, when the store had lost it"
    assert [one.status for one in await world.put(turn(3, tree="other"), turn(4, tree="other"))] == [
        EventStatus.FORGOTTEN,
        EventStatus.ACCEPTED,
    ]


async def test_a_selection_chooses_of_a_store_what_was_there_when_it_was_sent(world: World, clock: LaterClock) -> None:
    first, third = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 3, tzinfo=UTC)
    await world.put(turn("a", conversation="c"), turn("old", at=first), turn("new", at=third))
    sent = clock.now()
    clock.later = timedelta(hours=1)
    await world.put(turn("after", conversation="c"), turn("late", at=first))
    selections = (forget(sent, conversation="c"), forget(sent, before="2026-05-02"), forget(sent - 5 * SECOND, conversation="c"))
    assert await forget_first(world.store, await read(*selections), looking(world.store)) == 2
    parts = Parts(world)
    assert await forget_first(world.store, await read(*selections), parts.again) == 2
    assert await left(world) == {"enew", "eafter", "elate"}
    assert sorted(parts.told()) == ["ea", "eold"]
    assert await forget_first(world.store, await read(*selections), parts.again) == 0
    assert await forget_first(world.store, await read(forget(sent, conversation="c", tree="nowhere")), parts.again) == 0
    assert {info.id for info in await world.store.trees()} == {TREE}, "a selection of nothing makes no tree"


async def test_a_selection_chooses_of_records_those_that_were_sent_before_it(world: World) -> None:
    def found() -> Any:
        return read(
            forget(conversation="c"), forget(before="2026-05-02"), forget(SENT + 9 * SECOND, tree="other", conversation="c")
        )

    records = [
        record("before", SENT - SECOND, conversation="c"),
        record("same", SENT, conversation="c"),
        record("after", SENT + SECOND, conversation="c"),
        record("other", SENT - SECOND, conversation="d"),
        record("old", SENT - SECOND, at="2026-05-01"),
        record("doc", SENT - SECOND, type="document", published_at="2026-05-01"),
        record("young", SENT - SECOND, at="2026-05-02"),
        record("without", SENT - SECOND),
        record("before", SENT + SECOND, conversation="c"),
        message(NAMES.turns.name, SENT, b"nothing of the kind"),
    ]
    chosen = ["before", "same", "old", "doc"]
    forgotten, parts, limits = await found(), Parts(world), IngestSettings()
    assert await forget_among(records, await found(), looking(world.store), limits=limits) == len(chosen)
    assert await world.store.trees() == []
    assert await forget_among(records, forgotten, parts.again, limits=limits) == len(chosen)
    assert list(forgotten.events[TREE]) == chosen
    assert await forget_among(records, forgotten, parts.again, limits=limits) == 0
    assert await forget_among(records, await found(), parts.again, limits=limits) == 0, "known to be forgotten"
    receipts = await world.store.receipts(TREE, [EventId(event) for event in (*chosen, "after", "without")])
    assert {event for event, receipt in receipts.items() if receipt.forgotten} == receipts.keys() == set(chosen)
    assert sorted(parts.told()) == sorted(chosen)
    assert await forget_among(records, Forgotten(), parts.again, limits=limits) == 0
