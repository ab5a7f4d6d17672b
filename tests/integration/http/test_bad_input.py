"""What a service must take without falling over: sizes, strange addresses, broken bodies, and raw bytes."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import structlog

from tests.integration.http.served import Served, exchange, listening, problem, request, serving

JSON = {"content-type": "application/json"}
LINES = {"content-type": "application/x-ndjson"}


async def test_ten_megabytes(served: Served) -> None:
    body = json.dumps({"id": "t", "text": "x" * 10_000_000}).encode()

    async def unannounced() -> AsyncIterator[bytes]:
        for start in range(0, len(body), 65_536):
            yield body[start : start + 65_536]

    for content in (body, unannounced()):
        answer = await served.client.post("/v1/trees/me/turns", content=content, headers=JSON)
        assert (answer.status_code, problem(answer)) == (413, "body-too-large")
        assert answer.headers["connection"] == "close"
    line = await served.client.post("/v1/trees/me/records", content=body, headers=LINES)
    assert problem(line) == "body-too-large", "no line is as long as that"
    assert await served.memory.trees() == []


async def test_the_head_of_an_answer_can_be_asked_for_alone(served: Served) -> None:
    await served.put("me", "hello")
    async with listening(served) as port:
        for path in ("/", "/healthz", "/readyz", "/v1/trees", "/v1/trees/me", "/v1/trees/nobody"):
            whole, head = [await exchange(port, request(method, path)) for method in ("GET", "HEAD")]
            assert head.split(b" ")[1] == whole.split(b" ")[1]
            assert head.endswith(b"\r\n\r\n"), "no body"
            assert b"content-length: %d" % len(whole.partition(b"\r\n\r\n")[2]) in head.lower()
        endless = await exchange(port, request("HEAD", "/v1/trees/me/commits/stream"))
        assert b"405" in endless.splitlines()[0]


async def test_ten_thousand_records(served: Served, tmp_path: Path) -> None:
    records = [{"id": f"t{number}", "text": "x"} for number in range(10_000)]
    answer = await served.post("me/turns", records)
    assert (problem(answer), "send JSON lines" in answer.json()["detail"]) == ("too-many-records", True)
    # There are no JSON lines of feedback.
    answer = await served.post("me/feedback", [{}] * 10_000)
    assert (problem(answer), "JSON lines" in answer.json()["detail"]) == ("too-many-records", False)
    assert await served.memory.trees() == []
    async with serving(tmp_path / "other", batch_records_max=10) as few:
        body = b"\n".join(json.dumps(each).encode() for each in records)
        answer = await few.client.post("/v1/trees/me/records", content=body, headers=LINES)
        assert (answer.status_code, problem(answer)) == (413, "too-many-records")


async def test_bodies_that_are_no_records(served: Served) -> None:
    for body, kind in {
        b"": "bad-request",
        b"{": "bad-request",
        b"\xff\xfe{}": "bad-request",
        b"[" * 100_000: "bad-request",
        b"NaN": "bad-request",
        b"[]": "invalid",
        b"4": "rejected",
        b"null": "rejected",
        b"[[]]": "rejected",
        b"{}": "rejected",
        b'{"id":1,"text":"x"}': "rejected",
        b'{"id":"a","text":"x","tree":"other"}': "rejected",
        b'{"id":"a\\u0000","text":"x"}': "rejected",
        b'{"id":"a","text":"x","at":"yesterday"}': "rejected",
        b'{"id":"a","text":"x","metadata":[]}': "rejected",
    }.items():
        answer = await served.client.post("/v1/trees/me/turns", content=body, headers=JSON)
        assert problem(answer) == kind, body[:40]
    for body in (b"", b"{", b"[1]", b'"x"', b"\xff", b"[" * 100_000):
        answer = await served.client.post("/v1/trees/me/search", content=body, headers=JSON)
        assert problem(answer) in ("bad-request", "invalid"), body[:40]
    assert await served.memory.trees() == []


@pytest.mark.parametrize(
    "path",
    ["a%2Fb", "..%2F..%2Fetc", "a%00b", "a%0ab", "a b", "%F0%9F%8C%B3", "x" * 129, "%ff%fe", "*", "a;b", "a'--"],
)
async def test_names_that_no_tree_has(served: Served, path: str) -> None:
    turn = {"id": "a", "text": "x"}
    for method, rest, value in (("GET", "", None), ("POST", "/turns", turn), ("POST", "/search", {"query": "x"})):
        answer = await served.client.request(method, f"/v1/trees/{path}{rest}", json=value)
        assert answer.status_code in (404, 405, 422), (path, answer.text)
        problem(answer)
    assert await served.memory.trees() == []


async def test_names_that_look_dangerous_are_only_names(served: Served) -> None:
    async with listening(served) as port:
        taken = await exchange(port, request("POST", "/v1/trees/../turns", {"id": "../../x", "text": "hello"}))
        assert taken.startswith(b"HTTP/1.1 202"), "as good a name as any other, and never a path"
    assert [info.id for info in await served.memory.trees()] == [".."]
    assert problem(await served.get("/x/events/..%2F..%2Fx")) == "tree-not-found"


async def test_text_is_text(served: Served) -> None:
    strange = "'; DROP TABLE nodes; -- \" * NEAR( ) {} [] ^ ~ \\ \u202e \x07 \u0000 %s ${x} @tag:{*}"
    await served.put("me", strange.replace("\x00", ""), "another")
    answer = await served.post("me/search", {"query": strange})
    assert answer.status_code == 200
    assert len(answer.json()["hits"]) == 2
    filtered = await served.post("me/search", {"query": "x", "filter": {strange: strange, "speaker": strange}})
    assert filtered.json()["hits"] == []


async def test_a_request_id_is_taken_over_or_made(served: Served) -> None:
    assert (await served.get("", **{"x-request-id": "abc-1"})).headers["x-request-id"] == "abc-1"
    made = (await served.get("", **{"x-request-id": "a b<script>"})).headers["x-request-id"]
    assert made != "a b<script>"
    assert len(made) == 16


@pytest.mark.real_time
async def test_a_request_sent_too_slowly(tmp_path: Path) -> None:
    from datetime import timedelta  # noqa: PLC0415

    async with serving(tmp_path, timeout=timedelta(seconds=0.2)) as served, listening(served, head=0.2) as port:
        head = request("POST", "/v1/trees/me/turns", {"id": "a", "text": "hello"})[:-5]
        assert (await exchange(port, head)).startswith(b"HTTP/1.1 408")
        lines = head.replace(b"/turns", b"/records").replace(b"application/json", b"application/x-ndjson")
        assert (await exchange(port, lines)).startswith(b"HTTP/1.1 408")
        assert await exchange(port, b"GET /healthz HTTP/1.1\r\nHost: loc") == b"", "a head that does not end"
        assert await exchange(port, b"") == b"", "a connection on which nothing comes"


async def test_a_client_that_has_closed_its_side_gets_its_answer(served: Served) -> None:
    async with listening(served) as port:
        whole = request("POST", "/v1/trees/me/turns", {"id": "a", "text": "hello"}, close=False)
        assert (await exchange(port, whole, half_close=True)).startswith(b"HTTP/1.1 202")
        assert b" 202 " not in await exchange(port, whole[:-3], half_close=True), "not with half a body"
        assert await exchange(port, b"", half_close=True) == b""


async def test_two_hundred_idle_connections_keep_nobody_out(served: Served) -> None:
    async with listening(served) as port:
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(200)]
        try:
            assert (await exchange(port, request("GET", "/healthz"))).startswith(b"HTTP/1.1 200")
        finally:
            for _, writer in idle:
                writer.close()


@pytest.mark.real_time
async def test_no_more_connections_than_allowed(served: Served) -> None:
    async with listening(served, connections=3) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(3)]
        await asyncio.sleep(0.05)
        assert await exchange(port, request("GET", "/healthz")) == b""
        for _, writer in held:
            writer.close()
        await asyncio.sleep(0.05)
        assert (await exchange(port, request("GET", "/healthz"))).startswith(b"HTTP/1.1 200")


@pytest.mark.real_time
async def test_raw_bytes(served: Served) -> None:
    chance = random.Random(6)
    good = request("POST", "/v1/trees/me/turns", {"id": "a", "text": "hello"})
    async with listening(served, head=0.3) as port:
        for number in range(60):
            data = bytearray(good) if number % 2 else bytearray(chance.randbytes(chance.randrange(1, 400)))
            for _ in range(chance.randrange(1, 12)):
                data[chance.randrange(len(data))] = chance.randrange(256)
            answer = await exchange(port, bytes(data), half_close=True)
            assert not answer.startswith(b"HTTP/1.1 5"), (bytes(data), answer)
        assert (await exchange(port, request("GET", "/healthz"))).startswith(b"HTTP/1.1 200")


async def test_commits_come_as_they_happen_and_a_client_goes_on_where_it_was(served: Served) -> None:
    await served.put("me", "one")

    connected = asyncio.Event()

    async def listen(port: int, wanted: int, **headers: str) -> list[str]:
        seen: list[str] = []
        async with (
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
            client.stream("GET", "/v1/trees/me/commits/stream", params={"after": 0}, headers=headers) as answer,
        ):
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["x-accel-buffering"] == "no", "proxies hold nothing back"
            async for line in answer.aiter_lines():
                if line.startswith("id: "):
                    seen.append(line.removeprefix("id: "))
                    connected.set()
                if len(seen) == wanted:
                    break
        return seen

    async with listening(served) as port:
        following = asyncio.create_task(listen(port, 2))
        await connected.wait()
        await served.post("me/turns", {"id": "second", "text": "cello"})
        assert await following == ["1", "2"]
        assert await listen(port, 1, **{"last-event-id": "1"}) == ["2"]
        # Whoever listens when the service stops is told, and does not keep it from stopping.
        connected.clear()
        last = asyncio.create_task(listen(port, 99))
        await connected.wait()
    assert len(await last) >= 2
    assert served.app.state.meter.streams == 0


async def test_an_error_nobody_thought_of_is_a_problem_without_its_text(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken() -> None:
        raise RuntimeError("a secret address")

    monkeypatch.setattr(served.app.state.service, "trees", broken)
    with structlog.testing.capture_logs() as logged:
        answer = await served.get("")
    assert (answer.status_code, problem(answer)) == (500, "internal")
    assert "secret" not in answer.text
    [line] = [line for line in logged if line["log_level"] == "error"]
    assert line["request"] == answer.headers["x-request-id"]
