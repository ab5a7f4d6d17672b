"""Turns a second, end to end and offline (local model, extractive): until searchable, until all summaries are fresh."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from memory import open_local
from memory.adapters.minilm import MiniLmEmbedder
from tests.bench.example import data_folder, example_turns, locomo_turns


async def main() -> None:
    """Measure and print."""
    folder = data_folder()
    turns = locomo_turns(folder) if folder is not None else example_turns()
    embedder = MiniLmEmbedder.open()
    await embedder.embed(["warm"])
    begun = time.perf_counter()
    for start in range(0, len(turns), 64):
        await embedder.embed([f"{turn.speaker}: {turn.text}" for turn in turns[start : start + 64]])
    own = len(turns) / (time.perf_counter() - begun)
    committed, fresh, rewrites = [], [], 0.0
    await embedder.close()
    for _ in range(3):
        async with await open_local() as memory:
            await memory.ingest([{"tree": "warm", "id": "w", "text": "warm up"}])
            begun = time.perf_counter()
            await memory.ingest_stream(iter(turns))
            for tree in {turn.tree for turn in turns}:
                await memory.search(tree, "what was said last?", k=1)
            committed.append(len(turns) / (time.perf_counter() - begun))
            assert await memory.fresh()
            fresh.append(len(turns) / (time.perf_counter() - begun))
            rewrites = memory.summary_counts.written / len(turns)
    print(
        json.dumps(
            {
                "data": "LoCoMo" if folder is not None else "examples",
                "turns": len(turns),
                "embedder_alone_per_s": round(own),
                "searchable_per_s": round(statistics.median(committed)),
                "fresh_per_s": round(statistics.median(fresh)),
                "searchable_share_of_embedder": round(statistics.median(committed) / own, 2),
                "rewrites_per_item": round(rewrites, 2),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
