"""The query service beside workers: records go to Kafka, answers come from Redis; either goes away and comes back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from memory.adapters.embedded.clock import SystemClock
from streams.query.app import create_app
from streams.query.guard import Guard
from streams.query.server import open_service
from streams.settings import Settings, load
from tests.conftest import started
from tests.integration.http.served import problem
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import LIMIT, Workers
from tests.servers import kafka, redis

pytestmark = pytest.mark.slow
AT_ONCE = 60.0  # seconds
"""Longest answer while something is away: it is known, or given up after 10 s; a minute is long enough for any machine."""


@asynccontextmanager
async def asking(settings: Settings) -> AsyncIterator[httpx.AsyncClient]:
    async with open_service(settings) as service:
        app = create_app(service, Guard.of(settings, SystemClock()), limits=settings.memory.ingest)
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=LIMIT) as client:
            yield client


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    end = time.monotonic() + LIMIT
    while not await condition():
        assert time.monotonic() < end, what
        await asyncio.sleep(0.2)


async def test_records_are_safe_in_kafka_before_they_are_acknowledged_and_reads_outlive_the_broker(
    server: kafka.KafkaServer, redis_url: str, tmp_path: Path
) -> None:
    environment = variables(server.address, tmp_path) | {"BANYAN_STORE": redis_url, "BANYAN_AUTH": "off"}
    environment["BANYAN_REDIS_PREFIX"] = environment["BANYAN_KAFKA_PREFIX"]
    settings = load(environment).settings
    await install(settings)
    workers = Workers(environment, tmp_path)
    workers("worker", "ingest")
    acknowledged: list[str] = []

    async with asking(settings) as client:

        async def put(event: str) -> httpx.Response:
            answer = await client.post("/v1/trees/me/turns", json={"id": event, "text": f"the tunnel {event} opens"})
            if answer.status_code == 202:
                assert answer.json() == {
                    "events": [{"id": event, "status": "accepted", "seq": None, "reason": None}],
                    "seq": None,
                }
                acknowledged.append(event)
            return answer

        async def ready() -> dict[str, object]:
            value: dict[str, object] = (await client.get("/readyz")).json()
            return value

        async def search(event: str) -> httpx.Response:
            asked = {"query": event, "wait_for": event, "wait_seconds": 20, "filter": {"kind": "leaf"}}
            answers: list[httpx.Response] = []

            async def answered() -> bool:
                """The worker may take longer than a question may wait."""
                answers.append(await client.post("/v1/trees/me/search", json=asked))
                return answers[-1].status_code != httpx.codes.PRECONDITION_FAILED

            await until(answered, f"{event} did not come")
            return answers[-1]

        try:
            await until(lambda: _is(put("first"), 202), "the service did not find the broker")
            found = await search("first")
            assert [hit["event_id"] for hit in found.json()["hits"]] == ["first"]
            assert await ready() == {"status": "ready", "missing": {}}

            server.kill()
            for number in range(3):
                begun = time.monotonic()
                refused = await put(f"lost{number}")
                assert (refused.status_code, problem(refused)) == (503, "unavailable")
                assert refused.json()["missing"] == "kafka"
                assert time.monotonic() - begun < AT_ONCE
            assert (await search("first")).status_code == 200
            assert await ready() == {"status": "degraded", "missing": {"kafka": "BrokerUnavailableError"}}

            server.start()
            await until(lambda: _is(put("again"), 202), "the broker is back, the service is not")
            for event in acknowledged:
                assert (await search(event)).status_code == 200, event
            assert (await ready())["status"] == "ready"
        finally:
            workers.kill_all()


async def test_redis_goes_away_in_the_middle_and_comes_back(tmp_path: Path) -> None:
    with started(redis.single(tmp_path / "redis")) as own:
        environment = variables("127.0.0.1:1", tmp_path) | {
            "BANYAN_STORE": own.url,
            "BANYAN_AUTH": "off",
            "BANYAN_SERVE_INGEST": "direct",
            "BANYAN_REDIS_PATIENCE": "200ms",
            "BANYAN_REDIS_TIMEOUT": "20s",
        }
        async with asking(load(environment).settings) as client:
            turn = {"id": "t1", "text": "the tunnel opens"}
            assert (await client.post("/v1/trees/me/turns", json=turn)).json()["events"][0]["status"] == "accepted"
            assert (await client.get("/v1/trees/me")).json()["leaves"] == 1
            waiting = {"query": "tunnel", "wait_for": "not yet", "wait_seconds": 30}
            in_hand = asyncio.create_task(client.post("/v1/trees/me/search", json=waiting))
            await asyncio.sleep(0.3)
            assert not in_hand.done()
            own.kill()
            for answer in (
                await in_hand,
                await client.post("/v1/trees/me/turns", json={"id": "t2", "text": "lost"}),
                await client.post("/v1/trees/me/search", json={"query": "tunnel"}),
                await client.get("/v1/trees"),
            ):
                assert (answer.status_code, problem(answer)) == (503, "unavailable")
                assert answer.json()["missing"] == "store"
                assert own.url not in answer.text
            unready = await client.get("/readyz")
            assert (unready.status_code, list(unready.json()["missing"])) == (503, ["store"])
            assert (await client.get("/healthz")).status_code == 200
            own.start()
            await until(lambda: _is(client.get("/readyz"), 200), "Redis is back, the service is not")
            assert (await client.post("/v1/trees/me/turns", json=turn)).json()["events"][0]["status"] == "duplicate"
            hits = (await client.post("/v1/trees/me/search", json={"query": "tunnel"})).json()["hits"]
            assert [hit["event_id"] for hit in hits] == ["t1"]


async def _is(answer: Awaitable[httpx.Response], status: int) -> bool:
    return (await answer).status_code == status
