"""
A worker is killed: how long until another works on its partitions, with the default settings.

Two ingest workers share the partitions; records keep coming. `python -m tests.bench.takeover [--kills 3]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import time
from pathlib import Path

import numpy as np
from aiokafka import AIOKafkaConsumer, TopicPartition

from streams.settings import Settings
from streams.topics import topics
from tests.bench.installation import Installation, corpus, installed
from tests.bench.searchable import feed

RATE = 200.0  # records a second
SETTLE = 12.0  # seconds for two workers to share the partitions
LIMIT = 60.0  # seconds


class Offsets:
    """What the group has committed on the topic of turns."""

    def __init__(self, settings: Settings) -> None:
        self._topic = topics(settings.kafka).turns.name
        self._partitions = [TopicPartition(self._topic, number) for number in range(settings.kafka.partitions)]
        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=settings.broker, group_id=f"{settings.kafka.prefix}-ingest", enable_auto_commit=False
        )

    async def __aenter__(self) -> Offsets:
        await self._consumer.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._consumer.stop()

    async def __call__(self) -> list[int]:
        """Of each partition; 0 where there is none."""
        return [await self._consumer.committed(partition) or 0 for partition in self._partitions]


async def kill(servers: Installation, number: int) -> float:
    """Seconds from a kill until every partition goes on."""
    own = servers.fresh(f"takeover{number}")
    await own.install()
    records, vectors = corpus(int(RATE * (SETTLE + LIMIT)), 8)
    file = Path(servers.folder) / f"takeover{number}.npy"
    np.save(file, vectors)
    workers = [own.start("ingest", str(file), "0") for _ in range(2)]
    feeding = asyncio.ensure_future(feed(own, records, RATE))
    try:
        async with Offsets(own.settings) as offsets:
            await asyncio.sleep(SETTLE)
            workers[0].kill()
            begun = time.perf_counter()
            # What the dead one had finished may be committed up to here; from now on only the other can.
            before = await offsets()
            while time.perf_counter() - begun < LIMIT:
                await asyncio.sleep(0.1)
                now = await offsets()
                if all(after > once for after, once in zip(now, before, strict=True)):
                    return time.perf_counter() - begun
        raise AssertionError(f"not every partition went on within {LIMIT} s: {before} {now}")
    finally:
        feeding.cancel()
        await asyncio.gather(feeding, return_exceptions=True)
        for worker in workers:
            worker.kill()
            worker.wait()


async def main(kills: int) -> None:
    """Measure and print."""
    with installed() as servers:
        took = [await kill(servers, number) for number in range(kills)]
        session = servers.settings.kafka.session_timeout.total_seconds()
    print(
        json.dumps(
            {"takeover_s": round(statistics.median(took), 2), "longest_s": round(max(took), 2), "session_timeout_s": session}
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=3)
    asyncio.run(main(parser.parse_args().kills))
