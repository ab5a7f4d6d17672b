"""Workers that share partitions: one hangs, one leaves, one is started again under its name."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from urllib.request import urlopen

import pytest

from streams.settings import Settings
from streams.topics import topics
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
    # Until each has had some of it, and on while one leaves: which of them takes what is the group's affair.
    count, end = 0, time.monotonic() + LIMIT
    while pair[0].process.poll() is None:
        assert time.monotonic() < end, [accepted(worker) for worker in pair]
        if count < 300 + accepted(*pair):
            await send(installed, turns(100, conversations=40, first=count))
            count += 100
        if all(accepted(worker) > 0 for worker in pair) and not pair[0].events("draining"):
            pair[0].signal()
            await asyncio.to_thread(pair[0].until, "draining")
        await asyncio.sleep(0.3)
    pair[0].ends()
    await until_events(installed, count)
    await assert_whole(installed, count)


def rebalances(worker: Worker) -> float:
    """Times that the group shared its partitions anew while the worker was in it, by its metrics."""
    worker.until("metrics")
    with urlopen(f"http://{worker.events('metrics')[0]['address']}/metrics", timeout=30) as answer:
        found = re.search(r"^banyan_rebalances_total (\S+)$", answer.read().decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


def held(worker: Worker, topic: str) -> set[int]:
    """The worker's partitions of a topic."""
    lines = worker.events("partitions")
    return set(lines[-1]["held"].get(topic, ())) if lines else set()


async def until(condition: Callable[[], bool], *workers: Worker) -> None:
    end = time.monotonic() + LIMIT
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < end, [worker.log.read_text()[-2000:] for worker in workers]
        await asyncio.sleep(0.3)


@pytest.mark.timeout(600)
async def test_workers_with_names_of_their_own_are_started_again_without_a_new_distribution(
    installed: Settings, workers: Workers
) -> None:
    topic = topics(installed.kafka).turns.name

    def start(name: str) -> Worker:
        # A session that outlasts the restart, however slow the machine: without its name the new one would wait for its end.
        variables = {"BANYAN_KAFKA_SESSION_TIMEOUT": "80s", "BANYAN_WORKER_STALL": "10s", "BANYAN_METRICS_PORT": "0"}
        return workers("worker", "ingest", BANYAN_KAFKA_INSTANCE=name, **variables)

    stays, leaves = start("stays"), start("leaves")
    everything = set(range(installed.kafka.partitions))
    # Both: one that is alone at first has all, which leaves the other exactly nothing.
    await until(
        lambda: bool(held(stays, topic)) and bool(held(leaves, topic)) and held(leaves, topic) == everything - held(stays, topic),
        stays,
        leaves,
    )
    await send(installed, turns(60, conversations=40))
    await until_events(installed, 60)
    share, before, lines = held(leaves, topic), rebalances(stays), len(stays.events("partitions"))
    count = 60
    for end in (Worker.signal, Worker.kill):
        end(leaves)
        leaves.process.wait(LIMIT)
        leaves = start("leaves")
        await send(installed, turns(60, conversations=40, first=count))
        count += 60
        await until_events(installed, count)
        await until(lambda worker=leaves: held(worker, topic) == share, stays, leaves)  # type: ignore[misc]
    assert (rebalances(stays), len(stays.events("partitions"))) == (before, lines)
    for worker in (stays, leaves):
        worker.signal()
        worker.ends()
    await assert_whole(installed, count)
