"""What a storm has left: every event once, nothing pending, nothing held; and the figures of the run."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections import Counter
from datetime import timedelta
from typing import Any

from redis.asyncio import Redis

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import BanyanError
from memory.model import ROOT, TreeId
from memory.service.inspect import Inspect
from memory.service.views import Views
from streams.bootstrap import Backend, open_backend
from streams.dead_letters import decode_envelope
from streams.topics import topics
from tests.chaos.storm import Storm
from tests.integration.kafka.workers import ROOT as REPOSITORY
from tests.integration.kafka.workers import committed, ends, read

NUMBER = re.compile(r"number(\d+)\.")
FOREIGN_LINES_MAX, EACH_SECOND = 300, 15
"""Lines of libraries in one worker's log, and for each second of the storm: one that loses a server must not be flooded by them."""


async def settle(storm: Storm) -> float:
    """Wait until every event is in and nothing is pending; seconds that it took."""
    started = moved = time.monotonic()
    before = ""
    while left := await _left(storm):
        if left != before:
            before, moved = left, time.monotonic()
        if time.monotonic() - moved > storm.plan.settle:
            raise AssertionError(f"for {storm.plan.settle:g} s: {left}")
        storm.keep()
        await asyncio.sleep(1.0)
    return time.monotonic() - started


async def _left(storm: Storm) -> str:
    """What is still to be done, for people."""
    found = []
    backend = await open_backend(storm.settings)
    try:
        for tree in storm.offered.texts:
            stats = await backend.store.stats(TreeId(tree))
            left = len(storm.offered.left(tree))
            if stats.events != left or stats.dirty:
                found.append(f"{tree}: {stats.events} of {left} events, {stats.dirty} summaries pending")
    except BanyanError as error:
        found.append(str(error))
    finally:
        await backend.close()
    found += [f"{lag} messages of {group}" for group, lag in (await lags(storm)).items() if lag]
    return "; ".join(found)


async def lags(storm: Storm) -> dict[str, int]:
    """Messages that were not acknowledged yet, by group."""
    names = topics(storm.settings.kafka)
    found = Counter[str]()
    for group, topic in (("ingest", names.turns), ("ingest", names.forgets), ("summaries", names.summaries)):
        done = await committed(storm.settings, f"{storm.settings.kafka.prefix}-{group}", topic.name)
        last = await ends(storm.settings, topic.name)
        found[group] += sum(last[number] - done[number] for number in last)
    return found


async def judge(storm: Storm) -> None:
    """
    Look at everything that is left, after the workers have ended.

    Raises:
        AssertionError: something was lost, doubled, left over or written wrongly.
    """
    assert storm.faulty == []
    backend = await open_backend(storm.settings)
    try:
        for tree, texts in storm.offered.texts.items():
            await _judge_tree(backend, TreeId(tree), texts, storm.offered.left(tree))
            await _nothing_held(storm, backend, TreeId(tree))
    finally:
        await backend.close()
    checked = await asyncio.to_thread(_check_command, storm, next(iter(storm.offered.texts)))
    assert checked["violations"] == []
    assert not any((await lags(storm)).values())
    for worker in storm.workers.started:
        foreign = Counter(line["logger"] for line in worker.lines() if not line["logger"].startswith("streams."))
        assert foreign.total() <= FOREIGN_LINES_MAX + EACH_SECOND * storm.seconds, f"{worker.log.name}: {foreign.most_common(3)}"
    names = topics(storm.settings.kafka)
    letters = [decode_envelope(message.value) for message in await read(storm.settings, names.dead_letters.name)]
    # One that is sent twice, by a worker that died after sending it, is about the same message.
    assert {letter.topic for letter in letters} <= {names.turns.name}
    assert len({(letter.partition, letter.offset) for letter in letters}) >= storm.offered.rubbish
    assert {letter.error for letter in letters} <= {"record", "text", "tree"}, "a good record was given up"


