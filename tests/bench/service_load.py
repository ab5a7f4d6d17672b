"""What the query service is put under: clients that ask over HTTP, and a process that ingests beside it at an even rate."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

import numpy as np

from memory.facade import LocalMemory
from memory.local import open_local, open_shared
from memory.ports.summarizer import Summarizer, Summary, SummaryRequest
from streams.bootstrap import open_backend
from streams.models import open_embedder
from streams.settings import load
from tests.bench.corpus import Corpus, GivenVectors

TREE = "bench"
TICK = 0.02  # seconds
"""What has come in so long is committed together, about as a worker does."""
SAID_EVERY = 0.2  # seconds


class Asking:
    """One connection that is kept. Reads no more of HTTP than the service writes, so that asking costs little."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Self:
        """Connect to this machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def search(self, query: str, **more: object) -> dict[str, Any]:
        """The answer to a question; raises when it is no answer."""
        body = json.dumps({"query": query, "k": 10, **more}).encode()
        head = f"POST /v1/trees/{TREE}/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        self._writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        status, *fields = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(int(field.partition(":")[2]) for field in fields if field.startswith("content-length:"))
        answer = await self._reader.readexactly(length)
        if " 200 " not in status:
            raise RuntimeError(f"{status}: {answer[:300]!r}")
        found: dict[str, Any] = json.loads(answer) if more else {}
        return found

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


async def ask(port: int, questions: Sequence[str], *, clients: int = 1) -> tuple[list[float], float]:
    """Ask all of them, each client one after the other; the seconds that each took, and that all took."""
    times: list[float] = []
    left: Iterator[str] = iter(questions)

    async def one() -> None:
        asking = await Asking.open(port)
        for question in left:
            begun = time.perf_counter()
            await asking.search(question)
            times.append(time.perf_counter() - begun)
        asking.close()

    begun = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(clients)))
    return times, time.perf_counter() - begun


def quantiles(times: Sequence[float]) -> tuple[float, float]:
    """p50 and p99, in milliseconds."""
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    return round(float(p50), 2), round(float(p99), 2)


class Brief(Summarizer):
    """The beginnings of the texts: a tree's summaries are made in a minute instead of ten, and as long as the extractive ones."""

    @property
    def name(self) -> str:
        """See `Summarizer.name`."""
        return "brief"

    @property
    def vector_from_text(self) -> bool:
        """False: the mean of the leaves."""
        return False

    @property
    def tokens_max(self) -> int:
        """See `Summarizer.tokens_max`."""
        return 10_000

    async def summarize(self, request: SummaryRequest) -> Summary:
        """See `Summarizer.summarize`."""
        return Summary(text="\n".join(text[:120] for text in (request.existing, *request.new)[:4])[:400])


@asynccontextmanager
async def writing(store: str, *, summaries: bool = False) -> AsyncIterator[LocalMemory]:
    """A memory over the store that takes a corpus's vectors for the local model's: what is measured is no embedding of items."""
    settings = load({"BANYAN_STORE": store}).settings
    local = await open_embedder(settings)
    embedder = GivenVectors(Corpus(), local.model)
    await local.close()
    if settings.store_is_redis:
        backend = await open_backend(settings)
        opened = await open_shared(
            backend.store,
            backend.leases,
            backend.claims,
            embedder=embedder,
            summarizer=Brief(),
            release=backend.close,
            summaries=summaries,
        )
    else:
        opened = await open_local(settings.store_path, embedder=embedder, summarizer=Brief(), summaries=summaries)
    async with opened as memory:
        yield memory


async def ingest(store: str, start: int, rate: float) -> None:
    """Put items in at an even rate until the process is ended; says now and then how many went in, and in how many seconds."""
    corpus = Corpus()
    async with writing(store) as memory:
        await memory.ingest(corpus.turns(TREE, start, 1))  # loads the view
        begun, told, done = time.perf_counter(), 0.0, 0
        while True:
            seconds = time.perf_counter() - begun
            due = min(1_000, int(seconds * rate) - done)
            if due:
                await memory.ingest(corpus.turns(TREE, start + 1 + done, due))
                done += due
            if seconds - told > SAID_EVERY or not told:
                told = seconds
                print(json.dumps([done, time.perf_counter() - begun]), flush=True)
            await asyncio.sleep(TICK)


@asynccontextmanager
async def ingest_beside(store: str, start: int, rate: float) -> AsyncIterator[Callable[[], float]]:
    """`ingest` in a process of its own, once it has begun; gives what says how many items a second went in."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.bench.service_load", store, str(start), str(rate), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    said: list[tuple[int, float]] = [json.loads(await process.stdout.readline())]

    async def listen(lines: asyncio.StreamReader) -> None:
        while line := await lines.readline():
            said.append(json.loads(line))

    listening = asyncio.create_task(listen(process.stdout))
    try:
        yield lambda: said[-1][0] / said[-1][1]
    finally:
        process.kill()
        await process.wait()
        await listening


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store")
    parser.add_argument("start", type=int)
    parser.add_argument("rate", type=float)
    given = parser.parse_args()
    asyncio.run(ingest(given.store, given.start, given.rate))
