"""Questions over HTTP, and looks at trees."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from pathlib import Path

import httpx
import pytest

from memory.model import NodeId
from streams.query import shapes
from streams.query.service import DEGRADED
from tests.fakes.context_filter import FakeContextFilter
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.integration.http.served import Served, ids, problem, serving

TALK = [f"{who} speaks about the {what} again" for what in ("harbour tunnel", "cello", "marathon") for who in ("Ana", "Ben", "Mei")]


async def test_filters_are_applied_in_the_index(served: Served) -> None:
    turns = [
        {"id": "a", "text": "tunnel", "speaker": "Ana", "at": "2026-01-05", "room": 4, "done": True},
        {"id": "b", "text": "tunnel", "speaker": "Ben", "at": "2026-02-05", "room": 5, "done": False},
    ]
    await served.post("me/turns", turns)
    assert await served.hits("me", "tunnel", filter={"speaker": "Ben"}) == ["b"]
    assert await served.hits("me", "tunnel", filter={"room": 4, "done": True}) == ["a"]
    assert await served.hits("me", "tunnel", since="2026-02-01") == ["b"]
    assert await served.hits("me", "tunnel", until="2026-02-01", filter={"kind": "leaf"}) == ["a"]
    assert await served.hits("me", "tunnel", filter={"undeclared": "x"}) == []


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"k": 0}, "k"),
        ({"k": -1}, "k"),
        ({"k": 1_000_000}, "k"),
        ({"k": "10"}, "k"),
        ({"k": True}, "k"),
        ({"k": 1_001}, "k"),
        ({"query": ""}, "query"),
        ({"query": " \n"}, "query"),
        ({"query": "x" * 100_000}, "query"),
        ({"query": 4}, "query"),
        ({"strategy": "best"}, "strategy"),
        ({"strategy": "agent"}, "strategy"),
        ({"filter": {"kind": "root"}}, "filter.kind"),
        ({"filter": {"a": {"b": 1}}}, "filter.a"),
        ({"strategy": "traversal", "filter": {"speaker": "Ana"}}, "filter"),
        ({"filter": {"a": "\ud800"}}, "filter.a"),
        ({"since": "yesterday"}, "since"),
        ({"wait_seconds": 31}, "wait_seconds"),
        ({"quer": "a slip"}, "quer"),
        ({"query": "\ud800"}, "query"),
    ],
    ids=str,
)
async def test_what_cannot_be_asked_is_named(served: Served, wrong: dict[str, object], field: str) -> None:
    await served.put("me", "hello")
    body = json.dumps({"query": "hello", **wrong})
    answer = await served.client.post("/v1/trees/me/search", content=body, headers={"content-type": "application/json"})
    assert (answer.status_code, problem(answer)) == (422, "invalid")
    found = answer.json()
    assert [each["field"] for each in found["errors"]] == [field]
    assert all(each["reason"] for each in found["errors"])
    assert not re.search(r"function-|\bstr\b|\bint\b|input should|dictionary", answer.text)


async def test_a_question_can_wait_for_an_event_of_a_tree_that_is_not_there_yet(served: Served) -> None:
    asked = asyncio.create_task(served.post("me/search", {"query": "tunnel", "wait_for": "late", "wait_seconds": 30}))
    await asyncio.sleep(0.05)
    assert not asked.done()
    await served.post("me/turns", {"id": "late", "text": "the tunnel opens"})
    assert [hit["event_id"] for hit in (await asked).json()["hits"]] == ["late"]


async def test_what_does_not_come_in_time_is_said(served: Served) -> None:
    await served.put("me", "hello")
    for wanted in ({"wait_for": "never"}, {"min_seq": 99}):
        answer = await served.post("me/search", {"query": "hello", "wait_seconds": 0.05, **wanted})
        assert (answer.status_code, problem(answer)) == (412, "not-covered")


async def test_no_read_makes_a_tree(served: Served) -> None:
    for path in ("", "/nodes/root", "/events/e1", "/events/e1/route", "/as-of/0", "/commits", "/commits/stream", "/tree"):
        answer = await served.get(f"/nobody{path}")
        assert (answer.status_code, problem(answer)) == (404, "tree-not-found"), path
    for path, asked in (("search", {"query": "x"}), ("context", {"query": "x", "tokens": 9})):
        assert problem(await served.post(f"nobody/{path}", asked)) == "tree-not-found"
    assert problem(await served.get("/nobody/explain?query=x")) == "tree-not-found"
    assert await served.memory.trees() == []


async def test_while_the_model_is_away_words_alone_answer_and_say_so(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with serving(tmp_path, embedder=embedder) as served:
        await served.put("me", "the tunnel opens", "a cello")
        embedder.faults.extend([EmbedderFault.BUSY] * 50)
        answer = (await served.post("me/search", {"query": "tunnel"})).json()
        assert [hit["event_id"] for hit in answer["hits"]] == ["e0"]
        assert (answer["strategy"], answer["degraded"]) == ("bm25", DEGRADED)
        packed = (await served.post("me/context", {"query": "tunnel", "tokens": 50})).json()
        assert ("tunnel" in packed["text"], packed["degraded"]) == (True, DEGRADED)
        explained = (await served.get("/me/explain?query=tunnel")).json()
        assert (explained["route"], explained["degraded"]) == ([], DEGRADED)
        # There is no other way to walk a tree.
        walked = await served.post("me/search", {"query": "tunnel", "strategy": "traversal"})
        assert (walked.status_code, problem(walked)) == (503, "unavailable")
        assert (await served.client.get("/readyz")).json() == {"status": "degraded", "missing": {"embedder": "EmbedderError"}}


@pytest.mark.real_time
async def test_a_model_that_hangs_is_not_waited_for_and_not_asked_by_everybody(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with serving(tmp_path, embedder=embedder, patience=0.05) as served:
        await served.put("me", "the tunnel opens")
        before = len(embedder.calls)
        embedder.faults.extend([EmbedderFault.HANG] * 50)
        for _ in range(5):
            assert await served.hits("me", "tunnel") == ["e0"]
        assert len(embedder.calls) == before + 1


async def test_a_query_is_embedded_once_and_answered_anew(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with serving(tmp_path, embedder=embedder) as served:
        await served.put("me", "the tunnel opens")
        await served.hits("me", "tunnel")
        before = len(embedder.calls)
        await served.post("me/turns", {"id": "new", "text": "tunnel"})
        assert set(await served.hits("me", "tunnel", filter={"kind": "leaf"})) == {"e0", "new"}
        assert len(embedder.calls) == before + 1, "the new turn alone"


async def test_grouping_and_explaining(served: Served) -> None:
    turns = [{"id": f"t{number}", "text": f"tunnel {number}", "conversation": f"c{number % 2}"} for number in range(6)]
    await served.post("me/turns", turns)
    assert len(await served.hits("me", "tunnel", group="conversation")) == 2
    answer = (await served.post("me/search", {"query": "tunnel", "explain": True})).json()
    assert answer["trace"]
    assert answer["hits"][0]["parts"]


async def test_a_tree_can_be_walked_page_by_page(served: Served) -> None:
    await served.put("me", *(f"word{number} only{number}" for number in range(25)))
    found: list[str] = []
    after = 0
    while True:
        page = (await served.get(f"/me/nodes/root?limit=10&after={after}")).json()
        found += ids(page["children"])
        if page["next"] is None:
            break
        after = page["next"]
    assert len(found) == len(set(found)) == len((await served.memory.tree("me", children=1_000)).children)
    assert problem(await served.get("/me/nodes/nothing")) == "node-not-found"


async def test_where_a_text_would_go_is_where_it_goes(served: Served) -> None:
    said = set()
    for number, text in enumerate([*TALK, "quartz", "zebras"]):
        if number:
            await served.memory.fresh("me")
        would = (await served.get(f"/me/explain?query={text}")).json()["route"] if number else []
        await served.post("me/turns", {"id": f"e{number}", "text": text})
        [leaf] = (await served.get(f"/me/events/e{number}/route")).json()["leaves"]
        if number:
            assert [each["decision"] for each in would] == [each["decision"] for each in leaf["decisions"]]
            said.add(would[-1]["decision"])
    assert said == {"attach", "expand"}


async def test_an_event_s_route_is_the_one_it_took(served: Served) -> None:
    for number, text in enumerate(TALK):
        await served.post("me/turns", {"id": f"e{number}", "text": text})
    await served.memory.fresh("me")
    for number in range(len(TALK)):
        route = (await served.get(f"/me/events/e{number}/route")).json()
        [leaf] = route["leaves"]
        decisions = leaf["decisions"]
        *above, last = decisions
        assert all(each["decision"] == "enter" and each["similarity"] >= each["threshold"] for each in above)
        if leaf["expanded"] is not None:
            assert (last["decision"], last["best"]) == ("expand", leaf["expanded"])
        else:
            assert last["decision"] == "attach"
            assert last["best"] is None or last["similarity"] < last["threshold"]
            assert last["node"] == leaf["parent"]
    assert problem(await served.get("/me/events/e99/route")) == "event-not-found"


async def test_the_past_has_the_shape_that_it_had(served: Served) -> None:
    shapes = {}
    for number, text in enumerate(TALK):
        await served.post("me/turns", {"id": f"e{number}", "text": text})
        drawn = await served.memory.tree("me", children=100)
        shapes[(await served.get("/me/commits?limit=1000")).json()["seq"]] = drawn.descendants
    for seq, leaves in shapes.items():
        past = (await served.get(f"/me/as-of/{seq}?depth=9&children=2")).json()
        assert past["leaves"] == leaves
    assert problem(await served.get("/me/as-of/99999")) == "invalid"
    assert (await served.get("/me/as-of/0")).json()["root"]["children"] == []


async def test_a_drawing_of_the_past_is_made_beside_the_event_loop(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[tuple[str, threading.Thread]] = []

    class Watched(shapes.Past):
        def _largest(self, node: NodeId) -> list[NodeId]:
            where.append((node, threading.current_thread()))
            return super()._largest(node)

    monkeypatch.setattr(shapes, "Past", Watched)
    for number, text in enumerate(TALK):
        await served.post("me/turns", {"id": f"e{number}", "text": text})
    seq = (await served.get("/me/commits?limit=1000")).json()["seq"]
    drawn = (await served.get(f"/me/as-of/{seq}?depth=1&children=1")).json()
    assert len(drawn["root"]["children"]) == 1
    assert drawn["root"]["hidden"] == len((await served.get("/me/nodes/root")).json()["children"]) - 1
    # Twice: which leaves are to be read, and the drawing; what is not opened is not put in order.
    assert [node for node, _ in where] == ["root", "root"]
    assert threading.main_thread() not in [thread for _, thread in where]


async def test_a_question_says_whether_its_context_is_filtered_and_the_answer_whether_it_was(tmp_path: Path) -> None:
    async def packed(served: Served, **more: object) -> httpx.Response:
        return await served.post("me/context", {"query": "tunnel", "tokens": 50, **more})

    async with serving(tmp_path / "with", context_filter=FakeContextFilter("tunnel")) as served:
        await served.put("me", "the tunnel opens", "a cello")
        for given in ({}, {"context_filter": None}, {"context_filter": True}):
            answer = (await packed(served, **given)).json()
            assert (answer["text"], answer["filtered"], answer["note"]) == ("the tunnel opens", True, ""), given
        answer = (await packed(served, context_filter=False)).json()
        assert ("cello" in answer["text"], answer["filtered"], answer["note"]) == (True, False, "")
    async with serving(tmp_path / "without") as served:
        await served.put("me", "the tunnel opens")
        assert (await packed(served, context_filter=False)).json()["filtered"] is False
        refused = await packed(served, context_filter=True)
        assert (refused.status_code, problem(refused)) == (422, "invalid")
        assert "BANYAN_CONTEXT_FILTER" in refused.json()["detail"]
