"""
Summaries a second by 16 calls at once in four processes, and by sixteen in one, against one call: the model answers after a second.

Everything but the model is real: trees in a Redis with an append-only file, claims and the provider's budget in it, the client of
the OpenAI API over HTTP. Each process has the jobs of its share of the nodes, as Kafka's partitions would give them to it.

    python -m tests.bench.pool [--seconds 20]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.extractive import ExtractiveKeywords
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.model import TreeId
from memory.service.ingest import Ingest
from memory.service.pool import SummaryPool
from memory.service.stream import stream
from memory.service.summarize import Summarize
from memory.service.views import Views
from memory.settings import IngestSettings, SummarySettings
from streams.bootstrap import open_backend
from streams.models import open_summarizer
from streams.settings import Settings, load
from tests.bench.example import example_turns
from tests.servers import redis

SECONDS_A_CALL = 1.0
TREES = 6
UNLIMITED = "1000000"
"""Requests and tokens a minute far above what is used: what the budget costs is in the figure."""
ANSWER = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "A summary."}, "finish_reason": "stop"}]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """How many processes, and how many calls at once in each."""

    processes: int
    calls: int


CREWS = {"1": Crew(processes=1, calls=1), "1 x 16": Crew(processes=1, calls=16), "4 x 4": Crew(processes=4, calls=4)}


async def serve() -> None:
    """A chat server that takes a second for each answer; prints its port."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = head.decode().lower().split("\r\n")
            length = next(int(line.split(":")[1]) for line in lines if line.startswith("content-length:"))
            await reader.readexactly(length)
            await asyncio.sleep(SECONDS_A_CALL)
            body = json.dumps({"id": "x", "object": "chat.completion", "created": 0, "model": "slow", **ANSWER}).encode()
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


def settings() -> Settings:
    """From the environment that `main` makes."""
    return load(os.environ).settings


async def fill() -> None:
    """The example turns into each of the trees."""
    chosen = settings()
    backend = await open_backend(chosen)
    ingest = Ingest(
        store=backend.store,
        leases=backend.leases,
        jobs=InProcessSummaryJobs(SystemClock()),
        embedder=HashingEmbedder(),
        clock=SystemClock(),
        views=Views(backend.store, bytes_max=1 << 28),
        settings=IngestSettings(),
    )
    for number in range(TREES):
        records = [msgspec.structs.replace(turn, tree=f"t{number}") for turn in example_turns()]
        await stream(ingest, records, batch_items=64)
    await backend.close()


async def work(index: int, crew: Crew, seconds: float) -> None:
    """Have a pool do its share for so long after a line on standard input; print how many summaries it wrote."""
    chosen = settings()
    backend, clock = await open_backend(chosen), SystemClock()
    summarizer = open_summarizer(chosen, backend.budget)
    limits = replace(SummarySettings(), workers=crew.calls)
    jobs = InProcessSummaryJobs(clock)
    summarize = Summarize(
        store=backend.store,
        leases=backend.leases,
        embedder=HashingEmbedder(),
        summarizer=summarizer,
        keywords=ExtractiveKeywords(),
        clock=clock,
        settings=limits,
    )
    pool = SummaryPool(jobs=jobs, claims=backend.claims, summarize=summarize, settings=limits)
    for number in range(TREES):
        tree = TreeId(f"t{number}")
        dirty = await backend.store.dirty(tree, limit=100_000)
        mine = [each.node for each in dirty if zlib.crc32(f"{tree}/{each.node}".encode()) % crew.processes == index]
        await jobs.put(tree, mine)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    pool.start()
    await asyncio.sleep(seconds)
    counts = pool.counts
    print(json.dumps({"written": counts.written, "failed": counts.failed, "left": jobs.backlog()}), flush=True)
    await pool.stop()
    await summarizer.close()
    await backend.close()


@contextmanager
def chat() -> Iterator[str]:
    """The address of a slow chat server."""
    process = subprocess.Popen([sys.executable, "-m", "tests.bench.pool", "serve"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
    finally:
        process.kill()
        process.wait()


def measured(crew: Crew, seconds: float) -> dict[str, int]:
    """What a crew does in that time."""
    started = [
        subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.bench.pool",
                "work",
                f"--seconds={seconds}",
                f"--index={index}",
                f"--crew={crew.processes}x{crew.calls}",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(crew.processes)
    ]
    for each in started:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    for each in started:
        assert each.stdin is not None
        each.stdin.write("go\n")
        each.stdin.flush()
    found = [json.loads(each.stdout.readline()) for each in started if each.stdout is not None]
    for each in started:
        each.wait()
    assert all(one["left"] > crew.calls for one in found), "all had enough to do to the end"
    return {name: sum(one[name] for one in found) for name in ("written", "failed")}


async def main(seconds: float) -> None:
    """Measure each crew on trees of its own and print."""
    rates = {}
    with chat() as address:
        for name, crew in CREWS.items():
            with tempfile.TemporaryDirectory() as folder, redis.single(Path(folder)) as server:
                os.environ |= {
                    "BANYAN_STORE": server.url,
                    "BANYAN_EMBEDDER": "hashing",
                    "BANYAN_SUMMARIZER": "openai:slow",
                    "OPENAI_BASE_URL": address,
                    "BANYAN_OPENAI_REQUESTS_PER_MINUTE": UNLIMITED,
                    "BANYAN_OPENAI_TOKENS_PER_MINUTE": UNLIMITED + "000",
                }
                await fill()
                done = await asyncio.to_thread(measured, crew, seconds)
                assert not done["failed"], done
                rates[name] = done["written"] / seconds
    base = rates["1"]
    print(
        json.dumps(
            {
                "seconds_a_call": SECONDS_A_CALL,
                "summaries_per_s": {name: round(rate, 2) for name, rate in rates.items()},
                "one_process_ratio": round(rates["1 x 16"] / base, 1),
                "four_processes_ratio": round(rates["4 x 4"] / base, 1),
            }
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="?", choices=("serve", "work"))
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--index", type=int, default=0)
    parser.add_argument("--crew", default="1x1")
    options = parser.parse_args()
    if options.what == "serve":
        asyncio.run(serve())
    elif options.what == "work":
        processes, calls = map(int, options.crew.split("x"))
        asyncio.run(work(options.index, Crew(processes=processes, calls=calls), options.seconds))
    else:
        asyncio.run(main(options.seconds))
