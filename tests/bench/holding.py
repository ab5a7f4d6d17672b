"""
What 100,000 nodes of one tree take: in Redis, without an index; in the memory of an ingest worker that holds them all.

`python -m tests.bench.holding [--nodes 100000]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json

import numpy as np

from tests.bench.installation import Installation, corpus, installed, send, server_info
from tests.bench.writers import TREE, Writer

AT_ONCE = 2_048
"""Items put in between two looks at how many nodes there are."""
BATCH = 64
LAST = 200
"""Records that the worker takes from Kafka: with the first it loads the tree."""


async def grow(servers: Installation, nodes: int) -> int:
    """Let a tree grow to so many nodes; returns how many items went in."""
    writer = await Writer.open(servers.redis.url)
    items, there = LAST, 0  # the first are the worker's
    while there < nodes:
        for prepared in await writer.prepare(items, AT_ONCE, BATCH):
            await writer.ingest.commit(prepared, prepared.records)
        items += AT_ONCE
        there = (await writer.store.stats(TREE)).nodes
    await writer.store.close()
    return items - LAST


async def main(nodes: int) -> None:
    """Measure and print."""
    with installed() as servers:
        before = int((await server_info(servers.redis.url, "memory"))["used_memory"])
        await grow(servers, nodes)
        after = int((await server_info(servers.redis.url, "memory"))["used_memory"])
        reader = await Writer.open(servers.redis.url)
        stats = await reader.store.stats(TREE)
        await reader.store.close()
        own = servers.fresh("holding")
        await own.install()
        records, vectors = corpus(LAST, 1)
        file = servers.folder / "holding.npy"
        np.save(file, vectors)
        await send(own.settings, records)
        worker = await own.said("ingest", str(file), str(LAST))
    figures = {
        "nodes": stats.nodes,
        "leaves": stats.leaves,
        "redis_bytes_per_node": round((after - before) / stats.nodes),
        "worker_mb": round(worker["rss_mb"]),
        "worker_peak_mb": round(worker["rss_max_mb"]),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().nodes))
