"""Several workers on one tree in Redis, killed at will."""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.model import TreeId
from memory.results import TreeReport
from memory.service.inspect import Inspect
from memory.service.views import Views
from streams.bootstrap import open_backend
from streams.settings import Settings, load
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import LIMIT, Workers, send, turns

pytestmark = pytest.mark.slow
KILLS = 4
AHEAD = 600
"""Records that nobody has told of taking: more than those of four killed workers that did not come to say so."""


@asynccontextmanager
async def looking(settings: Settings) -> AsyncIterator[Inspect]:
    backend = await open_backend(settings)
    views = Views(backend.store, bytes_max=10**9)
    yield Inspect(store=backend.store, embedder=HashingEmbedder(), views=views)
    await backend.close()


async def report(settings: Settings, tree: TreeId) -> TreeReport | None:
    async with looking(settings) as inspect:
        try:
            return await inspect.stats(tree)
        except LookupError:
            return None


async def until(settings: Settings, tree: TreeId, count: int) -> None:
    """Wait until all events are there, and no summary is pending, for as long as anything is done."""
    found: TreeReport | None = None
    before, end = "", time.monotonic() + LIMIT
    while not (found and found.events == count and not found.pending):
        there = "no tree" if found is None else f"{found.events} of {count} events, {found.pending} pending"
        if there != before:
            before, end = there, time.monotonic() + LIMIT
        assert time.monotonic() < end, f"{there} for {LIMIT:g} s"
        await asyncio.sleep(0.3)
        found = await report(settings, tree)


async def test_two_ingest_workers_on_one_tree_are_killed_in_turn(broker: str, redis_url: str, tmp_path: Path) -> None:
    environment = variables(broker, tmp_path) | {"BANYAN_STORE": redis_url, "BANYAN_WORKER_BATCH_RECORDS": "40"}
    settings = load(environment).settings
    await install(settings)
    tree = TreeId(f"redis-{settings.kafka.prefix}")
    workers = Workers(environment, tmp_path)
    pause = random.Random(7)
    count = 0
    killing = True

    async def produce() -> None:
        """Until the last kill, as one that is started when all is done would be waited for in vain; not far ahead."""
        nonlocal count
        while killing:
            if count > AHEAD + sum(line.get("accepted", 0) for worker in workers.started for line in worker.events("batch")):
                await asyncio.sleep(0.3)
                continue
            await send(settings, turns(50, tree=tree, conversations=40, first=count))
            count += 50
            await asyncio.sleep(0.3)

    try:
        workers("worker", "summaries")
        pair = [workers("worker", "ingest", BANYAN_KAFKA_INSTANCE=name) for name in ("a", "b")]
        producing = asyncio.create_task(produce())
        for _ in range(KILLS):
            number = pause.randrange(2)
            await asyncio.to_thread(pair[number].until, "batch")
            await asyncio.sleep(pause.uniform(0.1, 0.6))
            pair[number].kill()
            pair[number] = workers("worker", "ingest", BANYAN_KAFKA_INSTANCE="ab"[number])
        killing = False
        await producing
        await until(settings, tree, count)
        async with looking(settings) as inspect:
            checked = await inspect.check(tree)
        assert checked.clean, checked.violations
        assert (await report(settings, tree)) is not None
    finally:
        workers.kill_all()


async def test_a_worker_that_was_stopped_comes_back_late_and_nothing_is_doubled(
    broker: str, redis_url: str, tmp_path: Path
) -> None:
    # On Redis: a process that is stopped in the middle of a transaction of SQLite holds the file for all others.
    environment = variables(broker, tmp_path) | {"BANYAN_STORE": redis_url, "BANYAN_WORKER_BATCH_RECORDS": "20"}
    settings = load(environment).settings
    await install(settings)
    tree = TreeId(f"redis-{settings.kafka.prefix}")
    workers = Workers(environment, tmp_path)
    try:
        first = workers("worker", "ingest")
        first.until("ready")
        await send(settings, turns(200, tree=tree, conversations=40))
        first.until("batch")
        first.signal(signal.SIGSTOP)
        second = workers("worker", "ingest")
        await send(settings, turns(200, tree=tree, conversations=40, first=200))
        second.until("batch", 5)
        first.signal(signal.SIGCONT)
        await send(settings, turns(200, tree=tree, conversations=40, first=400))
        workers("worker", "summaries")
        await until(settings, tree, 600)
        for worker in (first, second):
            worker.signal()
            worker.ends()
        async with looking(settings) as inspect:
            checked = await inspect.check(tree)
        assert checked.clean, checked.violations
    finally:
        workers.kill_all()
