"""MemGAS with 10,000 units: search by `router`, also right after a commit, and what an insertion costs as the tree grows."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from memory import open_local
from memory.service.chunking import items
from memory.structures.memgas import GRANULARITIES, MemGas
from memory.structures.parameters import MemGasParameters
from memory.tree.planning import Insertion
from memory.tree.view import View
from tests.bench.corpus import DIMENSION, TURNS_PER_CONVERSATION, Corpus, GivenVectors

TREE = "bench"
UNITS = 10_000
QUERIES = 300
AFTER_COMMITS = 20
UNITS_PER_TURN = 1 + len(GRANULARITIES) / TURNS_PER_CONVERSATION
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000)
"""Units at which the cost of an insertion is measured."""
SAMPLE = 256
"""Insertions that it is the mean of."""
ALL = 4_096
"""A neighbourhood that holds all sessions: every unit is compared, as in the paper."""


async def searches(corpus: Corpus) -> dict[str, float]:
    """Times of whole searches, the query's vector given: texts, sources and ancestors of ten hits included."""
    random = np.random.default_rng(3)
    turns = round(UNITS / UNITS_PER_TURN)
    with tempfile.TemporaryDirectory() as folder:
        async with await open_local(Path(folder), embedder=GivenVectors(corpus), structure=MemGas.name, summaries=False) as memory:
            await memory.ingest_stream(corpus.turns(TREE, 0, turns))
            stats = await memory.stats(TREE)
            texts = corpus.texts(100_000, QUERIES + AFTER_COMMITS)
            questions = [" ".join(text.split()[: random.integers(5, 12)]) for text in texts]

            async def timed(question: str) -> tuple[float, float]:
                begun, used = time.perf_counter(), time.process_time()
                await memory.search(TREE, question, k=10, strategy="router")
                return (time.perf_counter() - begun) * 1000, (time.process_time() - used) * 1000

            for question in questions[:20]:
                await timed(question)
            times = [await timed(question) for question in questions[:QUERIES]]
            after = []
            for number, question in enumerate(questions[QUERIES:]):
                await memory.ingest(corpus.turns(TREE, turns + number, 1))
                await memory.search(TREE, question, k=1, strategy="bm25")  # brings view and index level
                after.append(await timed(question))
    return {
        "units": stats.nodes,
        **_percentiles("router", times),
        **_percentiles("router_after_a_commit", after),
    }


def _percentiles(name: str, times: Sequence[tuple[float, float]]) -> dict[str, float]:
    """Of times as (wall, processor), in ms."""
    wall, used = zip(*times, strict=True)
    return {
        f"{name}_p50_ms": round(float(np.percentile(wall, 50)), 2),
        f"{name}_p99_ms": round(float(np.percentile(wall, 99)), 2),
        f"{name}_cpu_p50_ms": round(float(np.percentile(used, 50)), 2),
        f"{name}_cpu_p99_ms": round(float(np.percentile(used, 99)), 2),
    }


def insertions(corpus: Corpus, neighbourhood: int, sizes: tuple[int, ...]) -> dict[str, float]:
    """Processor time of planning one insertion, in ms, by the units that are there; batches of 32."""
    model = GivenVectors(corpus).model
    memgas = MemGas(model, MemGasParameters(neighbourhood=neighbourhood))
    quick = MemGas(model, MemGasParameters(neighbourhood=1, links_max=1))
    view = View(DIMENSION)
    cost: dict[str, float] = {}
    start = 0
    for size in sizes:
        turns = round(size / UNITS_PER_TURN)
        for chunk in _in_batches(_insertions(corpus, start, turns - start), 32):
            quick.plan(view, chunk)  # the edges of those that are there do not matter to what comes
        begun = time.process_time()
        for chunk in _in_batches(_insertions(corpus, turns, SAMPLE), 32):
            memgas.plan(view, chunk)
        cost[str(size)] = round((time.process_time() - begun) / SAMPLE * 1000, 3)
        start = turns + SAMPLE
    return cost


def _insertions(corpus: Corpus, start: int, count: int) -> list[Insertion]:
    vectors = corpus.vectors(start, count)
    found = [item for turn in corpus.turns(TREE, start, count) for item in items(turn, chunk_tokens=256)]
    return [Insertion(item=item, vector=vector) for item, vector in zip(found, vectors, strict=True)]


def _in_batches(insertions: Sequence[Insertion], size: int) -> Iterator[Sequence[Insertion]]:
    for start in range(0, len(insertions), size):
        yield insertions[start : start + size]


async def main() -> None:
    """Measure and print."""
    corpus = Corpus()
    result = await searches(corpus)
    print(
        json.dumps(
            {
                **result,
                "insert_ms_by_units": insertions(corpus, MemGasParameters().neighbourhood, SIZES),
                "insert_all_pairs_ms_by_units": insertions(corpus, ALL, SIZES[:4]),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
