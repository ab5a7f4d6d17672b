"""Every structure beside MemTree through the workers: two that ingest into one tree in Redis, and two that make its summaries."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from memory.model import EventId, TreeId
from memory.records import Feedback
from memory.structures import registry
from memory.structures.weights import APPROVALS, APPROVED_AT, REBUTTALS
from streams.bootstrap import open_backend
from streams.broker import Broker
from streams.producing import Producer
from streams.record_messages import message_of
from streams.settings import Settings, load
from streams.topics import topics
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.test_worker_redis import looking, until
from tests.integration.kafka.workers import Workers, send, turns

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


@pytest.mark.parametrize("structure", registry.NAMES[1:])
async def test_workers_grow_it_and_keep_its_summaries_fresh(broker: str, redis_url: str, tmp_path: Path, structure: str) -> None:
    given = {"BANYAN_STORE": redis_url, "BANYAN_STRUCTURE": structure, "BANYAN_WORKER_BATCH_RECORDS": "10"}
    environment = variables(broker, tmp_path) | given
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
        if registry.KINDS[structure].structure.keeps_weights:
            await weighed_once(settings, tree)
        for worker in (*both, *summarizing):
            worker.signal()
            worker.ends()
    finally:
        workers.kill_all()