async def _judge_tree(backend: Backend, tree: TreeId, texts: dict[str, str], left: dict[str, str]) -> None:
    stored = await backend.store.events(tree)
    assert stored.keys() == texts.keys(), f"{tree}: {len(texts.keys() - stored.keys())} events are lost"
    leaves = Counter[str]()
    async for node in backend.store.all_nodes(tree):
        if node.item is not None:
            leaves[node.item.event_id] += 1
            assert node.text == left.get(node.item.event_id), "the first text stands, unless it was forgotten"
        told = {f"e{number}" for number in NUMBER.findall(node.text)}
        assert told <= left.keys(), f"{tree}: {node.id} tells of {told - left.keys()}, which were forgotten"
        assert not node.pending
        assert not node.provisional
    assert leaves == dict.fromkeys(left, 1), f"{tree}: an event has more than one leaf"
    views = Views(backend.store, bytes_max=10**9)
    report = await Inspect(store=backend.store, embedder=HashingEmbedder(), views=views).check(tree)
    assert report.clean, report.violations[:3]
    assert report.replayed == len(texts) or len(left) < len(texts), "up to the last that was forgotten nothing is replayed"


async def _nothing_held(storm: Storm, backend: Backend, tree: TreeId) -> None:
    """What dead workers held has ended: it is swept away with the next lease, and nothing is left when that is given back."""
    lease = await backend.leases.acquire(tree, exclusive=[ROOT], ttl=timedelta(seconds=1), wait=timedelta(seconds=10))
    await backend.leases.release(lease)
    client = Redis.from_url(storm.redis.url)
    try:
        base = f"banyan:1:{{{tree}}}:"
        held = [key async for key in client.scan_iter(match=f"{base}l*") if key != f"{base}lt".encode()]
        held += [key async for key in client.scan_iter(match=f"{base}u:*")]
    finally:
        await client.aclose()
    assert held == [], held


def _check_command(storm: Storm, tree: str) -> dict[str, Any]:
    """`banyan check`, as people run it."""
    done = subprocess.run(
        [sys.executable, "-m", "streams.cli", "check", tree, "--json"],
        cwd=storm.folder,
        env={"PATH": "/usr/bin:/bin", "HOME": str(storm.folder), "PYTHONPATH": str(REPOSITORY), **storm.environment},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def report(storm: Storm, settled: float) -> dict[str, Any]:
    """The figures of a run; what a killed worker did not come to log is not in them."""
    batches: Counter[str] = Counter()
    summaries: Counter[str] = Counter()
    waits: Counter[str] = Counter()
    lines = 0
    for worker in storm.workers.started:
        for line in worker.lines():
            lines += 1
            match line["event"]:
                case "batch":
                    names = ("records", "accepted", "duplicate", "conflict", "dead_letters", "jobs", "jobs_again")
                    batches.update({name: line.get(name, 0) for name in names} | {"batches": 1})
                case "summary":
                    summaries.update({"summaries": 1, "jobs": line["jobs"], "attempts above one": line["attempt"] - 1})
                case "waiting":
                    waits[line["what"]] += 1
                case "going on":
                    waits["attempts in all"] += line["attempts"] - 1
    return {
        "seed": storm.plan.seed,
        "events": sum(map(len, storm.offered.texts.values())),
        "sent again": storm.offered.again,
        "sent with another text": storm.offered.conflicting,
        "rubbish": storm.offered.rubbish,
        "forgotten": len(storm.offered.forgotten),
        "faults": dict(storm.did),
        "ended by themselves": {str(code): count for code, count in storm.ends.items()},
        "processes": len(storm.workers.started),
        "ingest": dict(batches),
        "summaries": dict(summaries),
        "waits": dict(waits),
        "model": dict(storm.model.answered),
        "log lines": lines,
        "seconds of faults": round(storm.seconds),
        "seconds to settle": round(settled),
    }
