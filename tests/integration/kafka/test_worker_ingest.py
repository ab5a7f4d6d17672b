"""`banyan worker ingest` as a process on a real broker: killed, stopped, given garbage."""

from __future__ import annotations

import asyncio
import random
import signal
from base64 import b64decode

import msgspec
import pytest

from memory.records import Document
from streams.commit_topic import CommitMessage
from streams.dead_letters import decode_envelope
from streams.job_topic import decode_job
from streams.settings import Settings
from streams.topics import topics
from tests.integration.kafka.workers import (
    STEADY,
    Worker,
    Workers,
    assert_whole,
    committed,
    events_in,
    read,
    send,
    send_raw,
    turns,
    until_events,
    until_fresh,
    wait_for,
)

pytestmark = pytest.mark.slow
STATIC = {"BANYAN_KAFKA_INSTANCE": "one"}


async def test_missing_topics_are_named_with_the_command_that_makes_them(settings: Settings, workers: Workers) -> None:
    worker = workers("worker", "ingest")
    worker.ends(4)
    assert f"no topic {settings.kafka.prefix}.commits, {settings.kafka.prefix}.dead-letters" in worker.log.read_text()
    assert "`banyan topics create` makes them" in worker.log.read_text()


async def test_turns_and_documents_go_in_and_summaries_follow(installed: Settings, workers: Workers) -> None:
    document = Document(tree="t", id="d1", title="A tunnel", text="The tunnel under the harbour opens. " * 40, source="news")
    await send(installed, [*turns(60), document])
    ingest, summaries = workers("worker", "ingest"), workers("worker", "summaries")
    await until_events(installed, 61)
    await until_fresh(installed)
    for worker in (ingest, summaries):
        worker.signal()
        worker.ends()
    assert sum(line["accepted"] for line in ingest.events("batch")) == 61
    names = topics(installed.kafka)
    for group, topic, count in (("ingest", names.turns, 60), ("ingest", names.documents, 1)):
        offsets = await committed(installed, f"{installed.kafka.prefix}-{group}", topic.name)
        assert sum(offsets.values()) == count


async def test_sigterm_loses_nothing_and_repeats_nothing(installed: Settings, workers: Workers) -> None:
    first = workers("worker", "ingest", BANYAN_WORKER_BATCH_RECORDS="20", **STATIC, **STEADY)
    producing = asyncio.create_task(send_until_ended(installed, first))
    await asyncio.to_thread(first.until, "batch", 3)
    first.signal()
    await asyncio.to_thread(first.ends)
    count = await producing
    taken = sum(line["accepted"] for line in first.events("batch"))
    assert await events_in(installed) == taken < count
    second = workers("worker", "ingest", **STATIC, **STEADY)
    await until_events(installed, count)
    second.signal()
    second.ends()
    assert sum(line.get("accepted", 0) for line in second.events("batch")) == count - taken
    assert sum(line.get("duplicate", 0) for line in second.events("batch")) == 0
    await assert_whole(installed, count)


async def send_until_ended(settings: Settings, worker: Worker) -> int:
    """Send more than a worker has taken, whatever it has, until it has ended; how many."""
    count = 0
    while True:
        ended = worker.process.poll() is not None
        if ended or count < 200 + sum(line.get("accepted", 0) for line in worker.events("batch")):
            await send(settings, turns(100, first=count))
            count += 100
        if ended:
            return count
        await asyncio.sleep(0.1)


async def test_kill_9_again_and_again_while_records_come(installed: Settings, workers: Workers) -> None:
    count, kills = 2_000, 6
    pause = random.Random(5)

    async def produce() -> None:
        for first in range(0, count, 100):
            await send(installed, turns(100, first=first))
            await asyncio.sleep(0.3)

    producing = asyncio.create_task(produce())
    for _ in range(kills):
        worker = workers("worker", "ingest", BANYAN_WORKER_BATCH_RECORDS="40", **STATIC)
        worker.until("ready")
        await asyncio.sleep(pause.uniform(0.3, 1.5))
        worker.kill()
    await producing
    workers("worker", "ingest", **STATIC)
    workers("worker", "summaries")
    await until_events(installed, count)
    await until_fresh(installed)
    await assert_whole(installed, count)


