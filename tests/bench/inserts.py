"""Durable inserts a second with vectors given and summaries queued; memory of the view; time to open."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from memory import open_local
from memory.adapters.embedded.store import SqliteTreeStore
from memory.model import NodeId, TreeId
from memory.tree.view import View
from tests.bench.corpus import Corpus, GivenVectors

TREE = "bench"
SMALL, LARGE = 1_000, 100_000
SAMPLE_SMALL, SAMPLE_LARGE = 1_000, 4_000
RUNS = 5
"""Of the small tree, whose sample takes a fifth of a second."""


async def grow(path: Path, corpus: Corpus, leaves: int, sample: int) -> float:
    """
    Grow a new tree to so many leaves in one process, and return items a second of the last `sample` of them, until all are on disk
    and in the index.

    A stream's cost at that size, as it passes it: opening the tree is a figure of its own. The index follows a second behind, which
    would hide its work in a short run and not in a long one: both samples begin and end with all that came before in the index.
    """
    embedder = GivenVectors(corpus)
    async with await open_local(path, embedder=embedder, summaries=False) as memory:
        await memory.ingest_stream(corpus.turns(TREE, 0, leaves - sample))
        await memory.search(TREE, "item5 word3 word17", k=1)
        records = list(corpus.turns(TREE, leaves - sample, sample))
        embedder.ready(leaves - sample, sample)
        begun = time.perf_counter()
        await memory.ingest_stream(records)
        await memory.search(TREE, "item5 word3 word17", k=1)
        return sample / (time.perf_counter() - begun)


async def opened(path: Path, corpus: Corpus) -> float:
    """Seconds from opening to the first answer."""
    begun = time.perf_counter()
    async with await open_local(path, embedder=GivenVectors(corpus), summaries=False) as memory:
        answer = await memory.search(TREE, "item5 word3 word17", k=10)
        assert answer.hits
        return time.perf_counter() - begun


def view_bytes(view: View) -> float:
    """Bytes a node, counted object by object."""
    seen: set[int] = set()
    total = sys.getsizeof(view.homes) + sys.getsizeof(view.branches)

    def add(thing: object) -> int:
        if id(thing) in seen:
            return 0
        seen.add(id(thing))
        return sys.getsizeof(thing)

    for node in view.homes:
        total += add(node)
    for node, branch in view.branches.items():
        total += add(node) + add(branch) + add(branch.ids) + sum(add(child) for child in branch.ids)
        total += branch.bytes + sys.getsizeof(np.empty(0))
    return total / len(view)


async def main() -> None:
    """Measure and print."""
    corpus = Corpus()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        small = statistics.median(
            [await grow(Path(folder) / f"s{turn}", corpus, SMALL + SAMPLE_SMALL, SAMPLE_SMALL) for turn in range(RUNS)]
        )
        large = await grow(path, corpus, LARGE, SAMPLE_LARGE)
        first_answer = statistics.median([await opened(path, corpus) for _ in range(3)])
        store = await SqliteTreeStore.open(path / "store.db", read_only=True)
        view = View.load(await store.skeleton(TreeId(TREE)))
        stats = await store.stats(TreeId(TREE))
        await store.close()
        assert NodeId("root") in view
        print(
            json.dumps(
                {
                    "inserts_per_s_1k": round(small),
                    "inserts_per_s_100k": round(large),
                    "cost_ratio": round(small / large, 2),
                    "open_s": round(first_answer, 2),
                    "view_bytes_per_node": round(view_bytes(view)),
                    "nodes": len(view),
                    "leaves": stats.leaves,
                    "depths": stats.depths,
                    "root_children": len(view.root),
                    "store_bytes_per_leaf": round(stats.bytes / stats.leaves),
                }
            )
        )


if __name__ == "__main__":
    asyncio.run(main())
