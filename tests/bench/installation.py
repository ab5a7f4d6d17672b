"""A broker and a Redis for the measurements of the pipeline, its topics, and records to put on them."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.adapters.redis import Link, RedisSettings
from memory.records import Turn
from streams.broker import Broker, open_admin
from streams.events import encode
from streams.producing import Message, Producer
from streams.settings import Settings, load
from streams.topics import create, record_key, topics
from tests.bench.corpus import DIMENSION, Corpus
from tests.servers import kafka, redis

ROOT = Path(__file__).parents[2]
TOPICS_A_TREE, SUBTOPICS_A_TOPIC = 4, 5


@dataclass(frozen=True, slots=True)
class Installation:
    """A broker, a Redis, and what processes are told of them."""

    environment: Mapping[str, str]
    folder: Path
    redis: redis.RedisServer
    broker: kafka.KafkaServer

    @property
    def settings(self) -> Settings:
        """The same as values."""
        return load(self.environment).settings

    def fresh(self, name: str, **more: str) -> Installation:
        """The same servers; topics, groups and trees of its own."""
        environment = {**self.environment, "BANYAN_KAFKA_PREFIX": name, **more}
        return Installation(environment, self.folder, self.redis, self.broker)

    async def install(self) -> None:
        """Make the topics."""
        admin = await open_admin(Broker.of(self.settings))
        try:
            await create(admin, topics(self.settings.kafka).all, self.settings.kafka, self.settings.broker)
        finally:
            await admin.close()

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        """One of `tests.bench.pipeline_worker`'s processes."""
        with (self.folder / f"{arguments[0]}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.bench.pipeline_worker", *arguments],
                cwd=ROOT,
                env={**os.environ, **self.environment, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=log,
            )

    async def said(self, *arguments: str) -> dict[str, Any]:
        """What such a process says at its end."""
        process = self.start(*arguments)
        out, _ = await asyncio.to_thread(process.communicate)
        if not out:
            raise RuntimeError((self.folder / f"{arguments[0]}.log").read_text()[-3000:])
        figures: dict[str, Any] = json.loads(out.splitlines()[-1])
        return figures


@contextmanager
def installed() -> Iterator[Installation]:
    """Servers that end with the context."""
    with tempfile.TemporaryDirectory(prefix="banyan-bench-") as name:
        folder = Path(name)
        # As brokers have it; the tests' looks for something to compact thirty times as often.
        usual = {"log.cleaner.backoff.ms": "15000"}
        with kafka.single(folder / "kafka", usual) as broker, redis.single(folder / "redis") as server:
            environment = {"BANYAN_BROKER": broker.address, "BANYAN_STORE": server.url, "BANYAN_LOG_FORMAT": "json"}
            yield Installation(environment, folder, server, broker)


def corpus(count: int, trees: int) -> tuple[list[Turn], NDArray[np.float16]]:
    """Turns that take turns among the trees, each of which speaks of a few things; and the (count, d) vectors of their texts."""
    if trees == 1:
        made = Corpus()
        return list(made.turns("bench", 0, count)), made.vectors(0, count).astype(np.float16)
    made = Corpus(seed=1)
    random = np.random.default_rng(2)
    vectors = np.empty((count, DIMENSION), np.float16)
    for start in range(0, count, 1000):
        size = min(1000, count - start)
        tree = np.arange(start, start + size) % trees
        topic = (tree * 7 + random.integers(0, TOPICS_A_TREE, size)) % 60
        vectors[start : start + size] = made.around(topic, random, subtopics=SUBTOPICS_A_TOPIC)
    records = [
        Turn(
            tree=f"user-{index % trees}",
            id=turn.id,
            text=turn.text,
            conversation=f"c{index // trees // 10}",
            speaker=turn.speaker,
            at=turn.at,
        )
        for index, turn in enumerate(made.turns("bench", 0, count))
    ]
    return records, vectors


async def send(settings: Settings, records: Sequence[Turn]) -> None:
    """Put the records on their topic."""
    name = topics(settings.kafka).turns.name
    producer = await Producer(Broker.of(settings)).start()
    try:
        for start in range(0, len(records), 5000):
            some = records[start : start + 5000]
            await producer.send(Message(topic=name, value=encode(record), key=record_key(record)) for record in some)
    finally:
        await producer.stop()


async def server_info(url: str, *words: str) -> dict[str, str]:
    """A section of INFO."""
    link = await Link.open(RedisSettings(url=url))
    found = await link.command("INFO", *words)
    await link.close()
    if isinstance(found, dict):
        return {str(name): str(value) for name, value in found.items()}
    return dict(line.split(":", 1) for line in found.decode().splitlines() if ":" in line)


async def scripts(url: str) -> tuple[int, float]:
    """How many scripts the server has run, and the microseconds they took."""
    calls, microseconds = 0, 0.0
    for name, value in (await server_info(url, "commandstats")).items():
        if "eval" in name:
            calls += int(re.findall(r"calls'?[=:] ?([0-9]+)", value)[0])
            microseconds += float(re.findall(r"usec'?[=:] ?([0-9.]+)", value)[0])
    return calls, microseconds
