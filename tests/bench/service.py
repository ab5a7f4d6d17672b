"""
The query service over a tree of 100,000 nodes: `banyan serve` on a file, and beside a Redis with an index of its own (replica).

Searches over HTTP by one client and by 16, the latter also while another process ingests; how soon another process's commit is
found; memory. The items' vectors are given (clustered, `tests.bench.corpus`); questions are embedded by the local model, and asked
once before they are measured where their vectors are to be in the query cache. The clients run in the measuring process, on the
same cores.
`python -m tests.bench.service [--nodes 100000] [--kinds embedded replica]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from memory.facade import LocalMemory
from tests.bench.corpus import Corpus
from tests.bench.service_load import TREE, Asking, ask, ingest_beside, quantiles, writing
from tests.servers import redis

QUESTIONS = 400
AT_ONCE = 2_000
"""Searches of 16 clients."""
CLIENTS = 16
RATE = 500.0
"""Items a second that another process ingests."""
COMMITS = 100
GROWN_BY = 4_096
FIRST_ASKED = 1_000_000
"""Number of the first item whose words are asked for; none of these goes in."""


@dataclass(frozen=True, slots=True)
class Serving:
    """A service in a process of its own."""

    port: int
    pid: int

    @property
    def cpu(self) -> float:
        """Seconds of a processor that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def megabytes(self, name: str) -> int:
        """`VmRSS` or, of its life, `VmHWM`."""
        [line] = [line for line in Path(f"/proc/{self.pid}/status").read_text().splitlines() if line.startswith(name)]
        return round(int(line.split()[1]) / 1024)


@contextmanager
def served(store: str, folder: Path) -> Iterator[Serving]:
    """`banyan serve` over the store."""
    own = {
        "BANYAN_STORE": store,
        "BANYAN_AUTH": "off",
        "BANYAN_SERVE_INGEST": "direct",
        "BANYAN_INDEX": "replica",
        "BANYAN_SERVE_RATE": "1000000",
        "BANYAN_SERVE_TIMEOUT": "10m",
        "BANYAN_EMBEDDER": "local",
    }
    with (folder / "serve.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "streams.cli", "serve", "--port", "0", "--json"],
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        if not line:
            raise RuntimeError((folder / "serve.log").read_text()[-3000:])
        yield Serving(int(json.loads(line)["url"].rpartition(":")[2]), process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def questions(start: int, count: int) -> list[str]:
    """Texts of 5 to 11 words."""
    random = np.random.default_rng(start)
    return [" ".join(text.split()[: random.integers(5, 12)]) for text in Corpus().texts(FIRST_ASKED + start, count)]


async def grow(store: str, nodes: int) -> tuple[int, int]:
    """Let the tree grow to so many nodes, none of them pending; returns how many there are, and of how many items."""
    corpus = Corpus()
    async with writing(store) as memory:
        items, there = 0, 0
        while there < nodes:
            await memory.ingest_stream(corpus.turns(TREE, items, GROWN_BY))
            items += GROWN_BY
            there = (await memory.stats(TREE)).nodes
    async with writing(store, summaries=True) as memory:
        await memory.fresh(TREE)
    return there, items


async def freshness(memory: LocalMemory, port: int, start: int) -> dict[str, float]:
    """
    From the acknowledgement of another process's commit until a search has it: one that is asked then, and one that waits for it.

    Each question's vector is in the cache.
    """
    asking, took, waited = await Asking.open(port), list[float](), list[float]()
    turns = list(Corpus().turns(TREE, start, 2 * COMMITS))
    for number, turn in enumerate(turns):
        await asking.search(turn.text)
        waits = number % 2 == 1
        if waits:
            task = asyncio.create_task(asking.search(turn.text, wait_for=turn.id, wait_seconds=30))
            await asyncio.sleep(0.02 + 0.2 * (number % 20) / 20)
            await memory.ingest([turn])
            begun = time.perf_counter()
            answer = await task
        else:
            await memory.ingest([turn])
            begun = time.perf_counter()
            answer = await asking.search(turn.text, explain=False)
        (waited if waits else took).append(time.perf_counter() - begun)
        if turn.id not in [hit["event_id"] for hit in answer["hits"]]:
            raise RuntimeError(f"{turn.id} was committed and not found")
    asking.close()
    p50, p99 = quantiles(took)
    waited_p50, waited_p99 = quantiles(waited)
    return {"found_p50_ms": p50, "found_p99_ms": p99, "waited_p50_ms": waited_p50, "waited_p99_ms": waited_p99}


async def throughput(serving: Serving, asked: Sequence[str]) -> dict[str, float]:
    """Searches by all clients."""
    used = serving.cpu
    times, seconds = await ask(serving.port, asked, clients=CLIENTS)
    p50, p99 = quantiles(times)
    cpu = (serving.cpu - used) / len(times) * 1000
    return {"per_s": round(len(times) / seconds), "p50_ms": p50, "p99_ms": p99, "cpu_ms": round(cpu, 2)}


async def measure(store: str, folder: Path, nodes: int) -> dict[str, Any]:
    """All figures of one kind of store."""
    nodes, items = await grow(store, nodes)
    result: dict[str, Any] = {"nodes": nodes, "leaves": items}
    with served(store, folder) as serving:
        port = serving.port
        begun = time.perf_counter()
        await ask(port, questions(0, 1))
        result["first_answer_s"] = round(time.perf_counter() - begun, 2)
        result["mb"] = serving.megabytes("VmRSS")
        asked = questions(1_000, QUESTIONS)
        result["embedded_p50_ms"], result["embedded_p99_ms"] = quantiles((await ask(port, asked))[0])
        used = serving.cpu
        result["p50_ms"], result["p99_ms"] = quantiles((await ask(port, asked))[0])
        result["cpu_ms"] = round((serving.cpu - used) / len(asked) * 1000, 2)
        many = [asked[number % QUESTIONS] for number in range(AT_ONCE)]
        result["at_once"] = await throughput(serving, many)
        async with ingest_beside(store, items, RATE) as rate:
            result["while_ingesting"] = await throughput(serving, many)
            result["ingested_per_s"] = round(rate())
        result["p99_growth"] = round(result["while_ingesting"]["p99_ms"] / result["at_once"]["p99_ms"], 2)
        result["later_mb"] = serving.megabytes("VmRSS")
        async with writing(store) as memory:
            result |= await freshness(memory, port, 2 * FIRST_ASKED)
        result["peak_mb"] = serving.megabytes("VmHWM")
    return result


async def main(nodes: int, kinds: Sequence[str]) -> None:
    """Measure and print."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="banyan-bench-") as name:
        folder = Path(name)
        if "embedded" in kinds:
            result["embedded"] = await measure(f"sqlite:///{folder}/memory", folder, nodes)
        if "replica" in kinds:
            with redis.single(folder / "redis") as server:
                result["replica"] = await measure(server.url, folder, nodes)
    print(json.dumps(result))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--kinds", nargs="+", choices=("embedded", "replica"), default=("embedded", "replica"))
    given = parser.parse_args()
    asyncio.run(main(given.nodes, given.kinds))
