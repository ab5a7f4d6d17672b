"""Records over HTTP: what becomes of each, when it is answered, and what is refused."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.integration.http.served import Served, problem, serving


async def test_a_record_that_was_acknowledged_is_found_at_once(served: Served) -> None:
    answer = await served.post("me/turns", {"id": "t1", "speaker": "Ana", "text": "I moved to Porto", "mood": "glad"})
    assert answer.status_code == 202
    assert answer.json() == {"events": [{"id": "t1", "status": "accepted", "seq": 1, "reason": None}], "seq": 1}
    found = (await served.post("me/search", {"query": "Porto", "min_seq": 1})).json()
    assert [hit["event_id"] for hit in found["hits"]] == ["t1"]
    assert found["hits"][0]["metadata"] == {"mood": "glad"}
    assert found["seq"] >= 1


async def test_each_record_of_a_list_has_its_own_result_in_order(served: Served) -> None:
    await served.put("me", "the first one")
    answer = await served.post(
        "me/turns",
        [
            {"id": "e0", "text": "the first one"},
            {"id": "e0", "text": "another text"},
            {"id": "n1", "text": "   "},
            "no record",
            {"id": "n2", "text": "new"},
            {"id": "n3", "text": "a document", "type": "document"},
        ],
    )
    assert answer.status_code == 202
    events = answer.json()["events"]
    assert [event["status"] for event in events] == ["duplicate", "conflict", "rejected", "rejected", "accepted", "rejected"]
    assert events[2]["reason"] == "text: is empty"
    assert "documents" in events[5]["reason"]


async def test_documents_are_documents_even_without_a_title(served: Served) -> None:
    assert (await served.post("feed/documents", {"id": "d1", "text": "long " * 700})).status_code == 202
    leaves = (await served.get("/feed/events/d1")).json()["leaves"]
    assert len(leaves) > 1, "a turn would be one leaf"


async def test_a_request_whose_records_are_all_wrong_is_a_problem_that_names_the_fields(served: Served) -> None:
    answer = await served.post("me/turns", [{"id": "", "text": "x"}, {"id": "a"}])
    assert (answer.status_code, problem(answer)) == (422, "rejected")
    assert [(each["record"], each["field"]) for each in answer.json()["errors"]] == [(0, "id"), (1, "text")]
    assert problem(await served.get("/me")) == "tree-not-found", "nothing was made"


async def test_a_caller_s_own_type_is_kept(served: Served) -> None:
    await served.post("me/turns", {"id": "t1", "text": "hello there", "type": "greeting"})
    [leaf] = (await served.get("/me/nodes/root")).json()["children"]
    assert (await served.get(f"/me/nodes/{leaf['id']}")).json()["metadata"] == {"type": "greeting"}


async def test_json_lines_have_a_result_a_line_and_the_counts_at_the_end(served: Served) -> None:
    lines = b'{"id":"a","text":"one"}\nnonsense\n\n{"id":"b","title":"T","text":"two"}\n{"id":"a","text":"one"}'
    answer = await served.client.post(
        "/v1/trees/me/records", content=lines, headers={"content-type": "application/x-ndjson; charset=utf-8"}
    )
    assert answer.status_code == 202
    *results, last = [json.loads(line) for line in answer.content.splitlines()]
    assert [(each["line"], each["status"]) for each in results] == [
        (1, "accepted"),
        (2, "rejected"),
        (4, "accepted"),
        (5, "duplicate"),
    ]
    assert {name: last[name] for name in ("complete", "lines", "accepted", "duplicate", "conflict", "rejected")} == {
        "complete": True,
        "lines": 4,
        "accepted": 2,
        "duplicate": 1,
        "conflict": 0,
        "rejected": 1,
    }


async def test_json_lines_are_worked_off_as_they_come(served: Served) -> None:
    committed = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        for number in range(300):
            yield json.dumps({"id": f"e{number}", "text": f"turn {number} about the harbour"}).encode() + b"\n"
        for _ in range(6_000):
            if any(info.seq for info in await served.memory.trees()):
                committed.set()
                break
            await asyncio.sleep(0.01)
        yield b'{"id":"last","text":"the end"}'

    answer = await served.client.post("/v1/trees/me/records", content=body(), headers={"content-type": "application/jsonl"})
    assert json.loads(answer.content.splitlines()[-1])["accepted"] == 301
    assert committed.is_set()


async def test_while_the_model_is_away_nothing_is_acknowledged_and_lines_can_be_sent_again(tmp_path: Path) -> None:
    embedder = FakeEmbedder(faults=[EmbedderFault.BUSY], retry_after=3)
    async with serving(tmp_path, embedder=embedder) as served:
        answer = await served.post("me/turns", {"id": "a", "text": "one"})
        assert (answer.status_code, problem(answer)) == (503, "unavailable")
        assert answer.headers["retry-after"] == "3"
        assert answer.json()["missing"] == "embedder"
        assert (await served.post("me/turns", {"id": "a", "text": "one"})).json()["events"][0]["status"] == "accepted"


async def test_two_requests_with_one_id_put_it_in_once(served: Served) -> None:
    answers = await asyncio.gather(*(served.post("me/turns", {"id": "same", "text": "said once"}) for _ in range(8)))
    statuses = sorted(answer.json()["events"][0]["status"] for answer in answers)
    assert statuses == ["accepted", *["duplicate"] * 7]
    assert (await served.get("/me")).json()["leaves"] == 1
