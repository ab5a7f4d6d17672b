"""
A process of a chaos run: ingests its share of the records into one tree, and says what it did.

    python -m tests.chaos.worker '{"folder": "/tmp/x", "records": 1000}'
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.changes import ChangeSet
from memory.errors import TransientError
from memory.local import LocalMemory, open_local
from memory.ports.leases import Lease
from memory.ports.store import Applied, Seen, Stale
from memory.records import Turn
from memory.results import EventResult
from memory.settings import IngestSettings, MemorySettings, SummarySettings

TREE = "chaos"
TOPICS = 40
CONVERSATION = 50


@dataclass(frozen=True, kw_only=True)
class Share:
    """What a worker does."""

    folder: str
    records: int
    """Of the whole run."""
    first: int = 0
    step: int = 1
    """Takes every step-th record from the first on."""
    seed: int = 1
    batch: int = 16
    gate: bool = True
    """Whether paths are leased."""
    wait: bool = False
    """Whether it waits for the summaries at its end."""
    stay: bool = False
    """Whether it then stays, to be killed."""
    stop_at: int = -1
    """Stops itself (SIGSTOP) before that commit, its lease in hand."""
    lease_ttl: float = 10.0
    lease_wait: float = 5.0
    attempts_max: int = 50
    structure: str = "memtree"


def record(number: int, seed: int = 1) -> Turn:
    """The same turn in every process; topics come and go, so that the tree is deep in places."""
    drawn = random.Random(f"{seed}-{number}")
    topic = min(int(drawn.expovariate(0.12)), TOPICS - 1)
    details = [f"detail{drawn.randrange(300)}" for _ in range(3)]
    words = [f"topic{topic}"] * 4 + [f"aspect{topic}-{drawn.randrange(4)}"] * 3 + details
    return Turn(
        tree=TREE,
        id=f"e{number}",
        text=f"{' '.join(words)} number{number}.",
        conversation=f"c{number // CONVERSATION}",
        speaker=("Ana", "Ben")[number % 2],
    )


def ids(share: Share) -> list[str]:
    """What this share is."""
    return [f"e{number}" for number in range(share.first, share.records, share.step)]


def settings(share: Share) -> MemorySettings:
    """As the share says."""
    return MemorySettings(
        ingest=IngestSettings(
            batch_items=share.batch,
            lease_after=0 if share.gate else 1_000_000,
            lease_ttl=timedelta(seconds=share.lease_ttl),
            lease_wait=timedelta(seconds=share.lease_wait),
            attempts_max=share.attempts_max,
        ),
        summaries=SummarySettings(workers=4),
    )


async def open_chaos(share: Share, **options: Any) -> LocalMemory:
    """The memory all processes of a run share."""
    return await open_local(
        share.folder, embedder=HashingEmbedder(), settings=settings(share), structure=share.structure, **options
    )


def _stopping(memory: LocalMemory, share: Share) -> None:
    store = memory._parts.store
    apply, commits = store.apply, 0

    async def stopping(changes: ChangeSet, *, lease: Lease | None = None, **given: Any) -> Applied | Seen | Stale:
        nonlocal commits
        if changes.events:
            if commits == share.stop_at:
                Path(share.folder, "stopped").touch()  # noqa: ASYNC240
                os.kill(os.getpid(), signal.SIGSTOP)
            commits += 1
        return await apply(changes, lease=lease, **given)

    store.apply = stopping  # type: ignore[method-assign]


async def run(share: Share) -> dict[str, Any]:
    """Ingest the share; an answer that says to try again is tried again, as a caller would."""
    opened = time.perf_counter()
    acknowledged = Path(share.folder, f"acknowledged-{share.first}").open("a")  # noqa: ASYNC230, SIM115
    again = 0
    async with await open_chaos(share) as memory:
        if share.stop_at >= 0:
            _stopping(memory, share)
        started = time.perf_counter()

        def note(results: Sequence[EventResult]) -> None:
            acknowledged.write("".join(f"{result.id}\n" for result in results))
            acknowledged.flush()

        def records() -> Iterator[Turn]:
            for number in range(share.first, share.records, share.step):
                yield record(number, share.seed)

        while True:
            try:
                totals = await memory.ingest_stream(records(), on_batch=note)
            except TransientError as error:
                again += 1
                print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
                if again > 50:
                    raise
                continue
            break
        seconds = time.perf_counter() - started
        fresh = await memory.fresh(TREE) if share.wait else None
        if share.stay:
            Path(share.folder, f"done-{share.first}").touch()  # noqa: ASYNC240
            await asyncio.Event().wait()
        counters = memory._parts.ingest.counters
        return {
            "accepted": totals.accepted,
            "duplicates": totals.duplicates,
            "seconds": seconds,
            "opened": started - opened,
            "again": again,
            "fresh": fresh,
            "commits": counters.commits,
            "refused": counters.refused,
            "leased": counters.leased,
            "written": memory.summary_counts.written,
            "failed": memory.summary_counts.failed,
            "last_error": memory.summary_counts.last_error,
        }


def main() -> None:
    """Entry point."""
    print(json.dumps(asyncio.run(run(Share(**json.loads(sys.argv[1]))))), flush=True)


if __name__ == "__main__":
    main()
