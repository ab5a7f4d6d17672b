"""The local embedder's own rate: short texts batched, one at a time, long chunks, loading."""

from __future__ import annotations

import asyncio
import json
import statistics
import time

from memory.adapters.minilm import MiniLmEmbedder
from tests.bench.example import example_turns


async def main() -> None:
    """Measure and print."""
    begun = time.perf_counter()
    embedder = MiniLmEmbedder.open()
    await embedder.embed(["first"])
    load = time.perf_counter() - begun
    texts = [turn.text for turn in example_turns()] * 3
    begun = time.perf_counter()
    for start in range(0, len(texts), 64):
        await embedder.embed(texts[start : start + 64])
    batched = len(texts) / (time.perf_counter() - begun)
    single = []
    for text in texts[:100]:
        begun = time.perf_counter()
        await embedder.embed([text], purpose="query")
        single.append((time.perf_counter() - begun) * 1000)
    chunks = [" ".join(texts)[start : start + 2_000] for start in range(0, 64_000, 2_000)]
    begun = time.perf_counter()
    await embedder.embed(chunks)
    long = len(chunks) / (time.perf_counter() - begun)
    await embedder.close()
    print(
        json.dumps(
            {
                "short_texts_per_s": round(batched),
                "single_p50_ms": round(statistics.median(single), 2),
                "chunks_of_2000_characters_per_s": round(long, 1),
                "load_s": round(load, 2),
            }
        )
    )


if __name__ == "__main__":
    asyncio.run(main())
