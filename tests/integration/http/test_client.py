"""Both clients against the real application: what goes in is found, page by page, and refusals are told."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import httpx
import pytest

from streams.client import AsyncClient, Client, ServiceAwayError, ServiceError
from streams.client.exchange import Patience
from tests.integration.http.served import Served, listening

TURNS = [{"id": f"t{number}", "speaker": "Ana", "text": f"only{number} word{number} tunnel"} for number in range(1_203)]


async def test_the_asynchronous_client(served: Served) -> None:
    async with AsyncClient("http://localhost", transport=httpx.ASGITransport(app=served.app)) as banyan:
        results = await banyan.put("me", [*TURNS[:700], {"id": "", "text": "x"}])
        assert [result["status"] for result in results] == ["accepted"] * 700 + ["rejected"]
        assert {result["status"] for result in await banyan.put("me", TURNS[:700])} == {"duplicate"}
        found = await banyan.search("me", "only33", k=3, filter={"speaker": "Ana"}, wait_for="t33")
        assert found["hits"][0]["event_id"] == "t33"
        assert "only33" in (await banyan.context("me", "only33", tokens=100))["text"]
        assert [tree["tree"] async for tree in banyan.trees()] == ["me"]
        assert [commit["seq"] async for commit in banyan.commits("me")][:3] == [1, 2, 3]
        children = [child["id"] async for child in banyan.children("me")]
        assert len(children) == len(set(children)) > 0
        assert (await banyan.stats("me"))["leaves"] == 700
        assert (await banyan.event("me", "t5"))["seq"] == 1
        assert (await banyan.route("me", "t5"))["leaves"]
        assert (await banyan.node("me", "root"))["kind"] == "root"
        assert (await banyan.tree("me", depth=1))["children"]
        with pytest.raises(ServiceError, match="tree-not-found") as caught:
            await banyan.search("nobody", "x")
        assert caught.value.status == 404


async def test_the_page_s_example_runs(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "http.md").read_text(encoding="utf-8")
    [example] = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    async with listening(served) as port:
        await asyncio.to_thread(exec, example.replace("localhost:8000", f"127.0.0.1:{port}").replace("…", "x"), {})
    assert "I moved to Porto in May." in capsys.readouterr().out.splitlines()


async def test_the_plain_client(served: Served) -> None:
    def use(url: str) -> None:
        with Client(url, patience=Patience(attempts=2, first=0.01)) as banyan:
            results = banyan.put("me", iter(TURNS))
            assert [result["id"] for result in results] == [turn["id"] for turn in TURNS]
            assert banyan.search("me", "only1200", k=1)["hits"][0]["event_id"] == "t1200"
            assert [tree["tree"] for tree in banyan.trees()] == ["me"]
            assert banyan.stats("me")["leaves"] == len(TURNS)
            with pytest.raises(ServiceError) as caught:
                banyan.search("me", "x", wait_for="never", wait_seconds=0.01)
            assert caught.value.kind == "not-covered"

    async with listening(served) as port:
        await asyncio.to_thread(use, f"http://127.0.0.1:{port}")
    with (
        Client(f"http://127.0.0.1:{port}", patience=Patience(attempts=2, first=0.01)) as banyan,
        pytest.raises(ServiceAwayError, match="cannot be reached"),
    ):
        banyan.stats("me")
