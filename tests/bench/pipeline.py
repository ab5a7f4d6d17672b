"""
Kafka → committed in Redis: records a second of one ingest worker, beside a Faust agent that does nothing.

Everything runs on this machine: broker, Redis with an append-only file, worker. Vectors are given, jobs are sent, no summaries are
made. `python -m tests.bench.pipeline [--records 30000] [--trees 1000] [--leaves 10000] [many] [one]`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.records import Turn
from tests.bench.installation import Installation, corpus, installed, scripts, send


def stages(log: Path, prefix: str) -> dict[str, float]:
    """Mean milliseconds of each stage of a batch, from the worker's log."""
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    batches = [line for line in lines if line["event"] == "batch" and str(line["topic"]).startswith(prefix)]
    names = sorted({name for line in batches for name in line if name.endswith("ms") or name in ("records", "jobs", "trees")})
    return {name: float(np.mean([line.get(name, 0.0) for line in batches])) for name in names}


async def throughput(servers: Installation, name: str, records: Sequence[Turn], vectors: NDArray[np.float16]) -> dict[str, Any]:
    """One worker on everything that is on the topic."""
    own = servers.fresh(name)
    await own.install()
    file = servers.folder / f"{name}.npy"
    np.save(file, vectors)
    await send(own.settings, records)
    calls, microseconds = await scripts(servers.redis.url)
    found = await own.said("ingest", str(file), str(len(records)))
    calls_after, after = await scripts(servers.redis.url)
    found |= stages(servers.folder / "ingest.log", own.settings.kafka.prefix)
    found["scripts_per_record"] = (calls_after - calls) / len(records)
    found["redis_us_per_record"] = (after - microseconds) / len(records)
    return found


async def main(count: int, trees: int, leaves: int, parts: Sequence[str]) -> None:
    """Measure and print."""
    figures: dict[str, Any] = {}
    with installed() as servers:
        if "many" in parts:
            records, vectors = corpus(count, trees)
            found = await throughput(servers, "many", records, vectors)
            plain = await servers.fresh("many").said("plain", str(len(records)))
            figures |= {f"many_{name}": round(value, 2) for name, value in found.items()}
            figures["plain_records_per_s"] = round(plain["records_per_s"])
            figures["plain_cpu_us_per_record"] = round(plain["cpu_us_per_record"], 1)
            figures["share"] = round(found["records_per_s"] / plain["records_per_s"], 3)
        if "one" in parts:
            records, vectors = corpus(leaves * 2, 1)
            await throughput(servers, "grow", records[:leaves], vectors)
            found = await throughput(servers, "one", records[leaves:], vectors)
            figures |= {f"one_{name}": round(value, 2) for name, value in found.items()}
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=30_000)
    parser.add_argument("--trees", type=int, default=1_000)
    parser.add_argument("--leaves", type=int, default=10_000)
    parser.add_argument("parts", nargs="*", default=["many", "one"])
    given = parser.parse_args()
    asyncio.run(main(given.records, given.trees, given.leaves, given.parts))
