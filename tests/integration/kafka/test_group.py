"""Workers that share partitions: one hangs, one leaves."""

from __future__ import annotations

import asyncio

import pytest

from streams.settings import Settings
from tests.integration.kafka.workers import LIMIT, Worker, Workers, assert_whole, send, turns, until_events

pytestmark = pytest.mark.slow


def accepted(*workers: Worker) -> int:
    return sum(line.get("accepted", 0) for worker in workers for line in worker.events("batch"))


async def until_accepted(count: int, *workers: Worker) -> None:
    async with asyncio.timeout(LIMIT):
        while accepted(*workers) < count:  # noqa: ASYNC110  # in other processes
            await asyncio.sleep(0.2)


async def test_a_worker_that_hangs_holds_up_only_the_partitions_it_has(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(100, conversations=40))
    hanging = workers("tests/integration/kafka/dying_worker.py", "hang")
    hanging.until("hanging")
    # It has all partitions and an unfinished batch of each; the group is shared anew without waiting for it.
    other = workers("worker", "ingest")
    other.until("ready")
    await send(installed, turns(100, conversations=40, first=100))
    await until_accepted(20, other)
    hanging.kill()
    await until_events(installed, 200)
    await assert_whole(installed, 200)


async def test_workers_share_the_work_and_leave_it_in_order(installed: Settings, workers: Workers) -> None:
    pair = [workers("worker", "ingest", BANYAN_WORKER_BATCH_RECORDS="20") for _ in range(2)]
    for worker in pair:
        worker.until("ready")
    for first in range(0, 600, 100):
        await send(installed, turns(100, conversations=40, first=first))
        await asyncio.sleep(0.3)
    pair[0].signal()
    pair[0].ends()
    await until_events(installed, 600)
    assert all(accepted(worker) > 0 for worker in pair)
    await assert_whole(installed, 600)
