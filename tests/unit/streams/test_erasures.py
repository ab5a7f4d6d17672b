"""Batches of forgets from Kafka: what they name goes, whenever it came, and all is told before they are acknowledged."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import structlog

from memory.errors import StoreUnavailableError
from memory.model import EventId, TreeId
from memory.results import EventStatus
from memory.service import forgetting
from memory.service.forgetting import Forgetting
from streams.commit_topic import CommitTopic
from streams.dead_letters import DeadLetters, DeadLetterShare, decode_envelope
from streams.deliveries import Delivery
from streams.job_topic import JobTopic, decode_message
from streams.retrying import Retry
from tests.fakes.erasures import erasing
from tests.fakes.producer import FakeProducer
from tests.fakes.world import TREE, World, turn, turns

LOG = structlog.stdlib.get_logger("test")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "store.db")
    await made.put(*turns(range(20)), turn("c1", conversation="c", at=None), turn("c2", conversation="c"))
    await made.drain()
    yield made
    await made.close()


class Parts:
    """The handler over a real store."""

    def __init__(self, world: World, case: type[Forgetting] = Forgetting, share: DeadLetterShare | None = None) -> None:
        self.producer = FakeProducer()
        self.dead = DeadLetters(self.producer, "dead", world.clock, share)
        self.erasures = erasing(
            world,
            jobs=JobTopic(self.producer, "jobs"),
            dead=self.dead,
            retry=Retry(world.clock, LOG),
            log=LOG,
            commits=CommitTopic(self.producer, "commits"),
            forgetting=case,
        )

    def letters(self) -> list[tuple[int, str]]:
        read = [decode_envelope(message.value or b"") for message in self.producer.of("dead")]
        return [(each.offset, each.error) for each in read]

    def told(self) -> list[str]:
        return [event for message in self.producer.of("commits") for event in json.loads(message.value or b"")["forgotten"]]

    def jobs(self) -> set[str]:
        return {decode_message(message.value)[0].node for message in self.producer.of("jobs")}

    def whole(self) -> list[str]:
        read = [decode_message(message.value) for message in self.producer.of("jobs")]
        return [job.tree for job, whole in read if whole]


def message(number: int, **said: object) -> Delivery:
    value = json.dumps({"tree": TREE, "id": f"x{number}", **said}).encode()
    return Delivery(topic="forgets", partition=0, offset=number, key=b"k", value=value)


async def events(world: World) -> set[str]:
    return {node.item.event_id async for node in world.store.all_nodes(TREE) if node.item is not None}


async def dirty(world: World, tree: TreeId = TREE) -> set[str]:
    return {each.node for each in await world.store.dirty(tree, limit=1_000)}


async def test_what_is_forgotten_goes_and_its_summaries_are_on_the_topic_of_jobs(world: World) -> None:
    parts = Parts(world)
    committed = []
    await parts.erasures.take(
        [message(0, event="e3"), message(1, event="e4"), message(2, event="e99")], committed=lambda: committed.append(parts.jobs())
    )
    assert {"e3", "e4"} & await events(world) == set()
    assert parts.erasures.events == {"forgotten": 2, "unknown": 1}
    assert parts.erasures.leaves == 2
    assert parts.jobs() == await dirty(world) != set()
    assert committed == [parts.jobs()], "before anything is acknowledged"
    assert sorted(parts.told()) == ["e3", "e4", "e99"]
    assert [result.status for result in await world.put(turn(3), turn(99))] == [EventStatus.FORGOTTEN] * 2
    await world.drain()
    assert (await world.inspect.check(TREE)).violations == ()


async def test_what_comes_again_sends_again_what_may_not_have_been_sent(world: World) -> None:
    await Parts(world).erasures.take([message(0, event="e3"), message(1, event="e4")])
    seq = (await world.store.tree(TREE)).seq
    again = Parts(world)
    await again.erasures.take([message(0, event="e3"), message(1, event="e4"), message(0, event="e3")])
    assert again.erasures.events == {"already": 2}
    assert again.jobs() == await dirty(world) != set()
    assert sorted(again.told()) == ["e3", "e4"]
    assert (await world.store.tree(TREE)).seq == seq
    await world.drain()
    settled = Parts(world)
    await settled.erasures.take([message(0, event="e3")])
    assert settled.jobs() == set()


async def test_a_conversation_and_a_past_name_what_is_there(world: World) -> None:
    await world.put(turn("old", at=None), *[turn(f"t{day}", at=f"2026-05-0{day}T00:00:00Z") for day in range(1, 4)])
    await world.drain()
    parts = Parts(world)
    await parts.erasures.take([message(0, conversation="c"), message(1, before="2026-05-03"), message(2, conversation="none")])
    left = await events(world)
    assert {"ec1", "ec2", "et1", "et2"} & left == set()
    assert {"eold", "et3", "e0"} <= left
    assert parts.erasures.events == {"forgotten": 4}
    assert sorted(parts.told()) == ["ec1", "ec2", "et1", "et2"]
    [told] = [each for each in parts.producer.of("commits") if "ec1" in str(each.value)]
    assert len(parts.producer.of("commits")) == 2, "and nothing of the one that found nothing"
    again = Parts(world)
    await again.erasures.take([message(0, conversation="c")])
    assert again.producer.of("commits") == [told]
    assert again.whole() == [TREE], "what it named is not found any more: one job stands for all that waits"
    assert again.erasures.events == {}


@pytest.mark.parametrize("what", [{"conversation": "c"}, {"before": "2026-05-02"}, {"conversation": "of nobody yet"}])
async def test_what_came_after_it_stays_when_it_comes_again(world: World, what: dict[str, str]) -> None:
    """The worker was killed before it acknowledged, or another group reads the topic from its beginning."""
    await world.put(turn("old", conversation="d", at="2026-05-01T00:00:00Z"))
    before = await events(world)
    first = Parts(world)
    await first.erasures.take([message(0, **what)])
    told = first.told()
    assert sorted(told) == sorted(before - await events(world))
    later = [
        turn("l1", conversation="c", at=None),
        turn("l2", conversation="d", at="2026-05-01T00:00:00Z"),
        turn("l3", conversation="of nobody yet", at=None),
    ]
    assert [result.status for result in await world.put(*later)] == [EventStatus.ACCEPTED] * 3
    again = Parts(world)
    await again.erasures.take([message(0, **what), message(0, **what)])
    assert {"el1", "el2", "el3"} <= await events(world)
    assert again.erasures.events == {}
    assert sorted(set(again.told())) == sorted(told), "said again: it may not have been"
    another = Parts(world)
    await another.erasures.take([message(1, **what)])
    assert len({"el1", "el2", "el3"} & await events(world)) == 2, "the same words sent anew choose anew"


async def test_what_its_first_delivery_left_goes_with_the_second_and_nothing_else(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "BATCH_MAX", 10)
    await world.put(*[turn(f"m{number}", conversation="m") for number in range(25)])
    apply, left = world.store.apply, 2

    async def cut(*given: Any, **options: Any) -> Any:
        nonlocal left
        left -= 1
        if left < 0:
            raise CutError
        return await apply(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(world.store, "apply", cut)
        with pytest.raises(CutError):
            await Parts(world).erasures.take([message(0, conversation="m")])
    assert len([event for event in await events(world) if event.startswith("em")]) == 25 - 19, "of which ten with a note"
    await world.put(turn("m99", conversation="m"))
    again = Parts(world)
    await again.erasures.take([message(0, conversation="m")])
    assert [event for event in await events(world) if event.startswith("em")] == ["em99"]
    assert again.erasures.events == {"forgotten": 6}
    await world.drain()
    assert (await world.inspect.check(TREE)).violations == ()


class CutError(BaseException):
    """The process ended here."""


async def test_a_forget_that_comes_before_anything_of_its_tree_holds(world: World) -> None:
    parts = Parts(world)
    await parts.erasures.take([message(0, event="e1", tree="early"), message(1, conversation="c", tree="nowhere")])
    assert parts.letters() == []
    assert parts.erasures.events == {"unknown": 1}
    assert {info.id for info in await world.store.trees()} == {TREE, "early"}
    assert [result.status for result in await world.put(turn(1, tree="early"), turn(2, tree="early"))] == [
        EventStatus.FORGOTTEN,
        EventStatus.ACCEPTED,
    ]
    assert (await world.inspect.check(TreeId("early"))).violations == ()


async def test_what_is_no_forget_is_a_dead_letter_and_the_rest_is_forgotten(world: World) -> None:
    parts = Parts(world, share=DeadLetterShare(0.5, 10))
    bad: list[dict[str, Any]] = [
        {},
        {"event": "e1", "before": "2026-05-01"},
        {"event": 5},
        {"before": "soon"},
        {"event": "e5", "tree": "a b"},
    ]
    await parts.erasures.take([message(number, **said) for number, said in enumerate([*bad, {"event": "e2"}])])
    assert parts.letters() == [(0, "event"), (1, "event"), (2, "event"), (3, "before"), (4, "tree")]
    assert "e2" not in await events(world)


class _Away(Forgetting):
    failures = 2

    async def forget(self, *args: Any, **options: Any) -> Any:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("away")
        return await super().forget(*args, **options)


async def test_a_store_that_is_away_is_waited_for(world: World) -> None:
    parts = Parts(world, _Away)
    await parts.erasures.take([message(0, event="e3")])
    assert parts.letters() == []
    receipt = (await world.store.receipts(TREE, [EventId("e3")]))[EventId("e3")]
    assert receipt.forgotten
