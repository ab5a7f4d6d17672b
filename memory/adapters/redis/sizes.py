"""What a tree takes in Redis's memory, estimated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.adapters.redis.keys import TreeKeys
from memory.adapters.redis.link import Link
from memory.adapters.redis.pipe import Argument
from memory.model import ROOT, NodeId

SAMPLES = 40
"""Elements of a large key, and small keys of a kind, that are looked at."""


async def tree_bytes(link: Link, keys: TreeKeys, *, summaries: int, dirty: int, pending: int) -> int:
    """
    Bytes, estimated: the tree's large keys each by some of its elements, the small ones, one or two a summary, by some of them.

    Args:
        link: to Redis.
        keys: the tree's.
        summaries: how many it has.
        dirty: how many of them have contributions.
        pending: how many contributions those have.
    """
    large = await _usage(link, [*keys.whole(), *keys.leases, keys.children(ROOT)])
    count = int(await link.command("LLEN", keys.order))
    ids = await _all(link, [("LINDEX", keys.order, at) for at in _spread(1, count)])
    there = [keys.children(NodeId(one.decode())) for one in ids if one and one[0]]  # a removed node's place begins with zero
    children = [size for size in await _usage(link, there) if size]
    members = await _all(link, [("ZRANGE", keys.dirty, at, at) for at in _spread(0, dirty)])
    waiting = [keys.contributions(NodeId(some[0][16:].decode())) for some in members if some]
    lengths = await _all(link, [("LLEN", key) for key in waiting])
    # Few nodes have most of the contributions, so what counts is the size of one; what counts for children is the size of a key.
    of_contributions = sum(await _usage(link, waiting)) * pending // max(sum(map(int, lengths)), 1)
    return sum(large) + sum(children) * summaries // max(len(children), 1) + of_contributions


def _spread(first: int, count: int) -> Sequence[int]:
    return sorted({first + (count - first) * part // SAMPLES for part in range(SAMPLES)}) if count > first else []


async def _usage(link: Link, keys: Sequence[str]) -> list[int]:
    return [int(size or 0) for size in await _all(link, [("MEMORY", "USAGE", key, "SAMPLES", SAMPLES) for key in keys])]


async def _all(link: Link, commands: Sequence[tuple[Argument, ...]]) -> list[Any]:
    """All keys are one tree's: one server, one round trip."""
    return await link.commands(str(commands[0][2 if commands[0][0] == "MEMORY" else 1]), commands) if commands else []
