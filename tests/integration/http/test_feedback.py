"""Feedback over HTTP, by both clients, and by the memory behind a service."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from memory.errors import NoWeightsError, TreeNotFoundError
from memory.results import EventStatus
from memory.structures.weights import APPROVALS, APPROVED_AT, REBUTTALS
from streams.client import AsyncClient
from streams.remote import RemoteMemory
from tests.integration.http.served import Served, problem, serving

ABOUT = {"event": "e0", "verdict": "approval"}


@pytest.fixture
async def hmem(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path, structure="hmem") as made:
        await made.put("me", "I moved to Porto", "I play the violin")
        yield made


async def attributes(served: Served, event: str) -> dict[str, object]:
    [leaf] = (await served.get(f"/me/events/{event}")).json()["leaves"]
    found: dict[str, object] = (await served.get(f"/me/nodes/{leaf['id']}")).json()["attributes"]
    return found


async def test_it_counts_once(hmem: Served) -> None:
    said = {**ABOUT, "id": "f1", "at": "2026-05-08T14:02:00Z"}
    answers = [await hmem.post("me/feedback", said) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    assert [answer.json()["events"][0]["status"] for answer in answers] == ["accepted", "duplicate"]
    assert answers[0].json()["seq"] == answers[1].json()["seq"] > 1
    assert await attributes(hmem, "e0") == {APPROVALS: 1.0, APPROVED_AT: 1778248920.0}


async def test_what_it_does_to_a_score_is_explained(hmem: Served) -> None:
    await hmem.post("me/feedback", {**ABOUT, "id": "f1", "at": "2026-05-08"})
    answer = (await hmem.client.get("/v1/trees/me/explain", params={"query": "Porto", "strategy": "descent"})).json()
    weights = {hit["event_id"]: hit["parts"]["weight"] for hit in answer["hits"]}
    assert weights["e0"] > 0 == weights["e1"]
    assert any(line.startswith("weights as of") for line in answer["trace"])


async def test_each_of_a_list_has_its_own_result(hmem: Served) -> None:
    given = [
        {**ABOUT, "id": "f1"},
        {**ABOUT, "id": "f1", "verdict": "rebuttal"},
        {**ABOUT, "id": "f2", "event": "gone"},
        {"id": "f3"},
    ]
    answer = await hmem.post("me/feedback", given)
    assert answer.status_code == 202
    events = answer.json()["events"]
    assert [event["status"] for event in events] == ["accepted", "conflict", "rejected", "rejected"]
    assert events[2]["reason"] == "event: 'gone' is not in the tree"
    assert events[3]["reason"] == "event: is missing"


async def test_where_nothing_can_be_taken_the_answer_is_a_problem(hmem: Served) -> None:
    for given in ({**ABOUT, "id": "f1", "event": "gone"}, {"id": "f1", "event": "e0", "verdict": "well"}):
        answer = await hmem.post("me/feedback", [given])
        assert (answer.status_code, problem(answer)) == (422, "rejected")
        [error] = answer.json()["errors"]
        assert (error["record"], error["id"]) == (0, "f1")
        assert error["field"] in ("event", "verdict")
    assert problem(await hmem.post("nobody/feedback", {**ABOUT, "id": "f1"})) == "tree-not-found"
    assert problem(await hmem.post("me/feedback", [])) == "invalid"


async def test_a_tree_without_weights_says_so(served: Served) -> None:
    await served.put("me", "I moved to Porto")
    answer = await served.post("me/feedback", {**ABOUT, "id": "f1"})
    assert (answer.status_code, problem(answer)) == (409, "no-weights")
    assert answer.json()["detail"] == "tree 'me' is a memtree tree, which keeps no weights; feedback is taken by hmem trees"


async def test_the_client_and_the_memory_behind_the_service(hmem: Served, served: Served) -> None:
    async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app=hmem.app)) as banyan:
        results = await banyan.feedback("me", [{**ABOUT, "id": "f1", "chunk": None}, {**ABOUT, "id": "f2", "event": "e1"}])
        assert [each["status"] for each in results] == ["accepted", "accepted"]
        behind = RemoteMemory(banyan)
        [found] = await behind.feedback([{**ABOUT, "id": "f3", "verdict": "rebuttal"}], tree="me")
        assert found.status is EventStatus.ACCEPTED
        [found] = await behind.feedback([{**ABOUT, "id": "f4", "event": "gone"}], tree="me")
        assert (found.status, found.reason) == (EventStatus.REJECTED, "event: 'gone' is not in the tree")
        with pytest.raises(TreeNotFoundError):
            await behind.feedback([{**ABOUT, "id": "f5"}], tree="nobody")
    assert (await attributes(hmem, "e0"))[REBUTTALS] == 1.0
    await served.put("other", "I moved to Porto")
    async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app=served.app)) as banyan:
        with pytest.raises(NoWeightsError):
            await RemoteMemory(banyan).feedback([{**ABOUT, "id": "f1"}], tree="other")


async def test_profiles(served: Served) -> None:
    said = [{"id": f"e{place}", "speaker": "Ana/B", "text": text} for place, text in enumerate(("I live in Porto.", "Yes!"))]
    assert (await served.post("me/turns", said)).status_code == 202
    assert (await served.get("/me/speakers")).json() == {"speakers": [{"speaker": "Ana/B", "turns": 2, "last_at": None}]}
    async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app=served.app)) as banyan:
        found = await banyan.profile("me", "Ana/B", facts=3)
    assert [fact["text"] for fact in found["facts"]] == ["I live in Porto."]
    answer = await served.get("/me/profile?speaker=Carl")
    assert (answer.status_code, problem(answer)) == (404, "speaker-not-found")
