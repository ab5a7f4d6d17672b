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
SAMPLE = 4_000


async def grow(path: Path, corpus: Corpus, start: int, count: int) -> float:
    """
    Insert `count` items and return items a second, until all are on disk and in the index; opening and closing are not counted.

    The index follows a second behind, which would hide its work in a short run and not in a long one.
    """
    async with await open_local(path, embedder=GivenVectors(corpus), summaries=False) as memory:
        records = list(corpus.turns(TREE, start, count))
        await memory.stats(TREE) if start else None
        await memory.ingest_stream(iter(records[:64]))  # loads the view
        begun = time.perf_counter()
        await memory.ingest_stream(iter(records[64:]))
        await memory.search(TREE, "item5 word3 word17", k=1)
        return (count - 64) / (time.perf_counter() - begun)


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
        await grow(path, corpus, 0, SMALL)
        small = statistics.median([await grow(Path(folder) / f"s{turn}", corpus, 0, SMALL * 2) for turn in range(3)])
        await grow(path, corpus, SMALL, LARGE - SMALL - SAMPLE)
        large = await grow(path, corpus, LARGE - SAMPLE, SAMPLE)
        await opened(path, corpus)  # brings the index level; the second one finds it so
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
