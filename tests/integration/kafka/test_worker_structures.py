"""Every structure beside MemTree through the workers: two that ingest into one tree in Redis, and two that make its summaries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.model import EventId, TreeId
from memory.records import Feedback, Forget
from memory.structures import registry
from memory.structures.weights import APPROVALS, APPROVED_AT, REBUTTALS
from streams.bootstrap import open_backend
from streams.broker import Broker
from streams.producing import Producer
from streams.record_messages import message_of
from streams.settings import Settings, load
from streams.topics import topics
from tests.fakes.openai_server import FakeOpenAIServer
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.test_worker_redis import looking, report, until
from tests.integration.kafka.workers import LIMIT, Worker, Workers, send, turns

pytestmark = pytest.mark.slow
COUNT = 60


async def weighed_once(settings: Settings, tree: TreeId) -> None:
    """Feedback that is sent twice over, by the time the one after it is there."""
    at = datetime(2026, 5, 8, tzinfo=UTC)
    given = [Feedback(tree=tree, id=f"f{number}", event="e7", verdict="approval", at=at) for number in range(5)]
    last = Feedback(tree=tree, id="last", event="e8", verdict="rebuttal", at=at)
    producer = await Producer(Broker.of(settings)).start()
    try:
        names = topics(settings.kafka)
        await producer.send(message_of(names, each) for each in (*given, *given, last))
    finally:
        await producer.stop()
    await until(settings, tree, COUNT + len(given) + 1)
    backend = await open_backend(settings)
    try:
        receipts = await backend.store.receipts(tree, [EventId("e7"), EventId("e8")])
        nodes = await backend.store.nodes(tree, [leaf for receipt in receipts.values() for leaf in receipt.leaves])
    finally:
        await backend.close()
    weights = {node.item.event_id: dict(node.attributes) for node in nodes.values() if node.item is not None}
    assert weights == {"e7": {APPROVALS: 5.0, APPROVED_AT: at.timestamp()}, "e8": {REBUTTALS: 1.0}}


async def until_clean(settings: Settings, tree: TreeId) -> None:
    end = time.monotonic() + LIMIT
    while (found := await report(settings, tree)) is None or found.pending:
        assert time.monotonic() < end, found
        await asyncio.sleep(0.3)


async def forgotten_for_good(settings: Settings, tree: TreeId, worker: Worker) -> None:
    """A forget of what is there and of what is to come, with the second one sent after it."""
    await send(settings, [Forget(tree=tree, id=f"x{event}", event=event) for event in ("e3", f"e{COUNT}")])
    events = [EventId("e3"), EventId(f"e{COUNT}")]
    backend = await open_backend(settings)
    try:
        end = time.monotonic() + LIMIT
        while sum(receipt.forgotten for receipt in (await backend.store.receipts(tree, events)).values()) < len(events):
            assert time.monotonic() < end, worker.log.read_text()[-3000:]
            await asyncio.sleep(0.3)
        await send(settings, turns(2, tree=tree, conversations=1, first=COUNT))
        last = [EventId(f"e{COUNT + 1}")]
        while not await backend.store.receipts(tree, last):
            assert time.monotonic() < end, worker.log.read_text()[-3000:]
            await asyncio.sleep(0.3)
        left = {node.item.event_id async for node in backend.store.all_nodes(tree) if node.item is not None}
    finally:
        await backend.close()
    assert left == {f"e{number}" for number in range(COUNT + 2)} - set(events)


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as running:
        yield running


@pytest.mark.parametrize("structure", registry.NAMES[1:])
async def test_workers_grow_it_and_keep_its_summaries_fresh(
    broker: str, redis_url: str, tmp_path: Path, structure: str, server: FakeOpenAIServer
) -> None:
    given = {"BANYAN_STORE": redis_url, "BANYAN_STRUCTURE": structure, "BANYAN_WORKER_BATCH_RECORDS": "10"}
    # Only MemGAS has keywords to ask for.
    model = {"BANYAN_KEYWORDS": "openai:m", "OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "sk-not-one"}
    environment = variables(broker, tmp_path) | given | model
    settings = load(environment).settings
    await install(settings)
    tree = TreeId(f"{structure}-{settings.kafka.prefix}")
    workers = Workers(environment, tmp_path)
    try:
        both = [workers("worker", "ingest") for _ in range(2)]
        summarizing = [workers("worker", "summaries") for _ in range(2)]
        await send(settings, turns(COUNT, tree=tree, conversations=40))
        await until(settings, tree, COUNT)
        async with looking(settings) as inspect:
            checked, stats = await inspect.check(tree), await inspect.stats(tree)
        assert (checked.violations, checked.replayed) == ((), COUNT)
        assert (stats.structure, stats.leaves, stats.pending) == (structure, COUNT, 0)
        asked = [request.body["messages"][-1]["content"] for request in server.requests]
        assert bool(asked) == (structure == "memgas")
        assert all("extract the most relevant keywords" in prompt for prompt in asked)
        if registry.KINDS[structure].structure.keeps_weights:
            await weighed_once(settings, tree)
        await forgotten_for_good(settings, tree, both[0])
        await until_clean(settings, tree)
        async with looking(settings) as inspect:
            assert (await inspect.check(tree)).violations == ()
        for worker in (*both, *summarizing):
            worker.signal()
            worker.ends()
    finally:
        workers.kill_all()
