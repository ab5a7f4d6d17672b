"""
One tree at fifty times the rate of ten others (P8): what the others wait, from the sending of an event until it can be found,
beside what they wait alone.

One ingest worker and one follower (`tests.bench.follower`) beside broker and Redis, all on this machine. Three runs: the ten alone;
beside a tree that brings fifty times what one of them does, evenly; beside one that brings 1,500 records at once, every five
seconds. Vectors are given, jobs are sent, no summaries are made.

`python -m tests.bench.tenants [--rate RECORDS_PER_S_OF_EACH] [--seconds 20]`
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from memory.records import Turn
from tests.bench.installation import Installation, corpus, installed, send
from tests.bench.searchable import WARM_UP, Follower, feed

OTHERS, TIMES = 10, 50
BURST, EVERY = 1_500, 5.0
FLOOD = "flood"


def flooded(records: Sequence[Turn], beside: int) -> list[Turn]:
    """The first `beside` of each group of ten and `beside` records go to one tree of their own; the order stays."""
    group = OTHERS + beside
    return [replace(record, tree=FLOOD) if index % group < beside else record for index, record in enumerate(records)]


async def measure(
    servers: Installation, name: str, records: Sequence[Turn], vectors: NDArray[np.float16], rate: float, burst: Sequence[Turn]
) -> dict[str, float]:
    """
    What the others' events waited.

    Args:
        rate: of `records`, the flood's in them included, a second.
        burst: sent in parts of `BURST` every `EVERY` seconds while `records` are.
    """
    own = servers.fresh(name, BANYAN_REDIS_PREFIX=name)
    await own.install()
    file = servers.folder / f"{name}.npy"
    np.save(file, vectors)
    early = int(rate * WARM_UP)
    worker = own.start("ingest", str(file), "0")
    follower = await Follower.start(own, [*records, *burst], [early, len(records) + len(burst)])
    try:
        await feed(own, records[:early], rate)
        await follower.reached()
        bursts = asyncio.ensure_future(_bursts(own, burst))
        sent = await feed(own, records[early:], rate)
        await bursts
        await follower.reached()
        covered = await follower.covered()
    finally:
        await follower.end()
        worker.send_signal(signal.SIGTERM)
        worker.wait()
    others = {record.id for record in records if record.tree != FLOOD}
    took = [covered[event] - at for event, at in sent.items() if event in others]
    return {
        "events": len(took),
        "p50_ms": round(float(np.percentile(took, 50)) * 1000, 1),
        "p99_ms": round(float(np.percentile(took, 99)) * 1000, 1),
    }


async def _bursts(own: Installation, burst: Sequence[Turn]) -> None:
    for start in range(0, len(burst), BURST):
        await asyncio.sleep(EVERY / 2)
        await send(own.settings, burst[start : start + BURST])
        await asyncio.sleep(EVERY / 2)


async def main(rate: float, seconds: float) -> None:
    """Measure and print."""
    alone = int(rate * OTHERS * (seconds + WARM_UP))
    beside = alone // OTHERS * (OTHERS + TIMES)
    at_once = BURST * int(seconds / EVERY)
    records, vectors = corpus(max(beside, alone + at_once), OTHERS)
    evenly = flooded(records[:beside], TIMES)
    burst = [replace(record, tree=FLOOD) for record in records[alone : alone + at_once]]
    figures: dict[str, float | dict[str, float]] = {"rate_of_each": rate, "times": TIMES, "burst": BURST}
    with installed() as servers:
        figures["alone"] = await measure(servers, "alone", records[:alone], vectors, rate * OTHERS, ())
        figures["beside"] = await measure(servers, "beside", evenly, vectors, rate * (OTHERS + TIMES), ())
        figures["bursts"] = await measure(servers, "bursts", records[:alone], vectors, rate * OTHERS, burst)
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=8.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    given = parser.parse_args()
    asyncio.run(main(given.rate, given.seconds))
