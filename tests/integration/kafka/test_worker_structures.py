"""Every structure beside MemTree through the workers: two that ingest into one tree in Redis, and two that make its summaries."""

from __future__ import annotations

from pathlib import Path

import pytest

from memory.model import TreeId
from memory.structures import registry
from streams.settings import load
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.test_worker_redis import looking, until
from tests.integration.kafka.workers import Workers, send, turns

pytestmark = pytest.mark.slow
COUNT = 60


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
        for worker in (*both, *summarizing):
            worker.signal()
            worker.ends()
    finally:
        workers.kill_all()
