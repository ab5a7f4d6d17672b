"""What a tree takes in Redis's memory, estimated."""

from __future__ import annotations

import asyncio

from memory.adapters.redis.keys import TreeKeys
from memory.adapters.redis.link import Link
from memory.model import NodeId

SAMPLES = 20
"""Elements of a key, and keys of a kind, that are looked at."""


async def tree_bytes(link: Link, keys: TreeKeys, *, summaries: int, dirty: int) -> int:
    """
    Bytes, estimated: the tree's large keys each by some of its elements, the small ones, one or two a summary, by some of them.

    Args:
        link: to Redis.
        keys: the tree's.
        summaries: how many it has.
        dirty: how many of them have contributions.
    """
    large = await asyncio.gather(*(_usage(link, key) for key in (*keys.whole(), *keys.leases)))
    count = int(await link.command("LLEN", keys.order))
    spread = [count * part // SAMPLES for part in range(SAMPLES)]
    ids = await asyncio.gather(*(link.command("LINDEX", keys.order, at) for at in dict.fromkeys(spread)))
    with_children = await asyncio.gather(*(_usage(link, keys.children(NodeId(one.decode()))) for one in ids if one is not None))
    members = await link.command("ZRANGE", keys.dirty, 0, SAMPLES - 1)
    waiting = await asyncio.gather(*(_usage(link, keys.contributions(NodeId(one[16:].decode()))) for one in members))
    return sum(large) + _estimate(with_children, 1 + summaries) + _estimate(waiting, dirty)


async def _usage(link: Link, key: str) -> int:
    return int(await link.command("MEMORY", "USAGE", key, "SAMPLES", SAMPLES) or 0)


def _estimate(found: list[int], count: int) -> int:
    """Size of `count` keys, from the sizes of some; 0 is a key that is not there."""
    there = [size for size in found if size]
    return sum(there) * count // len(there) if there else 0
