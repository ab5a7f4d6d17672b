"""Forgetting over HTTP, by both clients, and by the memory behind a service; where records go to Kafka it is asked for there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from memory.errors import QueryError, TreeNotFoundError
from streams.broker import Broker
from streams.client import AsyncClient, Client
from streams.events import decode_forget
from streams.query.keys import KeyFile, Right
from streams.query.writing import KafkaWriter
from streams.remote import RemoteMemory
from streams.setting_tables import KafkaSettings
from streams.topics import TopicsMissingError, topics
from tests.fakes.producer import FakeProducer
from tests.integration.http.served import Served, listening, problem, serving

WORD = "zanzibar"
TEXTS = ("the harbour tunnel", f"the {WORD} papers", "the harbour office", "the winter garden")
NAMES = topics(KafkaSettings())


async def delete(served: Served, path: str, **headers: str) -> httpx.Response:
    return await served.client.delete(f"/v1/trees/{path}", headers=headers)


async def test_an_event_is_gone_when_it_is_answered(served: Served) -> None:
    await served.put("me", *TEXTS)
    await served.memory.fresh("me")
    answer = await delete(served, "me/events/e1")
    assert answer.status_code == 200, answer.text
    said = answer.json()
    assert {name: said[name] for name in ("tree", "forgotten", "unknown", "already", "leaves")} == {
        "tree": "me",
        "forgotten": 1,
        "unknown": 0,
        "already": 0,
        "leaves": 1,
    }
    assert "e1" not in await served.hits("me", WORD, min_seq=said["seq"])
    for strategy in ("hybrid", "bm25", "collapsed"):
        asked = await served.post("me/search", {"query": WORD, "strategy": strategy})
        assert WORD not in json.dumps(asked.json()["hits"])
    seen = await served.get("/me/tree?depth=3")
    assert (seen.status_code, WORD in seen.text) == (200, False)
    gone = await served.get("/me/events/e1")
    assert (gone.status_code, problem(gone)) == (404, "event-not-found")
    assert problem(await served.get("/me/events/e1/route")) == "event-not-found"
    for seq in range(said["seq"] + 1):
        past = await served.get(f"/me/as-of/{seq}")
        assert (past.status_code, WORD in past.text) == (200, False)
    [commit] = [each for each in (await served.get("/me/commits")).json()["commits"] if each["forgotten"]]
    assert (commit["forgotten"], bool(commit["removed"])) == (["e1"], True)
    # What they were compared with is gone from the log; of what comes now it is there.
    before = await served.get("/me/events/e0/route")
    assert (before.status_code, "was forgotten" in before.text, WORD in before.text) == (422, True, False)
    await served.put("me", "What comes after it is placed by what is left.", first=len(TEXTS))
    assert (await served.get(f"/me/events/e{len(TEXTS)}/route")).status_code == 200
    again = await served.post("me/turns", {"id": "e1", "text": TEXTS[1]})
    assert (again.status_code, again.json()["events"][0]["status"]) == (202, "forgotten")
    assert (await delete(served, "me/events/e1")).json()["already"] == 1


async def test_several_a_conversation_and_a_past(served: Served) -> None:
    said = [
        {"id": f"e{number}", "text": text, "conversation": f"c{number % 2}", "at": f"2026-05-0{number + 1}"}
        for number, text in enumerate(TEXTS)
    ]
    await served.post("me/turns", said)
    assert (await served.post("me/forget", {"events": ["e0", "later", "e0"]})).json().items() >= {
        "forgotten": 1,
        "unknown": 1,
        "leaves": 1,
    }.items()
    assert (await served.post("me/forget", {"conversation": "c1"})).json()["forgotten"] == 2
    assert await served.hits("me", "harbour", filter={"kind": "leaf"}) == ["e2"]
    assert (await served.post("me/forget", {"before": "2026-05-03"})).json()["forgotten"] == 0
    assert (await served.post("me/forget", {"before": "2026-05-03T00:00:01+00:00"})).json()["forgotten"] == 1
    lines = b"".join(
        json.dumps(each).encode() + b"\n" for each in [*said, {"id": "later", "text": "x"}, {"id": "new", "text": "y"}]
    )
    answer = await served.client.post("/v1/trees/me/records", content=lines, headers={"Content-Type": "application/x-ndjson"})
    last = json.loads(answer.content.splitlines()[-1])
    assert (last["accepted"], last["forgotten"]) == (1, 5)
    assert (await served.memory.check("me")).clean


async def test_ids_with_slashes_are_ids(served: Served) -> None:
    await served.post("me/turns", [{"id": "a/route", "text": "x"}, {"id": "a", "text": "y"}])
    assert (await delete(served, "me/events/a/route")).json()["forgotten"] == 1
    assert (await served.get("/me/events/a")).status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"events": []},
        {"events": ["a"], "conversation": "c"},
        {"events": [""]},
        {"events": ["a\u0000"]},
        {"events": "a"},
        {"before": "soon"},
        {"conversation": ""},
        {"event": "a"},
        [],
    ],
)
async def test_what_cannot_be_forgotten_is_said(served: Served, given: object) -> None:
    await served.put("me", *TEXTS)
    answer = await served.post("me/forget", given)
    assert (answer.status_code, problem(answer)) == (422, "invalid")
    assert (await served.memory.stats("me")).events == len(TEXTS)


async def test_no_tree(served: Served) -> None:
    assert problem(await delete(served, "nobody/events/e1")) == "tree-not-found"
    assert problem(await served.post("nobody/forget", {"conversation": "c"})) == "tree-not-found"
    assert [info.id for info in await served.memory.trees()] == []


async def test_it_needs_a_key_that_may_write_to_the_tree(tmp_path: Path) -> None:
    async with serving(tmp_path, auth="keys") as served:
        file, now = KeyFile(tmp_path / "keys.json"), datetime.now(UTC)
        reader, writer = (
            {"Authorization": f"Bearer {file.create('k', rights=[right], prefixes=['user-'], now=now)[1]}"}
            for right in (Right.READ, Right.WRITE)
        )
        await served.memory.ingest([{"tree": tree, "id": "e1", "text": "x"} for tree in ("user-1", "other")])
        assert problem(await delete(served, "user-1/events/e1")) == "unauthorized"
        assert problem(await delete(served, "user-1/events/e1", **reader)) == "forbidden"
        assert problem(await delete(served, "other/events/e1", **writer)) == "tree-not-found"
        assert problem(await served.post("other/forget", {"events": ["e1"]}, **writer)) == "tree-not-found"
        assert (await delete(served, "user-1/events/e1", **writer)).json()["forgotten"] == 1
        assert (await served.memory.stats("other")).events == 1


async def test_the_clients_and_the_memory_behind_the_service(served: Served) -> None:
    await served.put("me", *TEXTS)
    async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app=served.app)) as banyan:
        behind = RemoteMemory(banyan)
        report = await behind.forget("me", events=["e0", "e1", *(f"never-{number}" for number in range(150))])
        assert report is not None
        assert (report.tree, report.forgotten, report.unknown, report.leaves) == ("me", 2, 150, 2)
        past = await behind.forget("me", before=datetime(2026, 1, 1, tzinfo=UTC))
        assert past is not None
        assert past.forgotten == 0
        with pytest.raises(TreeNotFoundError):
            await behind.forget("nobody", conversation="c")
        with pytest.raises(QueryError):
            await behind.forget("me", events=["a\u0000"])
        with pytest.raises(ValueError, match="exactly one"):
            await banyan.forget("me", events=["a"], conversation="c")
    async with listening(served) as port:

        def plainly() -> Sequence[object]:
            with Client(f"http://localhost:{port}") as banyan:
                return banyan.forget("me", events=["e2"])

        [answer] = await asyncio.to_thread(plainly)
    assert answer["forgotten"] == 1  # type: ignore[index]
    assert await served.hits("me", "harbour") == ["e3"]


async def test_where_records_go_to_kafka_the_topic_has_it_when_it_is_answered(tmp_path: Path) -> None:
    producer = FakeProducer()
    missing = [NAMES.forgets.name]

    class Started(FakeProducer):
        async def start(self) -> FakeProducer:  # type: ignore[override]
            return producer

    async def demand(_broker: Broker, names: Sequence[str]) -> None:
        if set(names) & set(missing):
            raise TopicsMissingError("no such topic")

    writer = KafkaWriter(Broker("nowhere:0"), NAMES, limit=5.0, make=lambda _: Started(), demand=demand)
    writer._away = None
    async with serving(tmp_path, writer=writer) as served:
        refused = await delete(served, "me/events/e1")
        assert (refused.status_code, problem(refused)) == (503, "unavailable")
        missing.clear()
        answer = await delete(served, "me/events/e1")
        assert answer.status_code == 202, answer.text
        assert answer.json()["tree"] == "me"
        async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app=served.app)) as banyan:
            assert await RemoteMemory(banyan).forget("me", events=["a", "b"]) is None
            assert await RemoteMemory(banyan).forget("me", conversation="c") is None
    forgets = [decode_forget(message.value or b"") for message in producer.of(NAMES.forgets.name)]
    assert [(each.tree, each.event, each.conversation) for each in forgets] == [
        ("me", "e1", None),
        ("me", "a", None),
        ("me", "b", None),
        ("me", None, "c"),
    ]
    assert [each.id for each in forgets][:1] == answer.json()["forgets"]
    assert {message.key for message in producer.sent} == {b"me"}
