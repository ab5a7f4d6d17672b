"""
Commits and items a second in Redis, by one writer and by several processes on one tree; Redis memory a node.

Vectors are given and no summaries are made: what is measured is planning, commit, leases and catching up.
`python -m tests.bench.redis_store [--leaves 10000] [--items 4096] [--writers 8]` starts the server, with an append-only file.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.redis import Link, RedisPathLeases, RedisSettings, RedisTreeStore
from memory.model import TreeId
from memory.service.ingest import Ingest
from memory.service.views import Views
from memory.settings import IngestSettings
from tests.bench.corpus import Corpus, GivenVectors
from tests.servers import redis

TREE = TreeId("bench")
BATCH = 64


async def write(url: str, start: int, count: int, *, lease_after: int, bind: bool, batch: int = BATCH) -> dict[str, float]:
    """Insert items and say how fast; embedding and decoding are not counted."""
    link = await Link.open(RedisSettings(url=url, leases_bind=bind, patience=timedelta(seconds=30)))
    store, leases, clock = RedisTreeStore(link), RedisPathLeases(link), SystemClock()
    corpus = Corpus()
    ingest = Ingest(
        store=store,
        leases=leases,
        jobs=InProcessSummaryJobs(clock),
        embedder=GivenVectors(corpus),
        clock=clock,
        views=Views(store, bytes_max=1 << 30),
        settings=IngestSettings(lease_after=lease_after, attempts_max=1000),
    )
    records = list(corpus.turns(TREE, start, count))
    batches = [records[at : at + batch] for at in range(0, count, batch)]
    prepared = [await ingest.prepare(TREE, some) for some in batches]
    if start:
        await ingest.commit(prepared.pop(0), batches.pop(0))  # loads the view
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    if start and not sys.stdin.isatty():
        await asyncio.to_thread(sys.stdin.readline)
    begun, used = time.perf_counter(), time.process_time()
    waits: list[float] = []
    for some, records_ in zip(prepared, batches, strict=True):
        once = time.perf_counter()
        await ingest.commit(some, records_)
        waits.append(time.perf_counter() - once)
    seconds = time.perf_counter() - begun
    items = sum(map(len, batches))
    waits.sort()
    answer = {
        "items": items,
        "seconds": seconds,
        "items_per_s": items / seconds,
        "commits_per_s": len(batches) / seconds,
        "cpu_us_per_item": (time.process_time() - used) / items * 1e6,
        "commit_ms_p50": waits[len(waits) // 2] * 1000,
        "commit_ms_p99": waits[int(len(waits) * 0.99)] * 1000,
        "refused": ingest.counters.refused,
        "leased": ingest.counters.leased,
        "lease_waits": leases.waits,
    }
    await store.close()
    return answer


async def several(url: str, writers: int, start: int, count: int, *, lease_after: int, bind: bool, batch: int) -> dict[str, float]:
    """The same by several processes at once, started together."""
    share = count // writers
    processes = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.bench.redis_store",
            "--writer",
            json.dumps(
                {
                    "url": url,
                    "start": start + number * share,
                    "count": share,
                    "lease_after": lease_after,
                    "bind": bind,
                    "batch": batch,
                }
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        for number in range(writers)
    ]
    for process in processes:
        assert process.stdout is not None
        await process.stdout.readline()
    script_before = await _script_time(url)
    begun = time.perf_counter()
    said = await asyncio.gather(*(process.communicate(b"\n") for process in processes))
    seconds = time.perf_counter() - begun
    answers = [json.loads(out) for out, _ in said]
    items = sum(answer["items"] for answer in answers)
    return {
        "writers": writers,
        "batch": batch,
        "items_per_s": items / max(answer["seconds"] for answer in answers),
        "with_exit_items_per_s": items / seconds,
        "refused_per_commit": sum(answer["refused"] for answer in answers) / (items / batch),
        "leased_per_commit": sum(answer["leased"] for answer in answers) / (items / batch),
        "commit_ms_p99": max(answer["commit_ms_p99"] for answer in answers),
        "cpu_us_per_item": sum(answer["cpu_us_per_item"] for answer in answers) / writers,
        "redis_us_per_item": (await _script_time(url) - script_before) / items,
    }


async def server(url: str, *words: str) -> dict[str, str]:
    """A section of INFO."""
    link = await Link.open(RedisSettings(url=url))
    found = await link.command("INFO", *words)
    await link.close()
    if isinstance(found, dict):
        return {str(name): str(value) for name, value in found.items()}
    return dict(line.split(":", 1) for line in found.decode().splitlines() if ":" in line)


def rounded(values: dict[str, float]) -> dict[str, float]:
    """For people."""
    return {name: round(value, 3 if abs(value) < 10 else 0) for name, value in values.items()}


async def main(leaves: int, items: int, writers: int) -> None:
    """Measure and print, a line a figure."""
    with tempfile.TemporaryDirectory() as folder, redis.single(Path(folder)) as started:
        url = started.url
        before = int((await server(url, "memory"))["used_memory"])
        grown = await write(url, 0, leaves, lease_after=1, bind=True)
        print(json.dumps({"grow": rounded(grown)}))
        after = int((await server(url, "memory"))["used_memory"])
        link = await Link.open(RedisSettings(url=url))
        store = RedisTreeStore(link)
        stats = await store.stats(TREE)
        keys = link.keys(TREE)
        parts = {
            name: int(await link.command("MEMORY", "USAGE", key, "SAMPLES", 0) or 0) / stats.nodes
            for name, key in (
                ("rows", keys.nodes),
                ("content", keys.content),
                ("order", keys.order),
                ("events", keys.events),
                ("log", keys.log),
                ("dirty", keys.dirty),
            )
        }
        print(
            json.dumps(
                {
                    "nodes": stats.nodes,
                    "leaves": stats.leaves,
                    "pending": stats.pending,
                    "bytes_per_node": round((after - before) / stats.nodes),
                    "without_log": round((after - before) / stats.nodes - parts["log"]),
                    "estimated_per_node": round(stats.bytes / stats.nodes),
                    "parts": {name: round(value) for name, value in parts.items()},
                }
            )
        )
        begun = time.perf_counter()
        await store.skeleton(TREE)
        print(json.dumps({"skeleton_s": round(time.perf_counter() - begun, 3)}))
        await store.close()
        start = leaves
        for count, batch, lease_after, bind in (
            (1, BATCH, 1, True),
            (writers, BATCH, 0, True),
            (writers, BATCH, 1, True),
            (writers, BATCH, 3, True),
            (writers, BATCH, 3, False),
            (1, 1, 1, True),
            (writers, 1, 1, True),
            (writers, 1, 3, True),
        ):
            share = items if batch > 1 else items // 8
            found = await several(url, count, start, share, lease_after=lease_after, bind=bind, batch=batch)
            start += share
            print(json.dumps({"lease_after": lease_after, "bind": bind, **rounded(found)}))


async def _script_time(url: str) -> float:
    """Microseconds the server has spent in scripts."""
    found = await server(url, "commandstats")
    return sum(float(re.findall(r"usec'?[=:] ?([0-9.]+)", value)[0]) for name, value in found.items() if "evalsha" in name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--leaves", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=4096)
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--writer")
    given = parser.parse_args()
    if given.writer:
        print(json.dumps(asyncio.run(write(**json.loads(given.writer)))))
    else:
        asyncio.run(main(given.leaves, given.items, given.writers))
