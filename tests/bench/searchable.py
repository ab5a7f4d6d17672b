"""
From the sending of an event to Kafka until it can be found: committed in Redis and covered by an index that follows the log.

Three processes beside broker and Redis, all on this machine: worker, follower (`tests.bench.follower`) and sender. The peak is
measured first, on records that are on the topic already: of the worker alone, and of worker and follower side by side, from the
first record taken until the last is covered. What follows comes evenly, at half of each. Processor time is counted by process,
so that a run on a loaded machine can be compared with another.

`python -m tests.bench.searchable [--rate RECORDS_PER_S] [--seconds 20] [--trees 8]`; with a rate only that one is measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from memory.records import Turn
from streams.broker import Broker
from streams.events import encode
from streams.producing import Message, Producer
from streams.topics import record_key, topics
from tests.bench.installation import ROOT, Installation, corpus, installed, send
from tests.bench.pipeline import stages, throughput

TICK = 0.01  # seconds
WARM_UP = 8.0  # seconds of events that are not counted: the worker joins its group, trees are made, the broker is compiled
MEASURED_FIRST = 10_000
LATEST = 120.0  # seconds after the last was sent


class Watch:
    """Processor seconds of processes, by name."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes
        self._before = {name: self._used(number) for name, number in processes.items()}

    @staticmethod
    def _used(process: int) -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def per_record(self, records: int) -> dict[str, int]:
        """Microseconds a record since this was made."""
        return {
            f"{name}_us_per_record": round((self._used(number) - self._before[name]) / records * 1e6)
            for name, number in self._processes.items()
        }


class Follower:
    """The process that follows."""

    def __init__(self, process: Process, output: Path) -> None:
        self.process = process
        self._output = output

    @classmethod
    async def start(cls, own: Installation, records: Sequence[Turn], marks: Sequence[int]) -> Follower:
        """Begin to follow the records' trees."""
        name = own.settings.kafka.prefix
        trees, output = own.folder / f"{name}-trees.json", own.folder / f"{name}-covered.json"
        trees.write_text(json.dumps(sorted({record.tree for record in records})))
        arguments = [str(trees), str(own.folder / f"{name}-index.db"), str(output), *map(str, marks)]
        environment = {**os.environ, **own.environment, "PYTHONPATH": str(ROOT), "OPENBLAS_NUM_THREADS": "1"}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.bench.follower", *arguments, cwd=ROOT, env=environment, stdout=PIPE
        )
        return cls(process, output)

    async def reached(self) -> dict[str, int]:
        """What it says at the next mark."""
        assert self.process.stdout is not None
        async with asyncio.timeout(LATEST):
            line = await self.process.stdout.readline()
        if not line:
            raise AssertionError("the follower ended early")
        said: dict[str, int] = json.loads(line)
        return said

    async def covered(self) -> dict[str, float]:
        """When each event came to be covered, once all are."""
        await self.process.wait()
        found: dict[str, float] = json.loads(self._output.read_text())
        return found

    async def end(self) -> None:
        """End it if it has not ended."""
        if self.process.returncode is None:
            self.process.kill()
            await self.process.wait()


async def feed(servers: Installation, records: Sequence[Turn], rate: float) -> dict[str, float]:
    """Send records evenly; returns when each was sent."""
    settings = servers.settings
    name = topics(settings.kafka).turns.name
    sent: dict[str, float] = {}
    producer = await Producer(Broker.of(settings)).start()
    try:
        await _feed(producer, name, records, rate, sent)
    finally:
        await producer.stop()
    return sent


async def _feed(producer: Producer, name: str, records: Sequence[Turn], rate: float, sent: dict[str, float]) -> None:
    sending: set[asyncio.Task[None]] = set()
    begun, done = time.perf_counter(), 0
    while done < len(records):
        due = min(len(records), int((time.perf_counter() - begun) * rate) + 1)
        some = records[done:due]
        now = time.perf_counter()
        sent.update(dict.fromkeys((record.id for record in some), now))
        messages = [Message(topic=name, value=encode(record), key=record_key(record)) for record in some]
        task = asyncio.ensure_future(producer.send(messages))
        sending.add(task)
        task.add_done_callback(sending.discard)
        done = due
        await asyncio.sleep(TICK)
    await asyncio.gather(*sending)


async def measure(servers: Installation, name: str, rate: float, seconds: float, trees: int) -> dict[str, float]:
    """One worker, one sender, one follower."""
    own = servers.fresh(name, BANYAN_REDIS_PREFIX=name)  # the trees' names are the same in every run
    await own.install()
    count = int(rate * (seconds + WARM_UP))
    records, vectors = corpus(count, trees)
    file = servers.folder / f"{name}.npy"
    np.save(file, vectors)
    worker = own.start("ingest", str(file), "0")
    early = records[: int(rate * WARM_UP)]
    follower = await Follower.start(own, records, [len(early), count])
    try:
        await feed(own, early, rate)
        await follower.reached()
        assert servers.redis.process is not None
        processes = {
            "worker": worker.pid,
            "follower": follower.process.pid,
            "redis": servers.redis.process.pid,
            "broker": servers.broker.pid,
            "sender": os.getpid(),
        }
        watch = Watch(processes)
        sent = await feed(own, records[len(early) :], rate)
        await follower.reached()
        used = watch.per_record(count - len(early))
        covered = await follower.covered()
    finally:
        await follower.end()
        worker.send_signal(signal.SIGTERM)
        worker.wait()
    took = [covered[event] - at for event, at in sent.items()]
    return {
        "rate": round(rate),
        "p50_ms": round(float(np.percentile(took, 50)) * 1000, 1),
        "p99_ms": round(float(np.percentile(took, 99)) * 1000, 1),
        "events": len(took),
        **used,
        **{f"batch_{stage}": round(value, 1) for stage, value in stages(servers.folder / "ingest.log", name).items()},
    }


async def peak(servers: Installation, trees: int) -> float:
    """Records a second of worker and follower side by side, from the first taken until the last is covered."""
    own = servers.fresh("together", BANYAN_REDIS_PREFIX="together")
    await own.install()
    records, vectors = corpus(MEASURED_FIRST, trees)
    file = servers.folder / "together.npy"
    np.save(file, vectors)
    await send(own.settings, records)
    follower = await Follower.start(own, records, [len(records)])
    worker = own.start("ingest", str(file), str(len(records)))
    try:
        await follower.reached()
        covered = await follower.covered()
        out, _ = await asyncio.to_thread(worker.communicate)
    finally:
        await follower.end()
        worker.kill()
        worker.wait()
    said = json.loads(out.splitlines()[-1])
    return len(records) / (max(covered.values()) - float(said["begun"]))


async def main(rate: float, seconds: float, trees: int) -> None:
    """Measure and print."""
    figures: dict[str, float | dict[str, float]] = {}
    with installed() as servers:
        if rate:
            figures["given"] = await measure(servers, "given", rate, seconds, trees)
        else:
            records, vectors = corpus(MEASURED_FIRST, trees)
            alone = float((await throughput(servers, "alone", records, vectors))["records_per_s"])
            together = await peak(servers, trees)
            figures |= {"peak_alone": round(alone), "peak_together": round(together)}
            figures["half_together"] = await measure(servers, "half", together / 2, seconds, trees)
            figures["half_alone"] = await measure(servers, "more", alone / 2, seconds, trees)
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--trees", type=int, default=8)
    given = parser.parse_args()
    asyncio.run(main(given.rate, given.seconds, given.trees))
