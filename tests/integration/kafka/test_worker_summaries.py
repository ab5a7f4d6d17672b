"""`banyan worker summaries` on a real broker: killed, given poison and garbage."""

from __future__ import annotations

import asyncio
import random

import pytest

from streams.dead_letters import decode_envelope
from streams.job_topic import decode_job
from streams.settings import Settings
from streams.topics import job_key, topics
from tests.integration.kafka.workers import (
    LIMIT,
    STEADY,
    Workers,
    assert_whole,
    committed,
    looking,
    read,
    send,
    send_raw,
    turns,
    until_events,
    until_fresh,
)

pytestmark = pytest.mark.slow
STATIC = {"BANYAN_KAFKA_INSTANCE": "one"}


async def lag(settings: Settings) -> int:
    """Jobs on the topic that are not acknowledged."""
    topic = topics(settings.kafka).summaries.name
    offsets = await committed(settings, f"{settings.kafka.prefix}-summaries", topic)
    return len(await read(settings, topic)) - sum(offsets.values())


async def until_acknowledged(settings: Settings) -> None:
    async with asyncio.timeout(LIMIT):
        while await lag(settings):  # noqa: ASYNC110  # in another process
            await asyncio.sleep(0.3)


async def test_kill_9_again_and_again_leaves_no_summary_behind(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(600))
    ingest = workers("worker", "ingest", BANYAN_WORKER_BATCH_RECORDS="50")
    pause = random.Random(3)
    for _ in range(4):
        worker = workers("worker", "summaries", **STATIC)
        worker.until("ready")
        await asyncio.sleep(pause.uniform(0.2, 1.0))
        worker.kill()
    await until_events(installed, 600)
    ingest.signal()
    ingest.ends()
    last = workers("worker", "summaries", **STATIC)
    await until_fresh(installed)
    await until_acknowledged(installed)
    last.signal()
    last.ends()
    await assert_whole(installed, 600)


async def test_what_is_no_job_is_a_dead_letter(installed: Settings, workers: Workers) -> None:
    names = topics(installed.kafka)
    await send(installed, turns(20))
    # A compacted topic takes nothing without a key.
    bad = [b"garbage", b'{"tree":"t"}', b'{"tree":"no tree","node":"n"}', None]
    missing = [b'{"tree":"t","node":"gone"}', b'{"tree":"unknown","node":"gone"}']
    await send_raw(installed, names.summaries.name, *bad, *missing, key=b"t/n")
    workers("worker", "ingest", **STEADY)
    await until_events(installed, 20)
    worker = workers("worker", "summaries", **STEADY)
    await until_fresh(installed)
    await until_acknowledged(installed)
    worker.signal()
    worker.ends()
    letters = [decode_envelope(letter.value) for letter in await read(installed, names.dead_letters.name)]
    assert sorted(letter.error for letter in letters) == ["TreeNotFoundError", "record", "record", "record", "tree"]


async def test_a_poisoned_node_stops_after_its_attempts_and_stays_pending(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(40))
    workers("worker", "ingest")
    await until_events(installed, 40)
    worker = workers(
        "tests/integration/kafka/poisoned_worker.py",
        BANYAN_SUMMARIES_ATTEMPTS_MAX="2",
        BANYAN_SUMMARIES_BACKOFF="50ms",
    )
    worker.until("summary given up")
    given_up = {line["node"] for line in worker.events("summary given up")}
    await until_acknowledged(installed)
    worker.signal()
    worker.ends()
    names = topics(installed.kafka)
    letters = [decode_envelope(letter.value) for letter in await read(installed, names.dead_letters.name)]
    assert {letter.error for letter in letters} == {"SummarizerAnswerError"}
    assert {letter.attempts for letter in letters} == {2}
    assert {decode_job(letter.delivery.value).node for letter in letters} >= given_up
    assert {letter.delivery.key for letter in letters} >= {job_key("t", node) for node in given_up}  # type: ignore[arg-type]
    async with looking(installed) as memory:
        assert (await memory.stats("t")).pending > 0


async def test_a_key_that_is_refused_ends_the_worker_and_gives_no_summary_up(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(40))
    workers("worker", "ingest")
    await until_events(installed, 40)
    worker = workers("tests/integration/kafka/poisoned_worker.py", "refused")
    worker.ends(75)
    (said,) = worker.events("cannot go on")
    assert "401" in said["reason"]
    assert not await read(installed, topics(installed.kafka).dead_letters.name)
    workers("worker", "summaries")
    await until_fresh(installed)


async def test_a_model_that_is_away_is_waited_for_and_bounds_what_is_taken(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(200))
    workers("worker", "ingest")
    await until_events(installed, 200)
    worker = workers("tests/integration/kafka/poisoned_worker.py", "away", BANYAN_SUMMARIES_BACKOFF="50ms")
    worker.until("ready")
    await asyncio.sleep(3)
    assert await lag(installed) == len(await read(installed, topics(installed.kafka).summaries.name))
    worker.kill()
    workers("worker", "summaries")
    await until_fresh(installed)
