"""Search in a tree of 100,000 leaves, the query's vector given: latency of each strategy."""

from __future__ import annotations

import asyncio
import json
import resource
import tempfile
import time
from pathlib import Path

import numpy as np

from memory import open_local
from tests.bench.corpus import Corpus, GivenVectors

TREE = "bench"
LEAVES = 100_000
QUERIES = 300


async def main() -> None:
    """Measure and print."""
    corpus = Corpus()
    random = np.random.default_rng(3)
    with tempfile.TemporaryDirectory() as folder:
        async with await open_local(Path(folder), embedder=GivenVectors(corpus), summaries=False) as memory:
            await memory.ingest_stream(corpus.turns(TREE, 0, LEAVES))
            texts = corpus.texts(LEAVES, QUERIES)
            questions = [" ".join(text.split()[: random.integers(5, 12)]) for text in texts]
            result: dict[str, float] = {}
            for strategy in ("hybrid", "collapsed", "traversal"):
                for question in questions[:20]:
                    await memory.search(TREE, question, k=10, strategy=strategy)
                times = []
                for question in questions:
                    begun = time.perf_counter()
                    await memory.search(TREE, question, k=10, strategy=strategy)
                    times.append((time.perf_counter() - begun) * 1000)
                result[f"{strategy}_p50_ms"] = round(float(np.percentile(times, 50)), 2)
                result[f"{strategy}_p99_ms"] = round(float(np.percentile(times, 99)), 2)
            result["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
            print(json.dumps(result))


if __name__ == "__main__":
    asyncio.run(main())
