"""Starts workers, kills them, and looks at what they left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from memory.ports.index import IndexQuery
from memory.tree.planning import leaf_id
from tests.chaos.worker import TREE, Share, ids, open_chaos

ROOT = Path(__file__).parents[2]


def start(share: Share) -> subprocess.Popen[bytes]:
    """A worker in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.chaos.worker", json.dumps(asdict(share))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What a worker says at its end."""
    out, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors.decode()
    answer: dict[str, Any] = json.loads(out.splitlines()[-1])
    return answer


def acknowledged(folder: Path) -> set[str]:
    """Ids of which some worker was told that they are in."""
    found: set[str] = set()
    for path in folder.glob("acknowledged-*"):
        # A line that was cut by a kill is no acknowledgement.
        found.update(path.read_text().rpartition("\n")[0].split())
    return found


async def assert_nothing_lost(share: Share, expected: set[str]) -> dict[str, Any]:
    """Each id once, every invariant and the serial replay, no contribution forgotten, everything found. Makes what is pending."""
    folder = Path(share.folder)
    async with await open_chaos(share) as memory:
        assert await memory.fresh(TREE)
        report = await memory.check(TREE)
        assert report.violations == ()
        store = memory._parts.store
        stored = await store.events(share_tree())
        assert stored.keys() == expected
        assert acknowledged(folder) <= stored.keys()
        leaves = [node async for node in store.all_nodes(share_tree()) if node.item is not None]
        assert Counter(node.item.event_id for node in leaves if node.item) == dict.fromkeys(expected, 1)
        stats = await memory.stats(TREE)
        assert (stats.pending, stats.contributions, stats.events) == (0, 0, len(expected))
        await memory._parts.indexing.catch_up(share_tree())
        query = IndexQuery(vector=await memory._parts.query.embed("topic1"), terms="topic1")
        wanted = [leaf_id(event, 0) for event in stored]
        assert {found.event_id for found in await memory._parts.index.score(share_tree(), query, wanted)} == expected
        for event in sorted(expected)[:: max(1, len(expected) // 20)]:
            hits = (await memory.search(TREE, f"number{event[1:]}", k=3)).hits
            assert event in {hit.event_id for hit in hits}
        return {"seq": stats.seq, "nodes": stats.nodes, "depth": stats.depth_max, "replayed": report.replayed}


def share_tree() -> Any:
    """The tree, as the ports want it named."""
    return TREE


__all__ = ["acknowledged", "assert_nothing_lost", "finish", "ids", "start"]
