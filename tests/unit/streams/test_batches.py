"""A batch of messages into the trees: what goes in, what is given up, what is waited for, what is sent before it is done."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import structlog

from memory.errors import BanyanError, SettingError, StoreDamagedError
from memory.model import EventId, NodeId, TreeId
from memory.ports.embedder import Embedder
from memory.results import EventResult
from memory.service.ingest import Ingest, Prepared
from memory.settings import IngestSettings
from streams.agents.batches import GIVEN_UP_IN_ROW_MAX, Batches, CannotGoOnError
from streams.broker import BrokerUnavailableError
from streams.commit_topic import CommitMessage, CommitTopic
from streams.dead_letters import DeadLetters, DeadLetterShare, Envelope, TooManyDeadLettersError, decode_envelope
from streams.deliveries import Delivery
from streams.job_topic import JobTopic, decode_job
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.fakes.producer import FakeProducer
from tests.fakes.virtual_time import run_virtually
from tests.fakes.world import World

LIMITS = replace(IngestSettings(), batch_items=8, embedder_patience=timedelta(0))


class Poisoned(FakeEmbedder):
    """Has no vector for some texts."""

    async def embed(self, texts: Any, **kwargs: Any) -> Any:
        vectors = await super().embed(texts, **kwargs)
        for row, text in enumerate(texts):
            if "poison" in text:
                vectors[row] = float("nan")
        return vectors


class Parts:
    """The handler over a real store, and everything around it."""

    def __init__(self, folder: Path, *, embedder: Embedder | None = None, producer: FakeProducer | None = None) -> None:
        self.world = World(folder / "store.db", embedder=embedder)
        self.producer = producer or FakeProducer()
        self.jobs = JobTopic(self.producer, "jobs")
        self.dead = DeadLetters(self.producer, "dead", self.world.clock)
        self.ingest = Ingest(
            store=self.world.store,
            leases=self.world.leases,
            jobs=self.jobs,
            embedder=self.world.embedder,
            clock=self.world.clock,
            views=self.world.views,
            settings=LIMITS,
        )
        self.batches = self.over(self.ingest)

    def over(self, ingest: Ingest, commits: CommitTopic | None = None) -> Batches:
        return Batches(
            ingest=ingest,
            store=self.world.store,
            jobs=self.jobs,
            dead=self.dead,
            clock=self.world.clock,
            limits=LIMITS,
            log=structlog.stdlib.get_logger("test"),
            commits=commits,
        )

    def said(self) -> list[CommitMessage]:
        return [msgspec.json.decode(message.value or b"", type=CommitMessage) for message in self.producer.of("commits")]

    def letters(self) -> list[Envelope]:
        return [decode_envelope(message.value or b"") for message in self.producer.of("dead")]

    def job_nodes(self) -> list[str]:
        return [decode_job(message.value).node for message in self.producer.of("jobs")]


@pytest.fixture
async def parts(tmp_path: Path) -> AsyncIterator[Parts]:
    made = Parts(tmp_path)
    yield made
    await made.world.close()


def message(number: int, text: str | None = None, *, tree: str = "t", event: str | None = None) -> Delivery:
    record = {"tree": tree, "id": event or f"e{number}", "text": text or f"topic{number % 3} words about subject{number % 3}"}
    return raw(number, json.dumps(record).encode())


def raw(number: int, value: bytes | None) -> Delivery:
    return Delivery(topic="turns", partition=0, offset=number, key=b"k", value=value)


async def leaves(parts: Parts, tree: str = "t") -> int:
    return (await parts.world.store.stats(TreeId(tree))).leaves


async def test_several_trees_are_embedded_in_one_call(parts: Parts) -> None:
    await parts.batches.take([message(number, tree=f"t{number % 5}") for number in range(20)])
    assert isinstance(parts.world.embedder, FakeEmbedder)
    assert [len(call) for call in parts.world.embedder.calls] == [20]
    assert [await leaves(parts, f"t{number}") for number in range(5)] == [4] * 5


async def test_each_dirty_node_is_one_job_whatever_number_of_commits_touched_it(parts: Parts) -> None:
    await parts.batches.take([message(number) for number in range(30)])
    nodes = parts.job_nodes()
    assert len(nodes) == len(set(nodes))
    assert set(nodes) == {dirty.node for dirty in await parts.world.store.dirty(TreeId("t"))}
    assert parts.producer.of("jobs")[0].key == f"t/{nodes[0]}".encode()


async def test_what_comes_again_is_not_applied_again_and_its_dirty_ancestors_are_sent_again(parts: Parts) -> None:
    batch = [message(number) for number in range(12)]
    await parts.batches.take(batch)
    jobs = set(parts.job_nodes())
    parts.producer.sent.clear()
    await parts.batches.take(batch)
    assert await leaves(parts) == 12
    assert set(parts.job_nodes()) == jobs
    await parts.world.drain(TreeId("t"))
    parts.producer.sent.clear()
    await parts.batches.take(batch)
    assert parts.job_nodes() == []


async def test_what_was_committed_is_said_once_and_again_when_its_records_come_again(parts: Parts) -> None:
    parts.batches = parts.over(parts.ingest, commits=CommitTopic(parts.producer, "commits"))
    messages = [message(number, tree=f"t{number % 2}") for number in range(20)]
    await parts.batches.take(messages)
    said = parts.said()
    assert {(one.tree, event) for one in said for event in one.events} == {(f"t{n % 2}", f"e{n}") for n in range(20)}
    assert [one.seq for one in said if one.tree == "t0"] == [1, 2], "in order"
    assert {each.key for each in parts.producer.of("commits")} == {b"t0", b"t1"}
    for one in said:
        [entry] = await parts.world.store.changes(TreeId(one.tree), one.seq - 1, limit=1)
        assert (one.at, tuple(one.events)) == (entry.at, entry.events)
        assert one.leaves == len(one.events)
    assert sum(one.summaries for one in said) == sum(
        [(await parts.world.store.stats(TreeId(tree))).summaries for tree in ("t0", "t1")]
    )
    parts.producer.sent.clear()
    await parts.batches.take([*messages[:3], message(99, tree="t0")])
    assert {(one.tree, one.seq) for one in parts.said()} == {("t0", 1), ("t1", 1), ("t0", 3)}
    assert all(one in said for one in parts.said() if one.seq < 3)


async def test_what_comes_again_to_a_repair_is_not_said_again(parts: Parts) -> None:
    parts.batches = parts.over(parts.ingest, commits=CommitTopic(parts.producer, "commits", repeats=False))
    for _ in range(2):
        await parts.batches.take([message(number) for number in range(3)])
    assert [one.seq for one in parts.said()] == [1]


async def test_what_is_no_record_is_given_up_with_its_bytes_and_the_rest_goes_in(parts: Parts) -> None:
    await parts.batches.take([raw(0, b"\xff"), message(1), raw(2, None), message(3, " "), message(4)])
    assert await leaves(parts) == 2
    assert [(letter.offset, letter.error, letter.attempts) for letter in parts.letters()] == [
        (0, "record", 1),
        (2, "record", 1),
        (3, "text", 1),
    ]
    assert parts.letters()[0].delivery.value == b"\xff"


async def test_an_id_that_comes_twice_with_another_text_is_a_conflict_of_the_second(parts: Parts) -> None:
    await parts.batches.take([message(1, "the first", event="x"), message(2), message(3, "the second", event="x")])
    found = await parts.world.store.receipts(TreeId("t"), [EventId("x")])
    [leaf] = found[EventId("x")].leaves
    assert (await parts.world.store.nodes(TreeId("t"), [leaf]))[leaf].text == "the first"
    assert await leaves(parts) == 2


async def test_a_record_that_the_model_has_no_vector_for_is_found_and_given_up_alone(tmp_path: Path) -> None:
    parts = Parts(tmp_path, embedder=Poisoned())
    await parts.batches.take([message(number, "poison" if number in (3, 11) else None) for number in range(16)])
    assert await leaves(parts) == 14
    assert sorted((letter.offset, letter.error) for letter in parts.letters()) == [
        (3, "EmbedderAnswerError"),
        (11, "EmbedderAnswerError"),
    ]
    await parts.world.close()


async def test_a_model_that_never_answers_well_ends_the_process_instead_of_giving_everything_up(tmp_path: Path) -> None:
    parts = Parts(tmp_path, embedder=Poisoned())
    with pytest.raises(CannotGoOnError, match="valid records in a row"):
        await parts.batches.take([message(number, f"poison {number}") for number in range(GIVEN_UP_IN_ROW_MAX * 3)])
    assert parts.letters() == []
    await parts.world.close()


def test_a_model_that_is_away_is_waited_for(tmp_path: Path) -> None:
    async def main() -> None:
        embedder = FakeEmbedder(faults=[EmbedderFault.BUSY] * 200)
        parts = Parts(tmp_path, embedder=embedder)
        await parts.batches.take([message(number) for number in range(5)])
        assert await leaves(parts) == 5
        assert parts.world.clock.monotonic() > 600
        await parts.world.close()

    run_virtually(main())


def test_it_is_not_done_before_its_jobs_and_letters_are_sent(tmp_path: Path) -> None:
    async def main() -> None:
        parts = Parts(tmp_path, producer=FakeProducer(failures=1_000_000))
        committed: list[int] = []
        batch = [*(message(number) for number in range(9)), raw(9, b"bad")]
        taking = asyncio.ensure_future(parts.batches.take(batch, committed=lambda: committed.append(len(parts.producer.sent))))
        await parts.world.clock.sleep(3_600)
        assert committed == [0]
        assert await leaves(parts) == 9
        assert not taking.done()
        parts.producer.failures = 0
        await taking
        assert len(parts.job_nodes()) == len(await parts.world.store.dirty(TreeId("t"))) > 0
        assert len(parts.letters()) == 1
        await parts.world.close()

    run_virtually(main())


async def test_a_job_that_could_not_be_sent_and_one_put_since_stand_for_the_later_commit_or_for_whatever_waits() -> None:
    producer = FakeProducer(failures=1)
    jobs = JobTopic(producer, "jobs")
    tree = TreeId("t")
    await jobs.put(tree, [NodeId("again")])  # of a record that came again: which commit it is about is not known
    await jobs.put(tree, [NodeId("early")], seq=5)
    with pytest.raises(BrokerUnavailableError):
        await jobs.flush()
    await jobs.put(tree, [NodeId("again"), NodeId("early")], seq=7)
    await jobs.flush()
    sent = {job.node: job.seq for job in (decode_job(message.value) for message in producer.of("jobs"))}
    assert sent == {"again": 0, "early": 7}


async def test_a_tree_of_another_model_gives_its_records_up_and_the_others_go_in(tmp_path: Path) -> None:
    before = Parts(tmp_path, embedder=FakeEmbedder(name="fake:other"))
    await before.batches.take([message(0, tree="old")])
    await before.world.close()
    parts = Parts(tmp_path)
    await parts.batches.take([message(1, tree="old"), message(2, tree="new")])
    assert [letter.error for letter in parts.letters()] == ["TreeMismatchError"]
    assert await leaves(parts, "new") == 1
    await parts.world.close()


class Failing(Ingest):
    """Cannot commit one record; or finds the store damaged."""

    def of(self, parts: Parts, error: Exception) -> Failing:
        self.__dict__.update(parts.ingest.__dict__)
        self.error = error
        return self

    async def commit(self, prepared: Prepared, records: Any) -> list[EventResult]:
        if any(record.id == "e5" for record in records):
            raise self.error
        return await super().commit(prepared, records)


async def test_a_record_that_breaks_the_commit_is_given_up_alone(parts: Parts) -> None:
    batches = parts.over(Failing.__new__(Failing).of(parts, RuntimeError("a bug")))
    await batches.take([message(number) for number in range(20)])
    assert await leaves(parts) == 19
    assert [(letter.offset, letter.error, letter.reason) for letter in parts.letters()] == [
        (5, "RuntimeError", "RuntimeError: a bug")
    ]


@pytest.mark.parametrize("error", [StoreDamagedError("torn"), SettingError("Redis refused the user or the password")])
async def test_what_every_record_would_meet_ends_the_process(parts: Parts, error: BanyanError) -> None:
    batches = parts.over(Failing.__new__(Failing).of(parts, error))
    with pytest.raises(type(error)):
        await batches.take([message(number) for number in range(20)])
    assert parts.letters() == []


class Refused(FakeEmbedder):
    """Has had its key taken away."""

    async def embed(self, texts: Any, **kwargs: Any) -> Any:  # noqa: ARG002
        raise SettingError("the model answered 401, the key was refused")


async def test_a_key_that_is_refused_ends_the_process_and_gives_no_record_up(tmp_path: Path) -> None:
    parts = Parts(tmp_path, embedder=Refused())
    with pytest.raises(SettingError, match="401"):
        await parts.batches.take([message(number) for number in range(20)])
    assert parts.letters() == []
    await parts.world.close()


def test_an_envelope_keeps_what_came() -> None:
    letter = Envelope(
        topic="turns",
        partition=3,
        offset=7,
        timestamp=1.5,
        key=None,
        raw="/w==",
        headers=[("trace", "AQI=")],
        error="text",
        reason="is empty",
        attempts=1,
        at="2026-01-01T00:00:00+00:00",
    )
    again = decode_envelope(msgspec.json.encode(letter))
    assert again.delivery == Delivery(
        topic="turns", partition=3, offset=7, key=None, value=b"\xff", headers=(("trace", b"\x01\x02"),), timestamp=1.5
    )


async def test_a_form_that_is_not_known_is_given_up_unread_and_a_known_one_goes_in(parts: Parts) -> None:
    newer, known = (
        replace(message(number), headers=(("banyan-schema", form),)) for number, form in ((0, b"turn/2"), (1, b"turn/1"))
    )
    await parts.batches.take([newer, known, message(2)])
    (letter,) = parts.letters()
    assert (letter.error, letter.delivery) == ("banyan-schema", newer)
    assert await leaves(parts) == 2


async def test_a_batch_that_would_mostly_be_given_up_is_neither_given_up_nor_done(parts: Parts) -> None:
    parts.dead.share = DeadLetterShare(0.5, 20)
    with pytest.raises(TooManyDeadLettersError, match="'record'"):
        await parts.batches.take([*(raw(number, b"no json") for number in range(10)), message(11), message(12)])
    assert parts.letters() == []
