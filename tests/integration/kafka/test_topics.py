"""`banyan topics` and `banyan produce` against a real broker."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from memory.records import Document, Turn
from streams.broker import Broker, BrokerRefusedError, open_admin
from streams.events import decode
from streams.settings import Settings
from streams.topics import create, describe, topics
from tests.integration.kafka.workers import Workers, read

pytestmark = pytest.mark.slow


async def test_create_is_idempotent_grows_and_never_shrinks(settings: Settings) -> None:
    wanted = topics(settings.kafka).all
    admin = await open_admin(Broker.of(settings))
    try:
        for partitions, before, after in ((2, 0, 2), (2, 2, 2), (5, 2, 5), (3, 5, 5)):
            asked = replace(settings.kafka, partitions=partitions)
            done = await create(admin, wanted, asked, settings.broker)
            assert {(each.before, each.partitions) for each in done} == {(before, after)}
            states = await describe(admin, wanted, asked, settings.broker)
            assert {state.partitions for state in states} == {after}
            assert all(("partitions" in " ".join(state.differences)) == (partitions != after) for state in states)
        assert {state.name: state.config["cleanup.policy"] for state in states}[wanted[2].name] == "compact,delete"
        other = replace(settings.kafka, prefix=f"{settings.kafka.prefix}-2", replication=3)
        with pytest.raises(BrokerRefusedError):
            await create(admin, topics(other).all, other, settings.broker)
    finally:
        await admin.close()


async def test_the_commands(settings: Settings, workers: Workers) -> None:
    missing = workers("topics", "describe", "--json")
    missing.ends(1)
    assert "7 of 7 topics are missing; `banyan topics create` makes them" in missing.log.read_text()
    made = workers("topics", "create", "--partitions", "3", "--json")
    made.ends()
    rows = [json.loads(line) for line in made.log.read_text().splitlines()]
    assert [row["topic"].removeprefix(f"{settings.kafka.prefix}.") for row in rows] == [
        "turns",
        "documents",
        "summaries",
        "forgets",
        "feedback",
        "commits",
        "dead-letters",
    ]
    assert {row["partitions"] for row in rows} == {3}
    workers("topics", "describe").ends()


async def test_produce_keeps_a_conversation_in_one_partition_and_reports_what_is_refused(
    installed: Settings, workers: Workers, tmp_path: Path
) -> None:
    lines: list[object] = [
        {"tree": "t", "id": f"e{number}", "conversation": f"c{number % 3}", "text": f"turn {number}", "mood": "good"}
        for number in range(30)
    ]
    lines += [{"tree": "t", "id": f"d{number}", "title": "T", "source": "news", "text": "a document"} for number in range(5)]
    lines += [{"type": "document", "tree": "t", "id": "bare", "text": "a document without a title"}, {"tree": "t", "text": "no id"}]
    (tmp_path / "in.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    produced = workers("produce", "in.jsonl", "--json")
    produced.ends(3)
    said = produced.log.read_text()
    assert "in.jsonl:37: id: is missing" in said
    names = topics(installed.kafka)
    assert json.loads(said.splitlines()[-1]) == {
        "sent": 36,
        "rejected": 1,
        "topics": {names.turns.name: 30, names.documents.name: 6},
        "interrupted": False,
        "after": None,
    }
    messages = await read(installed, names.turns.name)
    records = [decode(message.value) for message in messages]
    assert {record.id for record in records} == {f"e{number}" for number in range(30)}
    assert all(isinstance(record, Turn) and record.metadata == {"mood": "good"} for record in records)
    by_key: dict[bytes, list[tuple[int, str]]] = {}
    for message, record in zip(messages, records, strict=True):
        by_key.setdefault(message.key, []).append((message.partition, record.id))
    assert set(by_key) == {b"t/c0", b"t/c1", b"t/c2"}
    for key, found in by_key.items():
        assert len({partition for partition, _ in found}) == 1
        assert [each for _, each in found] == [f"e{number}" for number in range(int(key[-1:]), 30, 3)]
    documents = await read(installed, names.documents.name)
    assert {message.key for message in documents} == {b"t/news", b"t/bare"}
    assert all(isinstance(decode(message.value), Document) for message in documents)
    assert dict(documents[0].headers) == {"banyan-schema": b"document/1"}


async def test_produce_says_which_command_makes_the_topics(settings: Settings, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"tree":"t","id":"1","text":"a"}')
    produced = workers("produce", "in.jsonl")
    produced.ends(4)
    assert f"no topic {settings.kafka.prefix}.documents" in produced.log.read_text()
    assert "`banyan topics create` makes them" in produced.log.read_text()


async def test_an_address_where_nobody_is(workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"tree":"t","id":"1","text":"a"}')
    produced = workers("produce", "in.jsonl", BANYAN_BROKER="127.0.0.1:1")
    produced.ends(4)
    assert "error: Kafka at 127.0.0.1:1 cannot be reached" in produced.log.read_text()
