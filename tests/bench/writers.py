"""
Several writers on one tree in Redis, each by itself as a worker is: inserts a second, waits for leases, conflicts.

Items are inserted one by one, each with its own commit; vectors are given, no summaries are made. A relay makes every request to
Redis take a millisecond longer. Two processes share the writers, since the bench machine has two cores; each writer has its own
connections and its own view. `python -m tests.bench.writers [--leaves 10000] [--seconds 8] [--writers 1 2 4 8 16]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.redis import Link, RedisPathLeases, RedisSettings, RedisTreeStore
from memory.model import TreeId
from memory.service.ingest import Ingest, Prepared
from memory.service.inspect import Inspect
from memory.service.views import Views
from memory.settings import IngestSettings
from tests.bench.corpus import Corpus, GivenVectors
from tests.servers import proxy, redis

TREE = TreeId("bench")
NETWORK = 0.001  # seconds
PROCESSES = 2
MOST_A_SECOND = 800
"""Commits of one writer that are prepared for each second of the measurement."""
PREPARED = 1_000
"""Items that are prepared together."""


class Writer:
    """One writer with everything of its own."""

    def __init__(self, link: Link, settings: IngestSettings) -> None:
        self.link = link
        self.store, clock = RedisTreeStore(link), SystemClock()
        self.corpus = Corpus()
        self.ingest = Ingest(
            store=self.store,
            leases=RedisPathLeases(link),
            jobs=InProcessSummaryJobs(clock),
            embedder=GivenVectors(self.corpus),
            clock=clock,
            views=Views(self.store, bytes_max=1 << 30),
            settings=settings,
        )
        self.waits: list[float] = []
        self.commits: list[float] = []
        self.ingest.stages.told = self._told

    @classmethod
    async def open(cls, url: str, **settings: Any) -> Writer:
        """Connect."""
        link = await Link.open(RedisSettings(url=url, patience=timedelta(seconds=30)))
        return cls(link, IngestSettings(attempts_max=1000, **settings))

    def _told(self, stage: str, seconds: float) -> None:
        if stage == "lease":
            self.waits.append(seconds)

    async def prepare(self, start: int, count: int, batch: int) -> list[Prepared]:
        """Batches that are ready to be committed."""
        ready: list[Prepared] = []
        for at in range(start, start + count, PREPARED):
            records = list(self.corpus.turns(TREE, at, min(PREPARED, start + count - at)))
            made = await self.ingest.prepare(TREE, records)
            for first in range(0, len(records), batch):
                part = slice(first, first + batch)
                ready.append(Prepared(TREE, made.records[part], made.insertions[part], {}))
        return ready

    async def work(self, ready: Sequence[Prepared], seconds: float) -> int:
        """Commit for so long; returns how many items went in."""
        begun, done = time.perf_counter(), 0
        for prepared in ready:
            once = time.perf_counter()
            if once - begun >= seconds:
                return done
            await self.ingest.commit(prepared, prepared.records)
            self.commits.append(time.perf_counter() - once)
            done += len(prepared.records)
        raise RuntimeError(f"{len(ready)} batches were not enough for {seconds} s")


async def process(url: str, starts: Sequence[int], seconds: float, batch: int, settings: dict[str, Any]) -> dict[str, Any]:
    """Some of the writers, in one process; begins when a line comes."""
    writers = [await Writer.open(url, **settings) for _ in starts]
    most = int(MOST_A_SECOND * seconds) * batch
    ready = [await writer.prepare(start, most, batch) for writer, start in zip(writers, starts, strict=True)]
    for writer, some in zip(writers, ready, strict=True):
        await writer.ingest.commit(some[0], some[0].records)  # loads the view
        writer.commits.clear()
        writer.waits.clear()
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    counters = [replace(writer.ingest.counters) for writer in writers]
    calls, trips = sum(writer.link.scripts_called for writer in writers), sum(writer.link.round_trips for writer in writers)
    begun, used = time.perf_counter(), time.process_time()
    done = sum(await asyncio.gather(*(writer.work(some[1:], seconds) for writer, some in zip(writers, ready, strict=True))))
    answer = {
        "items": done,
        "seconds": time.perf_counter() - begun,
        "cpu_s": time.process_time() - used,
        "refused": sum(w.ingest.counters.refused - before.refused for w, before in zip(writers, counters, strict=True)),
        "leased": sum(w.ingest.counters.leased - before.leased for w, before in zip(writers, counters, strict=True)),
        "scripts": sum(writer.link.scripts_called for writer in writers) - calls,
        "round_trips": sum(writer.link.round_trips for writer in writers) - trips,
        "waits": [wait for writer in writers for wait in writer.waits],
        "commits": [commit for writer in writers for commit in writer.commits],
    }
    for writer in writers:
        await writer.store.close()
    return answer


async def point(url: str, start: int, writers: int, seconds: float, batch: int, settings: dict[str, Any]) -> dict[str, float]:
    """So many writers at once."""
    most = (int(MOST_A_SECOND * seconds) * batch // PREPARED + 2) * PREPARED
    starts = [start + number * most for number in range(writers)]
    shares = [starts[number::PROCESSES] for number in range(min(PROCESSES, writers))]
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.writers",
            "--process",
            json.dumps({"url": url, "starts": share, "seconds": seconds, "batch": batch, "settings": settings}),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=1 << 26,
        )
        for share in shares
    ]
    for each in processes:
        assert each.stdout is not None
        await each.stdout.readline()
    said = await asyncio.gather(*(each.communicate(b"\n") for each in processes))
    answers = [json.loads(out) for out, _ in said]
    items = sum(answer["items"] for answer in answers)
    waits, commits = ([value for answer in answers for value in answer[name]] for name in ("waits", "commits"))
    total = {name: sum(answer[name] for answer in answers) for name in ("refused", "leased", "scripts", "round_trips", "cpu_s")}
    return {
        "writers": writers,
        "batch": batch,
        "inserts_per_s": sum(answer["items"] / answer["seconds"] for answer in answers),
        "conflicts_per_insert": total["refused"] / items,
        "leases_per_insert": total["leased"] / items,
        "lease_wait_p99_ms": float(np.percentile(waits, 99)) * 1000 if waits else 0.0,
        "commit_p50_ms": float(np.percentile(commits, 50)) * 1000,
        "commit_p99_ms": float(np.percentile(commits, 99)) * 1000,
        "round_trips_per_insert": total["round_trips"] / items,
        "cpu_us_per_insert": total["cpu_s"] / items * 1e6,
    }


async def main(leaves: int, seconds: float, counts: Sequence[int], batch: int, settings: dict[str, Any]) -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as folder, redis.single(Path(folder)) as server:
        first = await Writer.open(server.url)
        for prepared in await first.prepare(0, leaves, 64):
            await first.ingest.commit(prepared, prepared.records)
        curve: list[dict[str, float]] = []
        start = leaves
        with proxy.elsewhere(server.port, NETWORK) as port:
            for writers in counts:
                found = await point(f"redis://127.0.0.1:{port}/0", start, writers, seconds, batch, settings)
                start += writers * (int(MOST_A_SECOND * seconds) * batch + 2 * PREPARED)
                print(json.dumps(found), file=sys.stderr, flush=True)
                curve.append(found)
        report = await Inspect(store=first.store, embedder=GivenVectors(first.corpus), views=Views(first.store, bytes_max=1)).check(
            TREE
        )
        assert report.clean, report.violations[:3]
        await first.store.close()
    alone = next((each for each in curve if each["writers"] == 1), curve[0])
    most = next((each for each in curve if each["writers"] == 8), curve[-1])
    figures = {
        "ratio": most["inserts_per_s"] / alone["inserts_per_s"],
        "lease_wait_p99_ms": most["lease_wait_p99_ms"],
        "conflicts": {str(int(each["writers"])): each["conflicts_per_insert"] for each in curve},
        "inserts_per_s": {str(int(each["writers"])): each["inserts_per_s"] for each in curve},
        "curve": curve,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--leaves", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--writers", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--settings", type=json.loads, default={}, help="of ingestion, as JSON")
    parser.add_argument("--process")
    given = parser.parse_args()
    if given.process:
        print(json.dumps(asyncio.run(process(**json.loads(given.process)))))
    else:
        asyncio.run(main(given.leaves, given.seconds, given.writers, given.batch, given.settings))
