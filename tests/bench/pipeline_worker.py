"""The processes that `tests.bench.pipeline` measures: an ingest worker with given vectors, and a Faust agent that does nothing."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.model import EmbeddingModel
from memory.ports.embedder import Embedder, Purpose
from streams.app import MAX_POLL_INTERVAL, Role
from streams.deliveries import Delivery
from streams.pipelines import Ingesting, open_ingesting
from streams.run import run_worker
from streams.runtime import Runtime
from streams.setting_tables import LogSettings
from streams.settings import Settings, load
from streams.telemetry import configure_logging


class Given(Embedder):
    """
    Vectors that were made before; stands for an embedder that costs nothing.

    Args:
        rows: (n, d) float32; the text of an item names its row, `item17 …`.
    """

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self._rows = rows
        self._model = EmbeddingModel(name="bench:given", dimension=rows.shape[1], unrelated_cosine=0.0)

    @property
    def model(self) -> EmbeddingModel:
        """A space of its own."""
        return self._model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """The rows that the texts name."""
        del purpose
        rows: NDArray[np.float32] = self._rows[[int(text.partition("item")[2].partition(" ")[0]) for text in texts]]
        return rows


class Measured(Runtime[Ingesting]):
    """Says how fast it was, and ends, when so many records are acknowledged."""

    records_max = 0
    begun = used = 0.0

    def taken(self, deliveries: Sequence[Delivery]) -> None:
        """Records came."""
        if not self.begun:
            self.begun, self.used = time.perf_counter(), time.process_time()
        super().taken(deliveries)

    def acknowledged(self, deliveries: Sequence[Delivery]) -> None:
        """Records were acknowledged."""
        super().acknowledged(deliveries)
        if self.progress.records >= self.records_max > 0:
            say(self.progress.records, self.begun, self.used)
            self.records_max = 0
            os.kill(os.getpid(), signal.SIGTERM)


def say(records: int, begun: float, used: float) -> None:
    """One line of figures."""
    seconds = time.perf_counter() - begun
    figures = {
        "records": records,
        "seconds": seconds,
        "records_per_s": records / seconds,
        "cpu_us_per_record": (time.process_time() - used) / records * 1e6,
        "rss_mb": int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 2**20,
        "rss_max_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "begun": begun,
    }
    print(json.dumps(figures), flush=True)


async def ingest(settings: Settings, vectors: Path, records: int) -> None:
    """`banyan worker ingest`, with given vectors."""
    rows = np.load(vectors).astype(np.float32)

    async def opened(settings: Settings) -> Ingesting:
        return await open_ingesting(settings, embedder=Given(rows))

    runtime = Measured(settings, opened)
    runtime.records_max = records
    await run_worker(Role.INGEST, settings, runtime=runtime)


async def plain(settings: Settings, records: int) -> None:
    """A Faust agent that does nothing, record by record, on the same topic."""
    import faust  # noqa: PLC0415  # optional

    app = faust.App(
        f"{settings.kafka.prefix}-plain",
        broker=[f"kafka://{settings.broker}"],
        broker_max_poll_interval=MAX_POLL_INTERVAL,
        consumer_auto_offset_reset="earliest",
        topic_allow_declare=False,
        topic_disable_leader=True,
        table_standby_replicas=0,
        web_enabled=False,
        logging_config=None,
        autodiscover=False,
    )
    app._create_directories = lambda: None
    done = asyncio.Event()
    topic = app.topic(f"{settings.kafka.prefix}.turns", key_serializer="raw", value_serializer="raw")

    async def nothing(stream: Any) -> None:
        count, begun, used = 0, 0.0, 0.0
        async for _ in stream:
            if not count:
                begun, used = time.perf_counter(), time.process_time()
            count += 1
            if count == records:
                say(records, begun, used)
                done.set()

    app.agent(topic, name="plain", concurrency=1)(nothing)
    await app.start()
    await done.wait()
    os._exit(0)


def main(arguments: Sequence[str]) -> None:
    """`ingest VECTORS RECORDS` or `plain RECORDS`, settings from the environment."""
    settings = load(os.environ).settings
    configure_logging(LogSettings(level="info", format="json"))
    match arguments:
        case ["ingest", vectors, records]:
            work = ingest(settings, Path(vectors), int(records))
        case ["plain", records]:
            work = plain(settings, int(records))
        case _:
            sys.exit(f"what is {arguments}?")
    if profile := os.environ.get("BENCH_PROFILE"):
        import cProfile  # noqa: PLC0415

        profiler = cProfile.Profile()
        profiler.enable()
        asyncio.run(work)
        profiler.disable()
        profiler.dump_stats(profile)
    else:
        asyncio.run(work)


if __name__ == "__main__":
    main(sys.argv[1:])
