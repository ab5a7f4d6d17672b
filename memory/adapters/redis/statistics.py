"""Counts over a tree: the server keeps them as commits are made."""

from __future__ import annotations

from collections.abc import Mapping

from memory.adapters.redis.link import Link
from memory.adapters.redis.sizes import tree_bytes
from memory.model import TreeId
from memory.ports.store import Cost, TreeStats


async def stats(link: Link, tree: TreeId) -> TreeStats:
    """`TreeStore.stats`."""
    keys = link.keys(tree)
    dirty, *flat = await link.script("stats", [keys.state, keys.dirty])
    counts = {flat[at].decode(): int(flat[at + 1]) for at in range(0, len(flat), 2) if flat[at] != b"head"}
    leaves, summaries = counts.get("leaves", 0), counts.get("summaries", 0)
    leaf_depths, depths = _depths(counts, "l"), _depths(counts, "ls")
    return TreeStats(
        seq=counts["seq"],
        nodes=1 + leaves + summaries,
        leaves=leaves,
        summaries=summaries,
        events=counts.get("events", 0),
        pending=counts.get("pending", 0),
        dirty=dirty,
        depths=depths,
        leaf_depths=leaf_depths,
        rewrites=counts.get("rewrites", 0),
        cost=Cost(calls=counts.get("calls", 0), tokens_in=counts.get("tokens_in", 0), tokens_out=counts.get("tokens_out", 0)),
        bytes=await tree_bytes(link, keys, summaries=summaries, dirty=dirty, pending=counts.get("pending", 0)),
    )


def _depths(counts: Mapping[str, int], letters: str) -> dict[int, int]:
    """Nodes by depth: counters are named by the kind's letter and the depth."""
    found: dict[int, int] = {}
    for name, count in counts.items():
        if name[0] in letters and name[1:].isdecimal() and count:
            found[int(name[1:])] = found.get(int(name[1:]), 0) + count
    return dict(sorted(found.items()))
