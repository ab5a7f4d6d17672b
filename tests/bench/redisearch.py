"""
RediSearch by its two choices, one exact index that trees share and a graph of a tree's own: what a node costs to write, how long
questions take, and how many of the nearest they find.

`BANYAN_TEST_SEARCH_URL` names a server with the search module; what is written there is taken away again. One tree of clustered
vectors (`tests.bench.corpus`) in updates of 512 nodes, then questions one after the other: the ten nearest, without a filter and of
one speaker (a fifth of the nodes), and what `hybrid` asks for (100 by vector, 100 by words, two neighbours on each side). Recall
is against all vectors as the index keeps them, float16. `python -m tests.bench.redisearch [--sizes 20000 100000]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.index.lexical import words
from memory.adapters.redis import Link, RedisSettings
from memory.adapters.redis.search import RediSearchNodeIndex, SearchSettings
from memory.model import EventId, NodeId, NodeKind, TreeId, mark
from memory.ports.index import IndexEntry, IndexQuery, Scope
from tests.bench.corpus import Corpus
from tests.bench.installation import server_info

SEARCH_URL = "BANYAN_TEST_SEARCH_URL"
TREE = TreeId("bench")
NODES_AN_UPDATE = 512
QUESTIONS, FIRST_ASKED = 200, 1_000_000
NEAREST = 10
SPEAKER = "speaker3"
CHOICES = {"shared": 10**9, "own": 1}
"""The number of nodes from which a tree has an index of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one choice at one size; times in milliseconds."""

    nodes: int
    nodes_per_s: float
    write_ms: float
    """Processor time of the server a node."""
    bytes_per_node: float
    recall: float
    filtered_recall: float
    nearest_ms: tuple[float, float]
    """p50 and p99."""
    hybrid_ms: tuple[float, float]
    hybrid_server_ms: float
    """Processor time of the server a question."""


def entries(count: int, vectors: NDArray[np.float32]) -> list[IndexEntry]:
    """The leaves of a tree of conversations."""
    return [
        IndexEntry(
            node=NodeId(f"n{number}"),
            kind=NodeKind.LEAF,
            mark=mark(1 + number // NODES_AN_UPDATE, number % NODES_AN_UPDATE),
            vector=vectors[number],
            text=turn.text,
            event_id=EventId(turn.id),
            sequence=turn.conversation,
            conversation=turn.conversation,
            speaker=turn.speaker,
            at=turn.at,
        )
        for number, turn in enumerate(Corpus().turns(TREE, 0, count))
    ]


async def _used(url: str) -> tuple[float, int]:
    """Processor seconds of the server, and bytes that it holds, those of indexes included."""
    found = await server_info(url, "everything")
    return float(found["used_cpu_sys"]) + float(found["used_cpu_user"]), int(found["used_memory"])


async def _asked(index: RediSearchNodeIndex, queries: Sequence[IndexQuery]) -> tuple[list[set[NodeId]], tuple[float, float]]:
    found, took = list[set[NodeId]](), list[float]()
    for query in queries:
        begun = time.perf_counter()
        answer = await index.search(TREE, query)
        took.append((time.perf_counter() - begun) * 1000)
        found.append({each.node for each in answer.found})
    p50, p99 = np.percentile(took, [50, 99])
    return found, (round(float(p50), 2), round(float(p99), 2))


def _recall(found: Sequence[set[NodeId]], cosines: NDArray[np.float32], rows: NDArray[np.int64]) -> float:
    nearest = rows[np.argsort(-cosines[:, rows], axis=1)[:, :NEAREST]]
    hits = sum(f"n{number}" in one for one, best in zip(found, nearest, strict=True) for number in best)
    return round(hits / nearest.size, 4)


async def measure(url: str, choice: str, size: int) -> Figures:
    """Fill an index and ask it."""
    vectors = Corpus().vectors(0, size).astype(np.float16).astype(np.float32)
    leaves = entries(size, vectors)
    link = await Link.open(RedisSettings(url=url, prefix=f"bench-{choice}-{size}"))
    index = RediSearchNodeIndex(link, tokenize=words, settings=SearchSettings(own_from=CHOICES[choice]), owns_link=True)
    try:
        (cpu, held), begun = await _used(url), time.perf_counter()
        for start in range(0, size, NODES_AN_UPDATE):
            seq = 1 + start // NODES_AN_UPDATE
            if not await index.update(TREE, after=seq - 1, seq=seq, upserts=leaves[start : start + NODES_AN_UPDATE]):
                raise RuntimeError(f"{url} holds a tree of this bench already; is another one running?")
        seconds = time.perf_counter() - begun
        written, grown = await _used(url)
        asked = Corpus().vectors(FIRST_ASKED, QUESTIONS)
        cosines = asked @ vectors.T
        plain = [IndexQuery(vector=row, terms="", dense_k=NEAREST, lexical_k=0) for row in asked]
        of_one = [IndexQuery(vector=row, terms="", dense_k=NEAREST, lexical_k=0, scope=Scope(speaker=SPEAKER)) for row in asked]
        texts = Corpus().texts(FIRST_ASKED, QUESTIONS)
        hybrid = [
            IndexQuery(vector=row, terms=" ".join(text.split()[:8]), spread=2) for row, text in zip(asked, texts, strict=True)
        ]
        found, nearest_ms = await _asked(index, plain)
        filtered, _ = await _asked(index, of_one)
        before, _ = await _used(url)
        _, hybrid_ms = await _asked(index, hybrid)
        after, _ = await _used(url)
        return Figures(
            nodes=size,
            nodes_per_s=round(size / seconds),
            write_ms=round((written - cpu) / size * 1000, 3),
            bytes_per_node=round((grown - held) / size),
            recall=_recall(found, cosines, np.arange(size)),
            filtered_recall=_recall(filtered, cosines, np.flatnonzero([leaf.speaker == SPEAKER for leaf in leaves])),
            nearest_ms=nearest_ms,
            hybrid_ms=hybrid_ms,
            hybrid_server_ms=round((after - before) / QUESTIONS * 1000, 2),
        )
    finally:
        await index.wipe()
        await index.close()


async def main(sizes: Sequence[int]) -> None:
    """Measure and print."""
    url = os.environ[SEARCH_URL]
    print(json.dumps({choice: [asdict(await measure(url, choice, size)) for size in sizes] for choice in CHOICES}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=(20_000, 100_000))
    asyncio.run(main(parser.parse_args().sizes))
