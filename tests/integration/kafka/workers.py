"""Worker processes, and what stands on the broker and in the store."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

from memory.errors import StoreDamagedError
from memory.local import LocalMemory, open_local
from memory.records import Feedback, Forget, Record, Turn
from streams.bootstrap import store_file
from streams.broker import Broker
from streams.producing import Message, Producer
from streams.record_messages import message_of
from streams.settings import Settings
from streams.topics import topics

ROOT = Path(__file__).parents[3]
LIMIT = 120.0  # seconds, on a machine that does much else
STEADY = {"BANYAN_KAFKA_SESSION_TIMEOUT": "60s"}
"""Of a worker that nobody kills: where the machine holds it up it is not taken for dead, and nothing comes a second time."""


@dataclass
class Worker:
    """One process; what it logs is in a file."""

    process: subprocess.Popen[bytes]
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        """What it has logged."""
        # The last may be half written.
        lines = self.log.read_bytes().split(b"\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith(b"{") and line.endswith(b"}")]

    def events(self, name: str) -> list[dict[str, Any]]:
        """Lines of one kind."""
        return [line for line in self.lines() if line["event"] == name]

    def until(self, event: str, count: int = 1) -> None:
        """Wait until it has logged such a line, so often."""
        wait_for(lambda: len(self.events(event)) >= count, lambda: f"{event} in {self.log.read_text()[-2000:]}", self.process)

    def kill(self) -> None:
        """End it at once."""
        self.process.kill()
        self.process.wait()

    def signal(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Once it listens to signals: the work may be done before the last that was started for it has loaded its code."""
        if self.process.poll() is None:
            self.until("starting")
        self.process.send_signal(number)

    def ends(self, code: int = 0) -> None:
        """Wait for its end, with this exit code."""
        assert self.process.wait(LIMIT) == code, self.log.read_text()[-3000:]


@dataclass
class Workers:
    """Starts workers of one installation."""

    environment: dict[str, str]
    folder: Path
    started: list[Worker] = field(default_factory=list)

    def __call__(self, *arguments: str, **variables: str) -> Worker:
        """Start `banyan ARGUMENTS`; one that ends in .py is run as a script instead."""
        program = [str(ROOT / arguments[0])] if arguments[0].endswith(".py") else ["-m", "streams.cli", arguments[0]]
        log = self.folder / f"worker-{len(self.started)}.log"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("BANYAN_", "OPENAI_"))}
        with log.open("wb") as stream:
            process = subprocess.Popen(
                [sys.executable, *program, *arguments[1:]],
                cwd=self.folder,
                env={**kept, **self.environment, "PYTHONPATH": str(ROOT), **variables},
                stdout=stream,
                stderr=stream,
                stdin=subprocess.DEVNULL,
            )
        worker = Worker(process, log)
        self.started.append(worker)
        return worker

    def kill_all(self) -> None:
        """At the end of a test; one that has failed shows what they said."""
        for worker in self.started:
            if worker.process.poll() is None:
                worker.kill()
            print(f"--- {worker.log.name} ended with {worker.process.returncode}\n{worker.log.read_text(errors='replace')[-2000:]}")


def wait_for(
    condition: Callable[[], bool], what: Callable[[], str], process: subprocess.Popen[bytes] | None = None, seconds: float = LIMIT
) -> None:
    """Wait until something holds; fails when the process ends before."""
    end = time.monotonic() + seconds
    while not condition():
        ended = process is not None and process.poll() is not None
        if (ended and not condition()) or time.monotonic() > end:
            raise AssertionError(f"waited for {what()}")
        time.sleep(0.05)


def turns(count: int, *, tree: str = "t", conversations: int = 5, first: int = 0) -> list[Turn]:
    """Turns of a few conversations on a few subjects."""
    subjects = ("harbour tunnel budget", "winter garden roses", "violin lesson recital", "kitchen oven bread", "train delay ticket")
    return [
        Turn(
            tree=tree,
            id=f"e{number}",
            conversation=f"c{number % conversations}",
            text=f"{subjects[number % 5]} number {number} said {subjects[number * 3 % 5]}",
        )
        for number in range(first, first + count)
    ]


async def send(settings: Settings, records: Sequence[Record | Feedback | Forget]) -> None:
    """Put records on their topics."""
    names = topics(settings.kafka)
    producer = await Producer(Broker.of(settings)).start()
    try:
        await producer.send(message_of(names, record) for record in records)
    finally:
        await producer.stop()


