"""The process of `banyan serve`: everything opened in order, and drained when a signal comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

import structlog
from fastapi import FastAPI

from memory.adapters.embedded.clock import SystemClock
from memory.ports.embedder import Embedder
from memory.service.following import Following
from streams.bootstrap import for_requests, open_memory
from streams.broker import Broker
from streams.ending import Ending
from streams.health import Health
from streams.metrics_port import MetricsPort
from streams.query.app import create_app
from streams.query.embedding import QueryEmbedder
from streams.query.guard import Guard
from streams.query.health import NEEDED
from streams.query.listening import DrainingServer, address_of, config_of, listen
from streams.query.service import Service
from streams.query.writing import DirectWriter, KafkaWriter, Writer, ended
from streams.settings import Settings
from streams.topics import topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory.facade import LocalMemory

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

    async with AsyncExitStack() as stack:
        memory: LocalMemory = await stack.enter_async_context(
            await open_memory(for_requests(settings), summaries=not kafka, around=around, apart=True)
        )
        writer: Writer = DirectWriter(memory)
        if kafka:
            writer = KafkaWriter(Broker.of(settings), topics(settings.kafka), limit=min(10.0, serve.timeout.total_seconds()))
            await writer.start()
            if serve.follow:
                following = Following(memory.parts.indexing, SystemClock(), pause=serve.follow.total_seconds())
                memory.parts.query.on_question(following.asked)
                following.start()
                stack.push_async_callback(following.stop)
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
                server = DrainingServer(config_of(settings.serve, app))
                # Streams end at once, and readiness says so.
                ending.call(app.state.draining.set)
                ending.call(server.end)
                told(address_of(listening))
                await server.serve(sockets=[listening])
            _log.info("stopped", requests=sum(app.state.meter.answers.values()))
    finally:
        listening.close()


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
