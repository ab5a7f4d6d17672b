"""What a service says, as a memory in this process would have said it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from memory.errors import (
    NodeNotFoundError,
    PermanentError,
    QueryError,
    SettingError,
    TransientError,
    TreeMismatchError,
    TreeNotFoundError,
)
from memory.model import NodeKind
from memory.ports.index import Scope
from memory.records import Document, Record, Turn, parse_time
from memory.results import EventStatus
from streams.client import AsyncClient
from streams.client.exchange import Patience
from streams.remote import RemoteMemory

Answering = Callable[[httpx.Request], httpx.Response]
EMPTY = {"hits": [], "seq": 3, "strategy": "bm25", "degraded": "words alone"}


def remote(answering: Answering, said: list[str] | None = None) -> RemoteMemory:
    client = AsyncClient("http://service", transport=httpx.MockTransport(answering), patience=Patience(attempts=1))
    return RemoteMemory(client, on_degraded=(said if said is not None else []).append)


def problem(kind: str, status: int) -> Answering:
    body = {"type": f"urn:banyan:problem:{kind}", "status": status, "detail": "what it says"}
    return lambda _: httpx.Response(status, json=body)


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("tree-not-found", 404, TreeNotFoundError),
        ("node-not-found", 404, NodeNotFoundError),
        ("tree-mismatch", 409, TreeMismatchError),
        ("invalid", 422, QueryError),
        ("unauthorized", 401, SettingError),
        ("forbidden", 403, SettingError),
        ("something-new", 418, PermanentError),
        ("not-covered", 412, TransientError),
        ("internal", 500, TransientError),
        ("unavailable", 503, TransientError),
        ("rate", 429, TransientError),
    ],
)
async def test_each_problem_is_the_error_of_a_memory_here(kind: str, status: int, error: type[Exception]) -> None:
    with pytest.raises(error, match="what it says") as caught:
        await remote(problem(kind, status)).search("t", "x")
    assert type(caught.value) is error or error is TransientError


@pytest.mark.parametrize("wanted", [None, True, False])
async def test_whether_a_context_is_filtered_goes_over_only_where_it_is_said(wanted: bool | None) -> None:
    asked: list[Any] = []

    def answering(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        packed = {"text": "x", "tokens": 1, "hits": [], "filtered": True, "note": "", "seq": 3, "degraded": None}
        return httpx.Response(200, json=packed)

    answer = await remote(answering).context("t", "x", tokens=9, context_filter=wanted)
    assert (answer.filtered, answer.note) == (True, "")
    [sent] = asked
    assert sent.get("context_filter", "nothing") == ("nothing" if wanted is None else wanted)


async def test_conditions_go_over_as_they_are_and_what_is_short_is_told() -> None:
    asked: list[Any] = []

    def answering(request: httpx.Request) -> httpx.Response:
        asked.append(json.loads(request.content))
        return httpx.Response(200, json=EMPTY)

    said: list[str] = []
    scope = Scope(
        kinds=frozenset({NodeKind.LEAF}), speaker="Ana", since=parse_time("since", "2026-05-08"), metadata={"mood": "glad"}
    )
    answer = await remote(answering, said).search("t", "x", k=3, scope=scope, group="document")
    assert (answer.hits, answer.seq, answer.strategy) == ((), 3, "bm25")
    assert said == ["words alone"]
    [sent] = asked
    assert sent["filter"] == {"kind": "leaf", "speaker": "Ana", "mood": "glad"}
    assert (sent["since"], sent["k"], sent["group"]) == ("2026-05-08T00:00:00+00:00", 3, "document")
    assert "until" not in sent


async def test_records_say_what_they_are_and_a_commit_not_known_yet_is_none() -> None:
    sent: list[Any] = []

    def answering(request: httpx.Request) -> httpx.Response:
        given = [json.loads(line) for line in request.content.splitlines()]
        sent.append((request.url.path, given))
        lines = [{"line": 1, "id": each["id"], "status": "accepted", "seq": None, "reason": None} for each in given]
        end = {
            "complete": True,
            "lines": len(given),
            "accepted": len(given),
            "duplicate": 0,
            "conflict": 0,
            "rejected": 0,
            "seq": None,
        }
        content = b"".join(json.dumps(line).encode() + b"\n" for line in [*lines, end])
        return httpx.Response(200, content=content, headers={"Content-Type": "application/x-ndjson"})

    at = parse_time("at", "2026-05-08T13:56:00Z")
    records: list[Record] = [
        Turn(tree="a", id="1", text="one", at=at, metadata={"type": "joke"}),
        Document(tree="b", id="2", text="two"),
        Turn(tree="a", id="3", text="three"),
    ]
    results = await remote(answering).ingest(records)
    assert [(result.tree, result.id, result.seq) for result in results] == [("a", "1", 0), ("a", "3", 0), ("b", "2", 0)]
    (path, turns), (_, documents) = sent
    assert path == "/v1/trees/a/records"
    assert turns[0] == {"type": "turn", "id": "1", "text": "one", "at": "2026-05-08T13:56:00Z", "metadata": {"type": "joke"}}
    assert documents == [{"type": "document", "id": "2", "text": "two", "metadata": {}}]


async def test_feedback_goes_over_in_lists_that_the_service_can_answer_completely() -> None:
    sizes: list[int] = []

    def answering(request: httpx.Request) -> httpx.Response:
        given = json.loads(request.content)
        sizes.append(len(given))
        if len(sizes) == 2:
            # As the service says it when it can take none: of at most 100.
            errors = [{"record": at, "id": one["id"], "field": "event", "reason": "is away"} for at, one in enumerate(given)]
            body = {"type": "urn:banyan:problem:rejected", "status": 422, "detail": "event: is away", "errors": errors[:100]}
            return httpx.Response(422, json=body)
        events = [{"id": one["id"], "status": "accepted", "seq": 7, "reason": None} for one in given]
        return httpx.Response(202, json={"events": events, "seq": 7})

    given = [{"id": f"f{number}", "event": "e", "verdict": "approval"} for number in range(250)]
    results = await remote(answering).feedback(given, tree="t")
    assert sizes == [100, 100, 50]
    assert [result.id for result in results] == [each["id"] for each in given]
    refused = [result for result in results if result.status is EventStatus.REJECTED]
    assert refused == results[100:200]
    assert {(result.reason, result.seq) for result in refused} == {("event: is away", 0)}


async def test_an_answer_of_another_shape_is_said_to_be_one() -> None:
    hit = {"kind": "leaf", "id": 7}
    with pytest.raises(PermanentError, match="of this version"):
        await remote(lambda _: httpx.Response(200, json={**EMPTY, "hits": [hit]})).search("t", "x")
    with pytest.raises(PermanentError, match="of this version"):
        await remote(lambda _: httpx.Response(200, json={"tree": "t"})).stats("t")


async def test_who_speaks_and_who_somebody_is_come_over_and_nobody_is_none() -> None:
    said = {"event_id": "e1", "text": "I moved.", "at": None, "weight": 1.0}
    known = {"tree": "t", "speaker": "Ana", "turns": 2, "conversations": 1, "first_at": None, "last_at": "2026-05-08T13:56:00Z"}

    def answering(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/speakers"):
            return httpx.Response(200, json={"speakers": [{"speaker": "Ana", "turns": 2, "last_at": "2026-05-08T13:56:00Z"}]})
        if request.url.params["speaker"] != "Ana":
            return httpx.Response(404, json={"type": "urn:banyan:problem:speaker-not-found", "status": 404, "detail": "nobody"})
        assert request.url.params["facts"] == "5"
        return httpx.Response(200, json={**known, "phrases": ["Porto"], "facts": [said], "seq": 3})

    memory = remote(answering)
    [speaker] = await memory.speakers("t")
    assert (speaker.name, speaker.turns, speaker.last_at) == ("Ana", 2, parse_time("at", "2026-05-08T13:56:00Z"))
    found = await memory.profile("t", "Ana", facts=5)
    assert found is not None
    assert (found.phrases, found.facts[0].text, found.seq) == (("Porto",), "I moved.", 3)
    assert await memory.profile("t", "Ben") is None