async def send_raw(settings: Settings, topic: str, *values: bytes | None, key: bytes | None = None) -> None:
    """Put anything on a topic."""
    producer = await Producer(Broker.of(settings)).start()
    try:
        await producer.send(Message(topic=topic, value=value, key=key) for value in values)
    finally:
        await producer.stop()


async def read(settings: Settings, topic: str) -> list[Any]:
    """Every message of a topic, as of now."""
    # Not `seek_to_beginning`: the first fetch after an assignment may set the position at the same time.
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker, enable_auto_commit=False, auto_offset_reset="earliest")
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in sorted(await _partitions(consumer, topic))]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        found: list[Any] = []
        while any([await consumer.position(partition) < ends[partition] for partition in partitions]):
            for messages in (await consumer.getmany(timeout_ms=200)).values():
                found.extend(messages)
        return found
    finally:
        await consumer.stop()


async def _partitions(consumer: AIOKafkaConsumer, topic: str) -> set[int]:
    await consumer._client.force_metadata_update()
    await consumer._client.add_topic(topic)
    found = consumer.partitions_for_topic(topic)
    assert found, topic
    return set(found)


async def committed(settings: Settings, group: str, topic: str) -> dict[int, int]:
    """The group's offset in each partition of a topic; 0 where there is none."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        numbers = await _partitions(consumer, topic)
        return {number: await consumer.committed(TopicPartition(topic, number)) or 0 for number in numbers}
    finally:
        await consumer.stop()


async def read_again(settings: Settings, group: str, topic: str) -> None:
    """Have a group of which no worker runs begin a topic anew."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker, group_id=group, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in await _partitions(consumer, topic)]
        consumer.assign(partitions)
        await consumer.commit(dict.fromkeys(partitions, 0))
    finally:
        await consumer.stop()


async def ends(settings: Settings, topic: str) -> dict[int, int]:
    """The offset after the last message of each partition of a topic."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.broker, enable_auto_commit=False)
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in await _partitions(consumer, topic)]
        return {partition.partition: end for partition, end in (await consumer.end_offsets(partitions)).items()}
    finally:
        await consumer.stop()


@asynccontextmanager
async def looking(settings: Settings) -> AsyncIterator[LocalMemory]:
    """The store, to be looked at while workers may write it."""
    from memory.adapters.embedded.hashing import HashingEmbedder  # noqa: PLC0415

    memory = await open_local(store_file(settings).parent, embedder=HashingEmbedder(), read_only=True)
    try:
        yield memory
    finally:
        await memory.close()


async def events_in(settings: Settings, tree: str = "t") -> int:
    """Events of a tree; 0 while it is not there."""
    if not store_file(settings).exists():
        return 0
    try:
        async with looking(settings) as memory:
            if tree not in {info.id for info in await memory.trees()}:
                return 0
            return (await memory.stats(tree)).events
    except StoreDamagedError:
        return 0  # the file is there, but a worker is still making its tables


async def until_events(settings: Settings, count: int, tree: str = "t", seconds: float = LIMIT) -> None:
    """Wait until a tree has so many events, for as long as any come."""
    last, end = 0, time.monotonic() + seconds
    while (found := await events_in(settings, tree)) < count:
        if found > last:
            last, end = found, time.monotonic() + seconds
        if time.monotonic() > end:
            raise AssertionError(f"{found} of {count} events came")
        await asyncio.sleep(0.3)


async def until_fresh(settings: Settings, tree: str = "t", seconds: float = LIMIT) -> None:
    """Wait until no summary of a tree is pending, for as long as any is made."""
    last, end = 0, time.monotonic() + seconds
    while True:
        async with looking(settings) as memory:
            report = await memory.stats(tree)
        if not report.pending:
            return
        if report.pending != last:
            last, end = report.pending, time.monotonic() + seconds
        if time.monotonic() > end:
            raise AssertionError(f"{report.pending} summaries are pending")
        await asyncio.sleep(0.3)


async def assert_whole(settings: Settings, count: int, tree: str = "t") -> None:
    """Every event once, and nothing wrong with the tree."""
    async with looking(settings) as memory:
        report = await memory.stats(tree)
        checked = await memory.check(tree)
    assert checked.clean, checked.violations
    assert (report.events, report.leaves) == (count, count)
