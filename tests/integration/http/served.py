"""The application over a memory in a temporary folder, asked in this process or over real connections."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from fastapi import FastAPI

from memory.adapters.embedded.clock import SystemClock
from memory.local import LocalMemory, open_local
from memory.ports.context_filter import ContextFilter
from memory.ports.embedder import Embedder
from memory.settings import IngestSettings, MemorySettings
from streams.query.app import create_app
from streams.query.embedding import QueryEmbedder
from streams.query.guard import Guard
from streams.query.protocol import bounded_protocol
from streams.query.service import Service
from streams.query.writing import DirectWriter, Writer
from streams.setting_tables import ServeSettings
from streams.settings import Settings
from tests.fakes.embedder import FakeEmbedder

NO_PATIENCE = MemorySettings(ingest=IngestSettings(embedder_patience=timedelta(0)))


class Served:
    """One application, and a client that asks it."""

    def __init__(self, app: FastAPI, memory: LocalMemory, client: httpx.AsyncClient) -> None:
        self.app = app
        self.memory = memory
        self.client = client

    async def post(self, path: str, value: object, **headers: str) -> httpx.Response:
        return await self.client.post(f"/v1/trees/{path}", json=value, headers=headers)

    async def get(self, path: str, **headers: str) -> httpx.Response:
        return await self.client.get(f"/v1/trees{path}", headers=headers)

    async def put(self, tree: str, *texts: str, first: int = 0) -> None:
        records = [{"id": f"e{number}", "text": text} for number, text in enumerate(texts, first)]
        assert (await self.post(f"{tree}/turns", records)).status_code == 202

    async def hits(self, tree: str, query: str, **more: object) -> list[str]:
        answer = await self.post(f"{tree}/search", {"query": query, **more})
        assert answer.status_code == 200, answer.text
        return [hit["event_id"] for hit in answer.json()["hits"]]


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    auth: str = "off",
    embedder: Embedder | None = None,
    writer: Writer | None = None,
    patience: float = 3.0,
    structure: str = "memtree",
    context_filter: ContextFilter | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    """An application over `folder`; settings are those of `ServeSettings`."""
    serve = ServeSettings(keys_file=folder / "keys.json", **settings)
    asked = QueryEmbedder(embedder or FakeEmbedder(), bytes_max=1_000_000, patience=patience)
    async with await open_local(
        folder / "memory", embedder=asked, settings=NO_PATIENCE, structure=structure, context_filter=context_filter
    ) as memory:
        guard = Guard.of(replace(Settings(), auth=auth, serve=serve), SystemClock())  # type: ignore[arg-type]
        service = Service(memory, writer or DirectWriter(memory), asked)
        app = create_app(service, guard, limits=IngestSettings())
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            yield Served(app, memory, client)


@asynccontextmanager
async def listening(served: Served, *, connections: int = 1_000, head: float = 20.0, stall: float = 20.0) -> AsyncIterator[int]:
    """The application behind real connections; gives the port."""
    config = uvicorn.Config(
        served.app,
        http=bounded_protocol(connections, head, stall),
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="error",
        access_log=False,
    )
    server = uvicorn.Server(config)
    with socket.socket() as own:
        own.bind(("127.0.0.1", 0))
        own.listen(512)
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]
        task = asyncio.create_task(server.serve(sockets=[own]))
        try:
            yield own.getsockname()[1]
        finally:
            server.should_exit = True
            served.app.state.draining.set()
            async with asyncio.timeout(60):
                await task


async def exchange(port: int, data: bytes, *, half_close: bool = False) -> bytes:
    """Send bytes, and read until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(data)
        if half_close:
            writer.write_eof()
        async with asyncio.timeout(60):
            return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def request(method: str, path: str, value: object = None, *, close: bool = True) -> bytes:
    """A request as bytes."""
    body = b"" if value is None else json.dumps(value).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += ["Connection: close"] if close else []
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(answer: httpx.Response) -> str:
    """The problem's kind; the answer must be one in every respect."""
    assert answer.headers["content-type"] == "application/problem+json", answer.text
    value = answer.json()
    assert value["status"] == answer.status_code
    assert {"type", "title", "detail", "instance"} <= value.keys()
    if answer.status_code in (412, 429, 503):
        assert int(answer.headers["retry-after"]) >= 1
    assert value["instance"].endswith(answer.headers["x-request-id"])
    return str(value["type"]).removeprefix("urn:banyan:problem:")


def ids(values: Sequence[dict[str, Any]]) -> list[str]:
    return [value["id"] for value in values]
