"""Path leases in Redis: among all processes and machines that share a tree."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Sequence
from datetime import timedelta

from memory.adapters.redis.codec import encode
from memory.adapters.redis.link import Link
from memory.errors import LeaseBusyError, LeaseLostError
from memory.model import NodeId, TreeId
from memory.ports.leases import Lease, PathLeases

QUEUE_MAX = 1024
"""Waiters on one tree; more are told at once that it is busy."""
CHECK_IN = timedelta(seconds=1)
"""How often a waiter shows that it is still there."""
GONE_AFTER = timedelta(seconds=3)
"""When a waiter that does not show itself loses its place: how long a dead process can hold up those behind it."""


class RedisPathLeases(PathLeases):
    """
    Leases of all processes that use one Redis.

    Times are the server's. A waiter has a place in a queue that the server keeps, is served by whoever gives a lease back, and
    sleeps meanwhile in a blocking call on a list of its own: the call that ends it brings the token. It asks again by itself only
    when the next lease ends by time, and every second to keep its place, so that a message that was lost costs a second at most.

    Args:
        link: to Redis; not closed with the leases.
    """

    remote = True

    def __init__(self, link: Link) -> None:
        self._link = link
        self.waits = 0
        """Leases that were not free at once."""

    async def acquire(
        self, tree: TreeId, *, shared: Sequence[NodeId] = (), exclusive: Sequence[NodeId] = (), ttl: timedelta, wait: timedelta
    ) -> Lease:
        """Take all nodes or none."""
        alone = frozenset(exclusive)
        wanted = (tuple(sorted(frozenset(shared) - alone)), tuple(sorted(alone)))
        waiter = secrets.token_hex(8)
        loop = asyncio.get_running_loop()
        end = loop.time() + wait.total_seconds()
        pause = 0.0
        try:
            token, pause = await self._ask(tree, waiter, wanted, ttl, queue=wait > timedelta(0))
            self.waits += not token
            while not token:
                left = end - loop.time()
                if left <= 0 or pause < 0:
                    raise LeaseBusyError(f"{tree}: other work held its path for more than {wait.total_seconds():g} s")
                seconds = min(left, pause, CHECK_IN.total_seconds())
                given = await self._link.wait_for(self._link.keys(tree).wake + waiter, seconds)
                if given is not None:
                    token = int(given)
                elif loop.time() < end:
                    token, pause = await self._ask(tree, waiter, wanted, ttl, queue=True)
        except BaseException:
            if pause >= 0:  # else it never was in the queue
                await self._leave(tree, waiter)
            raise
        return Lease(tree=tree, shared=wanted[0], exclusive=wanted[1], token=token)

    async def renew(self, lease: Lease, *, ttl: timedelta) -> None:
        """Extend the lease."""
        if not await self._link.script("lease_renew", [self._link.keys(lease.tree).lease_ends], lease.token, _ms(ttl)):
            raise LeaseLostError(f"the lease {lease.token} on {lease.tree} has ended")

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        keys = self._link.keys(lease.tree)
        await self._link.script("lease_release", keys.leases, lease.token, "", keys.wake)

    async def holds(self, lease: Lease) -> bool:
        """Whether the lease has not ended."""
        return bool(await self._link.script("lease_renew", [self._link.keys(lease.tree).lease_ends], lease.token, 0))

    async def _ask(
        self, tree: TreeId, waiter: str, wanted: tuple[tuple[NodeId, ...], tuple[NodeId, ...]], ttl: timedelta, *, queue: bool
    ) -> tuple[int, float]:
        """The token or 0, and after how many seconds it may be worth asking again (negative: never)."""
        keys = self._link.keys(tree)
        token, pause = await self._link.script(
            "lease_acquire",
            keys.leases,
            waiter,
            encode((*wanted, _ms(ttl))),
            int(queue),
            _ms(GONE_AFTER),
            keys.wake,
            QUEUE_MAX,
        )
        return int(token or 0), int(pause) / 1000

    async def _leave(self, tree: TreeId, waiter: str) -> None:
        """Go out of the queue and give back what was granted meanwhile; done when it returns, also when it is cancelled again."""
        keys = self._link.keys(tree)
        leaving = asyncio.ensure_future(self._link.script("lease_release", keys.leases, "", waiter, keys.wake))
        while not leaving.done():
            try:
                await asyncio.shield(leaving)
            except asyncio.CancelledError:
                if leaving.cancelled():
                    raise
            except Exception:  # noqa: BLE001  # what brought us here is raised; the lease ends by its time
                break


def _ms(duration: timedelta) -> int:
    return math.ceil(duration.total_seconds() * 1000)
