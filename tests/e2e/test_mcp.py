"""`banyan mcp` as hosts meet it: started or connected to with the protocol's own client, over every kind of memory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.e2e.commands import ROOT, Banyan
from tests.e2e.service import serving

pytestmark = pytest.mark.slow

ASK = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
FLAT = "Ana took the flat in Porto in May."


@asynccontextmanager
async def started(*arguments: str, mode: str = "auto", errors: Path | None = None, **variables: str) -> AsyncIterator[Client]:
    """A client of a server that it has started itself."""
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "streams.cli", "mcp", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
    )
    with (errors or Path(os.devnull)).open("w") as log:
        async with Client(stdio_client(parameters, errlog=log), mode=mode, read_timeout_seconds=180) as client:
            yield client


@contextmanager
def listening(banyan: Banyan, *arguments: str, **variables: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """The address of a server over HTTP, and its process; killed at the end."""
    process = banyan.start("mcp", "--transport", "http", "--port", "0", "--json", *arguments, **variables)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line, process.communicate()[1].decode()
        yield json.loads(line)["url"], process
    finally:
        process.kill()
        process.communicate()


@asynccontextmanager
async def connected(url: str, key: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=180) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode, read_timeout_seconds=180) as client,
    ):
        yield client


async def call(client: Client, tool: str, **given: object) -> Any:
    result = await client.call_tool(tool, given)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, tool: str, **given: object) -> str:
    result = await client.call_tool(tool, given)
    assert result.is_error, result.structured_content
    return str(result.content[0].text)  # type: ignore[union-attr]


async def remember_and_recall(client: Client, tree: str) -> None:
    """What an agent does with any memory."""
    first = await call(client, "remember", tree=tree, text=FLAT, speaker="Ana", conversation="c1", at="2026-05-08T13:56:00Z")
    assert first["status"] == "accepted"
    assert (await call(client, "remember", tree=tree, text=FLAT, speaker="Ana", conversation="c1"))["status"] == "duplicate"
    document = {"title": "A tunnel opens", "source": "The Harbour Post", "url": "https://example.org/1", "id": "d1"}
    await call(client, "remember", tree=tree, text="The harbour tunnel opens in June.", metadata={"page": 3}, **document)
    assert "d1" in await refused(client, "remember", tree=tree, text="The tunnel stays closed.", **document)

    found = await call(client, "recall", tree=tree, query="Where is the flat?", speaker="Ana", since="2026-05-01", kind="leaf")
    [hit] = found["hits"]
    assert (hit["id"], hit["text"], hit["speaker"], hit["at"]) == (first["id"], FLAT, "Ana", "2026-05-08T13:56:00+00:00")
    [hit] = (await call(client, "recall", tree=tree, query="tunnel", source="The Harbour Post", k=1))["hits"]
    assert (hit["id"], hit["title"], hit["url"], hit["metadata"]) == ("d1", document["title"], document["url"], {"page": 3})
    assert (await call(client, "recall", tree=tree, query="flat", until="2020-01-01"))["hits"] == []
    packed = await call(client, "context", tree=tree, query="flat and tunnel", tokens=200)
    assert FLAT in packed["text"]
    assert set(packed["ids"]) == {first["id"], "d1"}
    seen = await call(client, "overview", tree=tree)
    assert seen["texts"] == 2
    assert "The harbour tunnel" in seen["outline"]
    assert tree in (await call(client, "trees"))["trees"]
    gone = await call(client, "forget", tree=tree, ids=["d1", "never"])
    assert (gone["forgotten"], gone["unknown"], gone["already"]) == (1, 1, 0)
    assert "tunnel" not in str(await call(client, "recall", tree=tree, query="tunnel"))
    assert "was forgotten" in await refused(client, "remember", tree=tree, text="The harbour tunnel opens in June.", id="d1")
    assert "`remember` makes one" in await refused(client, "recall", tree="nobody", query="x")


async def test_over_standard_input_and_output_on_a_folder(banyan: Banyan) -> None:
    log = banyan.folder / "log"
    async with started(errors=log, BANYAN_LOG_LEVEL="debug") as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["remember", "forget", "recall", "context", "overview", "trees"]
        await remember_and_recall(client, "user-1")
    assert (await asyncio.to_thread(banyan.shell, "check", "user-1")).code == 0
    assert "Traceback" not in log.read_text()


async def test_over_http_on_a_folder_for_this_machine_alone(banyan: Banyan) -> None:
    with listening(banyan) as (url, process):
        for mode in ("auto", "legacy"):
            async with connected(url, mode=mode) as client:
                await remember_and_recall(client, f"user-{mode}")
        async with httpx.AsyncClient(headers={"Accept": "application/json, text/event-stream"}) as stranger:
            assert (await stranger.post(url, json=ASK)).status_code == 200
            assert (await stranger.post(url, json=ASK, headers={"Host": "evil.example"})).status_code == 421
            assert (await stranger.post(url, json=ASK, headers={"Origin": "https://evil.example"})).status_code == 403
            assert (await stranger.get(url)).status_code == 405
            large = await stranger.post(url, content=b" " * 1_100_000, headers={"Content-Type": "application/json"})
            assert large.status_code == 413
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.to_thread(process.communicate, timeout=180)
    assert (process.returncode, out) == (0, b"")
    assert b"Traceback" not in err


async def test_keys_open_their_trees_alone(banyan: Banyan) -> None:
    writer = banyan("keys", "create", "app", "--prefix", "user-", "--json").value["key"]
    reader = banyan("keys", "create", "dashboard", "--right", "read", "--json").value["key"]
    with listening(banyan, "--host", "0.0.0.0", "--allow-host", "memory.example.org") as (address, process):
        url = address.replace("0.0.0.0", "127.0.0.1")
        async with httpx.AsyncClient() as stranger:
            for headers in ({}, {"Authorization": "Bearer banyan_0"}):
                answer = await stranger.post(url, json=ASK, headers=headers)
                assert (answer.status_code, answer.headers["www-authenticate"]) == (401, 'Bearer realm="banyan"')
            shown = {"Authorization": f"Bearer {writer}", "Accept": "application/json, text/event-stream"}
            for host, status in (("memory.example.org", 200), ("memory.example.org:443", 200), ("evil.example", 421)):
                assert (await stranger.post(url, json=ASK, headers={**shown, "Host": host})).status_code == status, host
        async with connected(url, writer) as client:
            await call(client, "remember", tree="user-1", text=FLAT)
            outside = await refused(client, "remember", tree="feed", text=FLAT)
            assert outside == await refused(client, "recall", tree="user-none", query="x"), "as if it did not exist"
        async with connected(url, reader) as client:
            assert "remember" not in [tool.name for tool in (await client.list_tools()).tools]
            assert "right to write" in await refused(client, "remember", tree="user-1", text="x")
            assert (await call(client, "recall", tree="user-1", query="flat"))["hits"]
            assert (await call(client, "trees"))["trees"] == ["user-1"]
        process.send_signal(signal.SIGTERM)
        _, err = await asyncio.to_thread(process.communicate, timeout=180)
    assert writer.encode() not in err


async def test_over_a_running_service(banyan: Banyan) -> None:
    key = banyan("keys", "create", "agent", "--json").value["key"]
    with serving(banyan) as (service, process):
        async with started("--url", str(service.base_url), BANYAN_KEY=key) as client:
            await remember_and_recall(client, "user-1")
            process.kill()
            assert "call again in a moment" in await refused(client, "recall", tree="user-1", query="x")


@pytest.mark.usefixtures("banyan")
async def test_over_redis(redis_url: str) -> None:
    async with started(BANYAN_STORE=redis_url, BANYAN_REDIS_PREFIX=f"mcp{os.getpid()}") as client:
        await remember_and_recall(client, "user-1")


@pytest.mark.usefixtures("banyan")
async def test_one_tree_read_only() -> None:
    async with started("--tree", "user-1", mode="legacy") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "trees" not in tools
        assert all("tree" not in tool.input_schema["properties"] for tool in tools.values())
        await call(client, "remember", text=FLAT)
        assert "one memory" in await refused(client, "remember", text=FLAT, tree="other")
    async with started("--tree", "user-1", "--read-only") as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["recall", "context", "overview"]
        assert "there is no tool" in await refused(client, "remember", text="x")
        assert (await call(client, "recall", query="flat"))["hits"]


def test_a_signal_ends_it_though_the_host_keeps_its_input_open(banyan: Banyan) -> None:
    process = banyan.start("mcp")
    assert process.stdin is not None
    assert process.stdout is not None
    begin = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    for line in (b"no json\n", b"[" * 2_000_000 + b"\n"):
        process.stdin.write(line)
    process.stdin.write(json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": begin}).encode() + b"\n")
    process.stdin.flush()
    answers = iter(process.stdout.readline, b"")
    assert (
        next(answer for line in answers if (answer := json.loads(line)).get("id") == 1)["result"]["serverInfo"]["name"] == "banyan"
    )
    process.send_signal(signal.SIGTERM)
    out = process.stdout.read()
    assert (process.wait(180), out) == (0, b"")
    process.communicate()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--host", "0.0.0.0", "--transport", "http"), "--allow-host"),
        (("--tree", "a b"), "tree: "),
        (("--transport", "http", "--host", "no.such.host.invalid"), "--host"),
        (("--url", "ftp://x"), "BANYAN_URL"),
    ],
)
def test_what_cannot_be_is_refused_at_start(banyan: Banyan, arguments: tuple[str, ...], said: str) -> None:
    ran = banyan("mcp", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_without_keys_nobody_else_is_let_in(banyan: Banyan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BANYAN_AUTH", "off")
    ran = banyan("mcp", "--transport", "http", "--host", "0.0.0.0", "--allow-host", "memory.example.org")
    assert (ran.code, "banyan keys create" in ran.err) == (2, True)
