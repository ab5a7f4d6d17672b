"""
Model calls an item against the arrival rate (P5), with a summarizer that takes a second, 16 calls at once, in virtual time.

    python -m tests.bench.llm_calls [--items 1000] [--texts FILE.jsonl] [--linger SECONDS...] [--json]

`--texts` takes turns or documents as `banyan ingest` does, embedded by the local model; without it the items are synthetic and
clustered. Everything but time is real: the tree, the tables, the queue and the pool.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memory.changes import Create, Grow, Rewrite
from memory.model import EmbeddingModel, NodeId, NodeKind, mark
from memory.ports.embedder import Embedder, Purpose
from memory.records import Record, parse
from memory.settings import MemorySettings, SummarySettings
from tests.bench.corpus import Corpus, GivenVectors
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.virtual_time import LoopClock, run_virtually
from tests.fakes.world import TREE, World

RATES = (1.0, 20.0, 100.0, 400.0)
SECONDS_MIN = 20.0
"""Of arrivals at a rate, where there are enough items: twice the linger, or nothing would be asked while they arrive."""
SECONDS_A_CALL = 1.0
CALLS_AT_ONCE = 16
TOKENS_MAX = 4_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the curve."""

    linger: float
    """`SummarySettings.linger`, in seconds."""
    rate: float
    """Items a second."""
    items: int
    contributions: float
    """Calls an item if every contribution cost one."""
    streaming: float
    """Calls an item until the last item was in."""
    total: float
    """Calls an item until every summary was fresh."""
    drain_seconds: float
    """From the last item until every summary was fresh."""
    stale_p50: float
    stale_p99: float
    """Seconds from a contribution to the summary that covers it."""
    commit_p99: float
    """Seconds an insertion took, of which it waits none for a model."""


class Remembered(Embedder):
    """Vectors that were made before: a model's threads have no place in virtual time."""

    def __init__(self, model: EmbeddingModel, vectors: dict[str, NDArray[np.float32]]) -> None:
        self._model = model
        self._vectors = vectors

    @property
    def model(self) -> EmbeddingModel:
        """The one that made them."""
        return self._model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """As they were made."""
        del purpose
        return np.stack([self._vectors[text] for text in texts])


async def measure(rate: float, records: Sequence[Record], embedder: Embedder, folder: Path, settings: SummarySettings) -> Point:
    """Let the items arrive evenly, then wait until every summary is fresh."""
    summarizer = FakeSummarizer(LoopClock(), delay=SECONDS_A_CALL, tokens_max=TOKENS_MAX)
    world = World(
        folder / "store.db",
        embedder=embedder,
        summarizer=summarizer,
        settings=MemorySettings(summaries=settings),
        linger=settings.linger.total_seconds(),
    )
    world.pool.start()
    clock = world.clock
    waits = []
    for number, record in enumerate(records):
        await clock.sleep(number / rate - clock.monotonic())
        before = clock.monotonic()
        await world.put(record)
        waits.append(clock.monotonic() - before)
    calls = len(summarizer.requests)
    last = clock.monotonic()
    await world.idle(1e9)
    stats = await world.store.stats(TREE)
    assert stats.dirty == 0
    contributions, stale = await _staleness(world)
    point = Point(
        linger=settings.linger.total_seconds(),
        rate=rate,
        items=stats.leaves,
        contributions=contributions / stats.leaves,
        streaming=calls / stats.leaves,
        total=len(summarizer.requests) / stats.leaves,
        drain_seconds=clock.monotonic() - last,
        stale_p50=float(np.percentile(stale, 50)),
        stale_p99=float(np.percentile(stale, 99)),
        commit_p99=float(np.percentile(waits, 99)),
    )
    await world.close()
    return point


async def _staleness(world: World) -> tuple[int, list[float]]:
    """From the change log: the number of contributions, and how long each waited."""
    waiting: dict[NodeId, list[tuple[int, float]]] = {}
    stale: list[float] = []
    count = 0
    for entry in await world.store.changes(TREE, 0, limit=10_000_000):
        at = entry.at.timestamp()
        for position, step in enumerate(entry.steps):
            if isinstance(step, Grow):
                count += len(step.nodes)
                for node in step.nodes:
                    waiting[node].append((mark(entry.seq, position), at))
            elif isinstance(step, Create) and step.kind is NodeKind.SUMMARY:
                waiting[step.id] = []
            elif isinstance(step, Rewrite):
                stale.extend(at - since for through, since in waiting[step.node] if through <= step.through)
                waiting[step.node] = [left for left in waiting[step.node] if left[0] > step.through]
    return count, stale


async def _remembered(records: Sequence[Record]) -> Remembered:
    from memory.adapters.minilm import MiniLmEmbedder  # noqa: PLC0415  # optional

    embedder = await asyncio.to_thread(MiniLmEmbedder.open)
    from memory.retrieval.text import embedded_text  # noqa: PLC0415
    from memory.service.chunking import items  # noqa: PLC0415
    from memory.settings import IngestSettings  # noqa: PLC0415

    size = IngestSettings().chunk_tokens
    texts = list(dict.fromkeys(embedded_text(item) for record in records for item in items(record, chunk_tokens=size)))
    vectors = await embedder.embed(texts)
    await embedder.close()
    return Remembered(embedder.model, dict(zip(texts, vectors, strict=True)))


def _records(path: Path, count: int) -> list[Record]:
    return [parse({**json.loads(line), "tree": TREE}) for line in path.read_text().splitlines()[:count]]


def curve(count: int, texts: Path | None, settings: SummarySettings, rates: Sequence[float] = RATES) -> list[Point]:
    """The curve over one set of items: `count` at each rate, more where that would be less than `SECONDS_MIN`."""
    records: list[Record]
    embedder: Embedder
    most = max(count, round(max(rates) * SECONDS_MIN))
    if texts is None:
        corpus = Corpus()
        records, embedder = list(corpus.turns(TREE, 0, most)), GivenVectors(corpus)
    else:
        records = _records(texts, most)
        embedder = asyncio.run(_remembered(records))
    points = []
    for rate in rates:
        folder = Path(tempfile.mkdtemp())
        try:
            some = records[: max(count, round(rate * SECONDS_MIN))]
            points.append(run_virtually(measure(rate, some, embedder, folder, settings)))
        finally:
            shutil.rmtree(folder)
    return points


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=1_000)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--linger", type=float, nargs="+", default=[SummarySettings().linger.total_seconds()])
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    points = []
    for linger in options.linger:
        settings = SummarySettings(workers=CALLS_AT_ONCE, linger=timedelta(seconds=linger))
        points.extend(curve(options.items, options.texts, settings))
    if options.json:
        print(json.dumps([asdict(point) for point in points]))
        return
    print("| linger s | items/s | items | contributions/item | calls/item streaming | until fresh | stale p50 / p99 s | drain s |")
    print("|---|---|---|---|---|---|---|---|")
    for point in points:
        calls = f"{point.contributions:.2f} | {point.streaming:.2f} | {point.total:.2f}"
        stale = f"{point.stale_p50:.1f} / {point.stale_p99:.1f}"
        print(f"| {point.linger:g} | {point.rate:g} | {point.items} | {calls} | {stale} | {point.drain_seconds:.0f} |")


if __name__ == "__main__":
    main()