async def test_what_is_no_record_is_a_dead_letter_and_the_rest_goes_on(installed: Settings, workers: Workers) -> None:
    names = topics(installed.kafka)
    bad = [b"garbage", b'{"tree":"t","id":"x","text":""}', b'{"tree":"no tree","id":"x","text":"a"}', b"\xff\xfe", b"", None]
    await send_raw(installed, names.turns.name, *bad, key=b"a key")
    await send(installed, turns(10))
    worker = workers("worker", "ingest", **STEADY)
    await until_events(installed, 10)
    worker.signal()
    worker.ends()
    letters = await read(installed, names.dead_letters.name)
    # Trees take turns, so that letters about several of them come in any order.
    envelopes = sorted((decode_envelope(letter.value) for letter in letters), key=lambda letter: letter.offset)
    assert [letter.key for letter in letters] == [b"a key"] * len(bad)
    assert [None if each.raw is None else b64decode(each.raw) for each in envelopes] == bad
    assert [each.error for each in envelopes] == ["record", "text", "tree", "record", "record", "record"]
    assert {each.topic for each in envelopes} == {names.turns.name}
    offsets = await committed(installed, f"{installed.kafka.prefix}-ingest", names.turns.name)
    assert sum(offsets.values()) == 10 + len(bad)


@pytest.mark.parametrize("where", ["before jobs", "after jobs"])
async def test_killed_between_commit_and_acknowledgement(installed: Settings, workers: Workers, where: str) -> None:
    await send(installed, turns(50))
    dying = workers("tests/integration/kafka/dying_worker.py", where)
    dying.ends(-signal.SIGKILL)
    assert await events_in(installed) > 0
    names = topics(installed.kafka)
    jobs_before = await read(installed, names.summaries.name)
    assert bool(jobs_before) == (where == "after jobs")
    worker = workers("worker", "ingest")
    await until_events(installed, 50)
    # The last of the new may come before the first of those that come again.
    wait_for(
        lambda: sum(line.get("accepted", 0) + line.get("duplicate", 0) for line in worker.events("batch")) >= 50,
        lambda: f"all records in {worker.log.read_text()[-2000:]}",
        worker.process,
    )
    again = worker.events("batch")
    assert sum(line.get("duplicate", 0) for line in again) > 0
    assert sum(line["jobs_again"] for line in again) > 0
    workers("worker", "summaries")
    await until_fresh(installed)
    await assert_whole(installed, 50)
    assert {decode_job(message.value).tree for message in await read(installed, names.summaries.name)} == {"t"}
    said = [msgspec.json.decode(message.value, type=CommitMessage) for message in await read(installed, names.commits.name)]
    commits = {message.seq: message for message in said}
    assert sorted(event for message in commits.values() for event in message.events) == sorted(f"e{number}" for number in range(50))
    assert all(message == commits[message.seq] for message in said), "a repetition says the same"


async def test_a_second_signal_ends_a_worker_that_hangs(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(5))
    worker = workers("tests/integration/kafka/dying_worker.py", "hang")
    worker.until("hanging")
    worker.signal()
    worker.until("draining")
    worker.signal()
    worker.ends(128 + signal.SIGTERM)
    workers("worker", "ingest")
    await until_events(installed, 5)


async def test_after_the_grace_the_batch_in_hand_is_left_to_another(installed: Settings, workers: Workers) -> None:
    await send(installed, turns(5))
    worker = workers("tests/integration/kafka/dying_worker.py", "hang", BANYAN_WORKER_GRACE="1s")
    worker.until("hanging")
    worker.signal()
    worker.ends(75)
    # How many of the five had come when the batch began is the broker's affair.
    assert 1 <= worker.events("left to another worker")[0]["in_hand"] <= 5
    workers("worker", "ingest")
    await until_events(installed, 5)
    await assert_whole(installed, 5)
