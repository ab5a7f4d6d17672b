"""
The process that `tests.bench.searchable` measures beside the worker: an index that follows the trees in Redis, as that of a query
service does whose trees are asked all the time.

`python -m tests.bench.follower TREES INDEX OUTPUT COUNT…`: a JSON list of names, the index's file, where the times go (when each
event came to be covered, seconds of the monotonic clock), and at how many covered events a line with that number is printed; after
the last it ends. Redis is that of the settings.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.adapters.redis import Link, RedisTreeStore
from memory.model import NodeId, TreeId
from memory.ports.index import IndexEntry, IndexUpdate
from memory.service.indexing import Indexing
from streams.redis_options import redis_settings
from streams.setting_tables import ServeSettings
from streams.settings import load

PAUSE = ServeSettings().follow.total_seconds()
"""Between two looks at the log, as `banyan serve` has it."""


class Noting(EmbeddedNodeIndex):
    """Notes when each event came to be covered."""

    covered_at: dict[str, float]

    async def update(  # what stood in a tree when it was first looked at
        self,
        tree: TreeId,
        *,
        after: int,
        seq: int,
        upserts: Sequence[IndexEntry],
        removes: Sequence[NodeId] = (),
        stamp: str = "",
    ) -> bool:
        done = await super().update(tree, after=after, seq=seq, upserts=upserts, removes=removes, stamp=stamp)
        self._note(upserts)
        return done

    async def update_all(self, updates: Sequence[IndexUpdate]) -> list[bool]:
        """Take them over."""
        done = await super().update_all(updates)
        for update in updates:
            self._note(update.upserts)
        return done

    def _note(self, entries: Sequence[IndexEntry]) -> None:
        now = time.perf_counter()
        for entry in entries:
            if entry.event_id is not None:
                self.covered_at.setdefault(entry.event_id, now)


async def follow(trees: Sequence[TreeId], file: Path, output: Path, marks: Sequence[int]) -> None:
    """Keep the index level with the store until so many events are covered as the last mark says."""
    link = await Link.open(redis_settings(load(os.environ).settings))
    index = await Noting.open(file)
    index.covered_at = {}
    indexing = Indexing(store=RedisTreeStore(link), index=index)
    left = list(marks)
    sweeps = 0
    try:
        while left:
            sweeps += 1
            await indexing.catch_up_all(trees)
            while left and len(index.covered_at) >= left[0]:
                print(json.dumps({"covered": left.pop(0), "sweeps": sweeps, "scripts": link.scripts_called}), flush=True)
            await asyncio.sleep(PAUSE)
    finally:
        await index.close()
        await link.close()
    await asyncio.to_thread(output.write_text, json.dumps(index.covered_at))


def main(arguments: Sequence[str]) -> None:
    """See above."""
    trees, file, output, *marks = arguments
    work = follow([TreeId(tree) for tree in json.loads(Path(trees).read_text())], Path(file), Path(output), [int(m) for m in marks])
    if profile := os.environ.get("BENCH_PROFILE_FOLLOWER"):
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
