"""Batches of feedback from Kafka: weighed once, what cannot be weighed becomes a dead letter with its reason."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from memory.errors import RecordError, SettingError, StoreUnavailableError
from memory.model import EventId, TreeId
from memory.records import Feedback
from memory.results import EventResult
from memory.service.weighing import Weighing
from memory.structures.weights import APPROVALS
from streams.agents.batches import GIVEN_UP_IN_ROW_MAX, CannotGoOnError
from streams.agents.early import WAIT_FIRST, WAIT_MAX, WAITING_OF_A_TREE_MAX, Early
from streams.agents.opinions import Opinions
from streams.dead_letters import DeadLetters, DeadLetterShare, decode_envelope
from streams.deliveries import Delivery
from streams.retrying import Retry
from tests.fakes.clock import FakeClock
from tests.fakes.producer import FakeProducer
from tests.fakes.world import TREE, World, turn

LOG = structlog.stdlib.get_logger("test")


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "store.db", structure="hmem")
    await made.put(turn(0), turn(1))
    yield made
    await made.close()


class Parts:
    """The handler over a real store."""

    def __init__(
        self, world: World, weighing: Weighing | None = None, share: DeadLetterShare | None = None, wait: float = 0.0
    ) -> None:
        self.clock = FakeClock()
        self.early = Early(self.clock, timedelta(seconds=wait))
        self.producer = FakeProducer()
        self.dead = DeadLetters(self.producer, "dead", world.clock, share)
        self.opinions = Opinions(
            weighing=weighing or world.weighing, early=self.early, dead=self.dead, retry=Retry(world.clock, LOG), log=LOG
        )

    def letters(self) -> list[tuple[int, str, str]]:
        read = [decode_envelope(message.value or b"") for message in self.producer.of("dead")]
        return [(each.offset, each.error, each.reason) for each in read]


def message(number: int, **change: object) -> Delivery:
    said = {"tree": TREE, "id": f"f{number}", "event": "e0", "verdict": "approval", "at": "2026-05-08T13:56:00Z", **change}
    return Delivery(topic="feedback", partition=0, offset=number, key=b"k", value=json.dumps(said).encode())


async def approvals(world: World, event: str = "e0") -> object:
    receipt = (await world.store.receipts(TREE, [EventId(event)]))[EventId(event)]
    return (await world.store.nodes(TREE, receipt.leaves))[receipt.leaves[0]].attributes.get(APPROVALS)


async def test_what_comes_again_is_weighed_once(world: World) -> None:
    parts = Parts(world)
    batch = [message(0), message(1), message(2, event="e1"), message(1)]
    for _ in range(2):
        await parts.opinions.take(batch)
    assert await approvals(world) == 2.0
    assert await approvals(world, "e1") == 1.0
    assert parts.opinions.events == {"accepted": 3, "duplicate": 5}
    assert parts.letters() == []


async def test_what_cannot_be_weighed_is_a_dead_letter_and_the_rest_goes_in(world: World) -> None:
    parts = Parts(world)
    await parts.opinions.take(
        [
            message(0),
            message(1, event="gone"),
            message(2, tree="nowhere"),
            message(3, verdict="well"),
            message(4, at=None),
            Delivery(topic="feedback", partition=0, offset=5, key=b"k", value=b"{", headers=()),
            Delivery(
                topic="feedback", partition=0, offset=6, key=b"k", value=message(6).value, headers=(("banyan-schema", b"turn/1"),)
            ),
            message(7, event="e1"),
        ]
    )
    assert await approvals(world) == await approvals(world, "e1") == 1.0
    assert sorted((offset, error) for offset, error, _ in parts.letters()) == [
        (1, "event"),
        (2, "TreeNotFoundError"),
        (3, "verdict"),
        (4, "at"),
        (5, "record"),
        (6, "banyan-schema"),
    ]
    assert (
        "'gone' is not in the tree; once it is there, `banyan dead-letters replay`"
        in {offset: reason for offset, _, reason in parts.letters()}[1]
    )


class _Away(Weighing):
    failures = 2

    async def take(self, *args: object, **options: object) -> object:  # type: ignore[override]
        if self.failures:
            self.failures -= 1
            raise StoreUnavailableError("away")
        return await super().take(*args, **options)  # type: ignore[arg-type]


async def test_a_store_that_is_away_is_waited_for(world: World) -> None:
    parts = Parts(world, _Away(store=world.store, clock=world.clock))
    await parts.opinions.take([message(0)])
    assert await approvals(world) == 1.0
    assert parts.letters() == []


class _Refused(Weighing):
    """The store lets nobody in any more, or one message meets what nobody thought of."""

    def __init__(self, world: World, error: Exception, wrong: frozenset[str]) -> None:
        super().__init__(store=world.store, clock=world.clock)
        self._error = error
        self._wrong = wrong

    async def take(self, tree: TreeId, given: Sequence[Feedback]) -> list[EventResult]:
        if any(each.id in self._wrong for each in given):
            raise self._error
        return await super().take(tree, given)


async def test_a_password_that_is_refused_ends_the_process_and_gives_nothing_up(world: World) -> None:
    refused = SettingError("Redis refused the user or the password")
    parts = Parts(world, _Refused(world, refused, frozenset({"f1"})))
    with pytest.raises(SettingError):
        await parts.opinions.take([message(0), message(1)])
    assert parts.letters() == []


async def test_what_nobody_thought_of_stops_no_other_message(world: World) -> None:
    parts = Parts(world, _Refused(world, KeyError("a bug"), frozenset({"f1"})))
    await parts.opinions.take([message(0), message(1), message(2)])
    assert await approvals(world) == 2.0
    assert [(offset, error) for offset, error, _ in parts.letters()] == [(1, "KeyError")]


async def test_when_all_that_comes_meets_it_the_process_ends(world: World) -> None:
    ids = [f"f{number}" for number in range(GIVEN_UP_IN_ROW_MAX + 1)]
    parts = Parts(world, _Refused(world, KeyError("a bug"), frozenset(ids)))
    with pytest.raises(CannotGoOnError, match="KeyError"):
        await parts.opinions.take([message(number) for number in range(len(ids))])
    assert parts.letters() == []


async def test_feedback_on_what_is_not_in_ends_no_worker_and_says_nothing_about_its_records(world: World) -> None:
    parts = Parts(world, share=DeadLetterShare(0.5, 20))
    await parts.opinions.take([message(number, event=f"later-{number}") for number in range(40)])
    assert len(parts.letters()) == 40
    assert parts.dead.counts == {"feedback": 40}
    parts.dead.put(message(41), RecordError("text", "is empty"))
    assert await parts.dead.flush() == 1, "one bad record of one: too few to judge"


async def test_what_comes_before_what_it_is_about_waits_for_it_and_nothing_waits_behind_it(world: World) -> None:
    parts = Parts(world, wait=60)
    early = [message(0, event="e2"), message(1, tree="new")]
    later = await parts.opinions.take([early[0], message(2), early[1]])
    assert [each.delivery for each in later] == early
    assert {each.seconds for each in later} == {WAIT_FIRST}
    assert await approvals(world) == 1.0, "what came after it is in"
    assert parts.opinions.events == {"accepted": 1}
    await world.put(turn(2))
    await world.put(turn(0, tree=TreeId("new")))
    assert await parts.opinions.take(early) == []
    assert await approvals(world, "e2") == 1.0
    assert parts.opinions.events == {"accepted": 3}
    assert (parts.letters(), len(parts.early)) == ([], 0)


async def test_what_it_is_about_is_not_waited_for_for_ever(world: World) -> None:
    parts = Parts(world, wait=60)
    waits: list[float] = []
    while later := await parts.opinions.take([message(0, event="never"), message(1, tree="nowhere")]):
        assert len(later) == 2
        waits.append(later[0].seconds)
        await parts.clock.advance(later[0].seconds)
    assert parts.clock.monotonic() == pytest.approx(60)
    assert waits[:5] == [WAIT_FIRST, 1, 2, 4, WAIT_MAX]
    assert [(offset, error) for offset, error, _ in parts.letters()] == [(0, "event"), (1, "TreeNotFoundError")]
    assert all("once it is there, `banyan dead-letters replay` puts this in" in reason for _, _, reason in parts.letters())
    letter = decode_envelope(parts.producer.of("dead")[0].value or b"")
    assert letter.attempts == len(waits) + 1
    assert len(parts.early) == 0


async def test_one_tree_cannot_take_all_the_room_to_wait(world: World) -> None:
    parts = Parts(world, wait=60)
    later = await parts.opinions.take([message(number, event="never") for number in range(WAITING_OF_A_TREE_MAX + 5)])
    assert len(later) == WAITING_OF_A_TREE_MAX
    assert len(parts.letters()) == 5
    assert len(await parts.opinions.take([message(1_000, tree="other")])) == 1
    # Those whose partition is another worker's now never come again.
    await parts.clock.advance(121)
    assert len(await parts.opinions.take([message(2_000, event="never")])) == 1
    assert len(parts.early) == 1


async def test_what_has_gone_or_never_will_be_is_not_waited_for(world: World) -> None:
    parts = Parts(world, wait=60)
    assert await parts.opinions.take([message(0, chunk=7), message(1, verdict="well")]) == []
    assert [(offset, error) for offset, error, _ in parts.letters()] == [(1, "verdict"), (0, "chunk")]
