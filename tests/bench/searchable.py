"""
From the sending of an event to Kafka until it can be found: committed in Redis and covered by an index that follows the log.

Events come evenly, at half the rate that one worker was measured to keep up with; one of two processes is the worker, the other
sends and follows. `python -m tests.bench.searchable [--rate RECORDS_PER_S] [--seconds 20] [--trees 8]`; without a rate it is
measured first.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import ClassVar

import numpy as np

from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.adapters.redis import Link, RedisSettings, RedisTreeStore
from memory.errors import TreeNotFoundError
from memory.model import NodeId, TreeId
from memory.ports.index import IndexEntry
from memory.records import Turn
from memory.service.indexing import Indexing
from streams.broker import Broker
from streams.events import encode
from streams.producing import Message, Producer
from streams.topics import record_key, topics
from tests.bench.installation import Installation, corpus, installed
from tests.bench.pipeline import throughput

TICK = 0.01  # seconds
WARM_UP = 2.0  # seconds of events that are not counted: the worker joins its group, trees are made
MEASURED_FIRST = 10_000
PAUSE = 0.005  # seconds between two looks at the log
LATEST = 60.0  # seconds after the last was sent


class Noting(EmbeddedNodeIndex):
    """Notes when each event came to be covered."""

    covered_at: ClassVar[dict[str, float]] = {}

    async def update(
        self, tree: TreeId, *, after: int, seq: int, upserts: Sequence[IndexEntry], removes: Sequence[NodeId] = (), stamp: str = ""
    ) -> bool:
        """Take the entries over."""
        done = await super().update(tree, after=after, seq=seq, upserts=upserts, removes=removes, stamp=stamp)
        now = time.perf_counter()
        for entry in upserts:
            if entry.event_id is not None:
                self.covered_at.setdefault(entry.event_id, now)
        return done


async def follow(indexing: Indexing, trees: Sequence[TreeId]) -> None:
    """Keep the index level with the store, for ever."""
    while True:
        for tree in trees:
            with suppress(TreeNotFoundError):  # not made yet
                await indexing.catch_up(tree)
        await asyncio.sleep(PAUSE)


async def until_covered(index: Noting, count: int, following: asyncio.Task[None]) -> None:
    """Wait until so many events are covered."""
    end = time.perf_counter() + LATEST
    while len(index.covered_at) < count:
        if following.done() or time.perf_counter() > end:
            raise AssertionError(f"{len(index.covered_at)} of {count} events came to be covered")
        await asyncio.sleep(TICK)


async def feed(servers: Installation, records: Sequence[Turn], rate: float) -> dict[str, float]:
    """Send records evenly; returns when each was sent."""
    settings = servers.settings
    name = topics(settings.kafka).turns.name
    sent: dict[str, float] = {}
    producer = await Producer(Broker.of(settings)).start()
    try:
        await _feed(producer, name, records, rate, sent)
    finally:
        await producer.stop()
    return sent


async def _feed(producer: Producer, name: str, records: Sequence[Turn], rate: float, sent: dict[str, float]) -> None:
    sending: set[asyncio.Task[None]] = set()
    begun, done = time.perf_counter(), 0
    while done < len(records):
        due = min(len(records), int((time.perf_counter() - begun) * rate) + 1)
        some = records[done:due]
        now = time.perf_counter()
        sent.update(dict.fromkeys((record.id for record in some), now))
        messages = [Message(topic=name, value=encode(record), key=record_key(record)) for record in some]
        task = asyncio.ensure_future(producer.send(messages))
        sending.add(task)
        task.add_done_callback(sending.discard)
        done = due
        await asyncio.sleep(TICK)
    await asyncio.gather(*sending)


async def measure(servers: Installation, rate: float, seconds: float, trees: int) -> dict[str, float]:
    """One worker, one sender, one follower."""
    own = servers.fresh("searchable")
    await own.install()
    count = int(rate * (seconds + WARM_UP))
    records, vectors = corpus(count, trees)
    file = servers.folder / "searchable.npy"
    np.save(file, vectors)
    worker = own.start("ingest", str(file), "0")
    link = await Link.open(RedisSettings(url=servers.redis.url))
    index = await Noting.open(servers.folder / "index.db")
    names = sorted({TreeId(record.tree) for record in records})
    following = asyncio.ensure_future(follow(Indexing(store=RedisTreeStore(link), index=index), names))
    try:
        early = records[: int(rate * WARM_UP)]
        await feed(own, early, rate)
        await until_covered(index, len(early), following)
        sent = await feed(own, records[len(early) :], rate)
        await until_covered(index, count, following)
    finally:
        following.cancel()
        worker.send_signal(signal.SIGTERM)
        worker.wait()
        await index.close()
        await link.close()
    took = [index.covered_at[name] - at for name, at in sent.items()]
    return {
        "rate": round(rate),
        "p50_ms": round(float(np.percentile(took, 50)) * 1000, 1),
        "p99_ms": round(float(np.percentile(took, 99)) * 1000, 1),
        "events": len(took),
    }


async def main(rate: float, seconds: float, trees: int) -> None:
    """Measure and print."""
    with installed() as servers:
        if not rate:
            records, vectors = corpus(MEASURED_FIRST, trees)
            peak = await throughput(servers, "peak", records, vectors)
            rate = peak["records_per_s"] / 2
        print(json.dumps(await measure(servers, rate, seconds, trees)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--trees", type=int, default=8)
    given = parser.parse_args()
    asyncio.run(main(given.rate, given.seconds, given.trees))
