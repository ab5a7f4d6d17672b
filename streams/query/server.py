"""The process of `banyan serve`: everything opened in order, and drained when a signal comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import structlog
import uvicorn
from fastapi import FastAPI

from memory.adapters.embedded.clock import SystemClock
from memory.ports.embedder import Embedder
from streams.bootstrap import open_memory
from streams.broker import Broker
from streams.health import Health
from streams.metrics_port import MetricsPort
from streams.query.app import create_app
from streams.query.embedding import QueryEmbedder
from streams.query.guard import Guard
from streams.query.health import NEEDED
from streams.query.listening import DrainingServer, Ending, address_of, listen
from streams.query.protocol import bounded_protocol
from streams.query.service import Service
from streams.query.writing import DirectWriter, KafkaWriter, Writer, ended
from streams.settings import Settings
from streams.topics import topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory.facade import LocalMemory

KEEP_ALIVE = 75
"""Seconds that a connection may be idle between two requests."""
LOOK_EVERY = 5.0  # seconds
_log = structlog.stdlib.get_logger("streams.query")


@asynccontextmanager
async def open_service(settings: Settings) -> AsyncIterator[Service]:
    """
    The service that the settings name.

    Raises:
        BanyanError: a setting, the store or a model cannot be used.
    """
    serve = settings.serve
    kafka = serve.ingest == "kafka" or (serve.ingest == "auto" and settings.store_is_redis)
    kept: list[QueryEmbedder] = []

    def around(embedder: Embedder) -> Embedder:
        patience = serve.query_patience.total_seconds()
        kept.append(QueryEmbedder(embedder, bytes_max=serve.query_cache_bytes, patience=patience))
        return kept[0]

    # A request does not wait for minutes until a model is back.
    ingest = settings.memory.ingest
    patience = min(ingest.embedder_patience, serve.timeout / 3, timedelta(seconds=10))
    bounded = replace(settings, memory=replace(settings.memory, ingest=replace(ingest, embedder_patience=patience)))
    async with AsyncExitStack() as stack:
        memory: LocalMemory = await stack.enter_async_context(
            await open_memory(bounded, summaries=not kafka, around=around, apart=True)
        )
        writer: Writer = DirectWriter(memory)
        if kafka:
            writer = KafkaWriter(Broker.of(settings), topics(settings.kafka), limit=min(10.0, serve.timeout.total_seconds()))
            await writer.start()
        stack.push_async_callback(ended, writer)
        yield Service(memory, writer, kept[0])


async def run_server(settings: Settings, *, told: Callable[[str], None]) -> None:
    """
    Serve until a signal comes, then answer what is in hand.

    Args:
        settings: in force.
        told: is told the address once connections are taken.

    Raises:
        BanyanError: it cannot start.
    """
    ending = Ending()
    with ending.signals():
        await _run(settings, ending, told)


async def _run(settings: Settings, ending: Ending, told: Callable[[str], None]) -> None:
    guard = Guard.of(settings, SystemClock())
    listening = listen(settings.serve.host, settings.serve.port)
    try:
        async with open_service(settings) as service:
            app = create_app(service, guard, limits=settings.memory.ingest, version=_version())
            # Made once, here: half a second in which nobody else would be answered.
            app.openapi()
            async with _metrics_port(settings, app):
                server = DrainingServer(_config(settings, app))
                # Streams end at once, and readiness says so.
                ending.call(app.state.draining.set)
                ending.call(server.end)
                told(address_of(listening))
                await server.serve(sockets=[listening])
            _log.info("stopped", requests=sum(app.state.meter.answers.values()))
    finally:
        listening.close()


def _config(settings: Settings, app: FastAPI) -> uvicorn.Config:
    serve = settings.serve
    return uvicorn.Config(
        app,
        http=bounded_protocol(serve.connections_max),
        ws="none",
        lifespan="off",
        log_config=None,
        # What a caller sends that is no HTTP is nothing to fill a log with.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(serve.grace.total_seconds())),
        h11_max_incomplete_event_size=65_536,
    )


@asynccontextmanager
async def _metrics_port(settings: Settings, app: FastAPI) -> AsyncIterator[None]:
    """The port without keys, where the settings ask for one."""
    if settings.metrics.port is None:
        yield
        return
    health = Health(state="")
    port = MetricsPort(settings.metrics, app.state.meter.registry, health)
    looking = asyncio.create_task(_look(app.state.service, health), name="banyan-health")
    try:
        _log.info("metrics", address=port.address)
        yield
    finally:
        looking.cancel()
        await asyncio.to_thread(port.close)


async def _look(service: Service, health: Health) -> None:
    """Keep what the port answers up to date: it is asked from threads."""
    while True:
        found = await service.missing()
        health.missing = {name: kind for name, kind in found.items() if name in NEEDED}
        await asyncio.sleep(LOOK_EVERY)


def _version() -> str:
    try:
        return version("banyan-memory")
    except PackageNotFoundError:
        return "0"
