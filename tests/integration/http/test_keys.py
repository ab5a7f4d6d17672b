"""Who is let in, to what, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from memory.adapters.embedded.clock import SystemClock
from memory.errors import SettingError
from streams.query import keys
from streams.query.guard import Guard
from streams.query.keys import KeyFile, Right
from streams.setting_tables import ServeSettings
from streams.settings import Settings
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.integration.http.served import listening, problem, serving

NOW = datetime.now(UTC)
ASK = {"query": "x"}


def make(folder: Path, *rights: Right, prefix: str = "", **more: Any) -> dict[str, str]:
    """A key, as the header that shows it."""
    _, token = KeyFile(folder / "keys.json").create("test", rights=rights, prefixes=[prefix], now=NOW, **more)
    return {"authorization": f"Bearer {token}"}


async def test_without_a_valid_key_nothing_is_said(tmp_path: Path) -> None:
    good = make(tmp_path, Right.READ)["authorization"]
    expired = make(tmp_path, Right.READ, expires_at=NOW - timedelta(seconds=1))["authorization"]
    async with serving(tmp_path, auth="keys") as served:
        answers = [
            await served.get("/any", **({"authorization": given} if given is not None else {}))
            for given in (None, "", "Bearer ", "Bearer x", "Basic eDp5", good[:-1] + ("A" if good[-1] != "A" else "B"), expired)
        ]
        told = {answer.json()["detail"] for answer in answers}
        assert {(answer.status_code, problem(answer)) for answer in answers} == {(401, "unauthorized")}
        assert len(told) == 1, "no hint at what was wrong"
        assert answers[0].headers["www-authenticate"].startswith("Bearer")
        assert (await served.get("/any", authorization=good)).status_code == 404
        for path in ("/healthz", "/readyz"):
            assert (await served.client.get(path)).status_code == 200


async def test_a_key_comes_before_everything_that_a_body_could_say(tmp_path: Path) -> None:
    async with serving(tmp_path, auth="keys") as served:
        answer = await served.client.post("/v1/trees/me/search", content=b"{", headers={"content-type": "application/json"})
        assert problem(answer) == "unauthorized"


async def test_rights(tmp_path: Path) -> None:
    reads, writes, all_ = make(tmp_path, Right.READ), make(tmp_path, Right.WRITE), make(tmp_path, Right.ADMIN)
    turn = {"id": "t1", "text": "hello"}
    async with serving(tmp_path, auth="keys") as served:
        assert problem(await served.post("me/turns", turn, **reads)) == "forbidden"
        assert (await served.post("me/turns", turn, **writes)).status_code == 202
        assert problem(await served.post("me/search", ASK, **writes)) == "forbidden"
        assert (await served.post("me/search", ASK, **reads)).status_code == 200
        assert (await served.post("me/turns", turn, **all_)).status_code == 202
        assert problem(await served.client.get("/metrics", headers=reads)) == "forbidden"
        assert b"banyan_http_requests_total" in (await served.client.get("/metrics", headers=all_)).content


async def test_another_prefix_s_tree_is_as_if_it_were_not_there(tmp_path: Path) -> None:
    mine = make(tmp_path, Right.READ, Right.WRITE, prefix="user-")
    everything = make(tmp_path, Right.READ, Right.WRITE)

    def said(answer: httpx.Response) -> tuple[int, dict[str, Any], set[str]]:
        value = answer.json()
        value.pop("instance")
        return answer.status_code, value, set(answer.headers)

    async with serving(tmp_path, auth="keys") as served:
        await served.post("feed/turns", {"id": "t1", "text": "hello"}, **everything)
        await served.post("user-1/turns", {"id": "t1", "text": "hello"}, **mine)
        for path in ("", "/nodes/root", "/events/t1", "/commits", "/explain?query=x"):
            there = said(await served.get(f"/feed{path}", **mine))
            assert there[0] == 404
            assert there == said(await served.get(f"/feet{path}", **mine)) == said(await served.get(f"/user-2{path}", **mine))
        assert said(await served.post("feed/search", ASK, **mine)) == said(await served.post("user-2/search", ASK, **mine))
        assert said(await served.post("feed/turns", {"id": "t2", "text": "x"}, **mine))[0] == 404
        assert [tree["tree"] for tree in (await served.get("", **mine)).json()["trees"]] == ["user-1"]
        assert [tree["tree"] for tree in (await served.get("?limit=1", **everything)).json()["trees"]] == ["feed"]
        assert (await served.get("/feed", **everything)).json()["leaves"] == 1


async def test_a_key_that_is_made_or_revoked_while_the_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "LOOK_EVERY", 0.0)
    async with serving(tmp_path, auth="keys") as served:
        key, token = KeyFile(tmp_path / "keys.json").create("late", rights=[Right.READ], prefixes=[""], now=NOW)
        shown = {"authorization": f"Bearer {token}"}
        assert (await served.get("", **shown)).status_code == 200
        KeyFile(tmp_path / "keys.json").revoke(key.id, now=NOW)
        assert problem(await served.get("", **shown)) == "unauthorized"


async def test_a_stream_gives_nothing_more_to_a_key_that_is_revoked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "LOOK_EVERY", 0.0)
    shown = make(tmp_path, Right.READ, Right.WRITE)
    [key] = KeyFile(tmp_path / "keys.json").read()
    async with (
        serving(tmp_path, auth="keys") as served,
        listening(served) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=shown, timeout=60) as client,
    ):
        await client.post("/v1/trees/me/turns", json={"id": "a", "text": "hello"})
        async with client.stream("GET", "/v1/trees/me/commits/stream?after=0") as answer:
            lines = answer.aiter_lines()
            assert [line async for line in _until(lines, "id: ")] == ["id: 1"]
            KeyFile(tmp_path / "keys.json").revoke(key.id, now=NOW)
            await served.memory.ingest([{"id": "b", "text": "a secret"}], tree="me")
            assert [line async for line in lines if line == "id: 2"] == []


async def _until(lines: AsyncIterator[str], prefix: str) -> AsyncIterator[str]:
    async for line in lines:
        if line.startswith(prefix):
            yield line
            return


async def test_the_rate_of_one_key_is_no_other_s(tmp_path: Path) -> None:
    slow, other = make(tmp_path, Right.READ, rate=0.001), make(tmp_path, Right.READ)
    async with serving(tmp_path, auth="keys") as served:
        assert (await served.get("", **slow)).status_code == 200
        answer = await served.get("", **slow)
        assert (answer.status_code, problem(answer)) == (429, "rate")
        assert (await served.get("", **other)).status_code == 200


@pytest.mark.real_time
async def test_requests_of_one_key_at_once(tmp_path: Path) -> None:
    embedder = FakeEmbedder()
    async with serving(tmp_path, embedder=embedder, patience=0.3, concurrency=2) as served:
        await served.put("me", "hello")
        embedder.faults.extend([EmbedderFault.HANG] * 3)
        answers = await asyncio.gather(*(served.post("me/search", {"query": f"hello {number}"}) for number in range(5)))
        assert sorted(answer.status_code for answer in answers) == [200, 200, 429, 429, 429]
        assert {problem(answer) for answer in answers if answer.status_code == 429} == {"concurrency"}
        assert (await served.get("/me")).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.4", "::", "example.org"])
def test_everybody_is_let_in_on_this_machine_s_own_address_only(host: str) -> None:
    with pytest.raises(SettingError, match="BANYAN_AUTH"):
        Guard.of(Settings(auth="off", serve=ServeSettings(host=host)), SystemClock())
    Guard.of(Settings(auth="keys", serve=ServeSettings(host=host)), SystemClock())


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.0.1", "::1", "localhost"])
def test_this_machine_s_own_addresses(host: str) -> None:
    Guard.of(Settings(auth="off", serve=ServeSettings(host=host)), SystemClock())


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:80", ""])
async def test_a_page_elsewhere_cannot_ask_through_a_browser(tmp_path: Path, host: str) -> None:
    async with serving(tmp_path) as served:
        assert problem(await served.get("", host=host)) == "misdirected"
        plain = await served.client.post("/v1/trees/me/turns", content=b"{}", headers={"content-type": "text/plain"})
        assert problem(plain) == "media-type"
