"""Path leases among the tasks of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from memory.errors import LeaseBusyError, LeaseLostError
from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.leases import Lease, PathLeases


@dataclass(slots=True)
class _Held:
    lease: Lease
    expires: float


@dataclass(slots=True, eq=False)
class _Waiter:
    shared: frozenset[NodeId]
    exclusive: frozenset[NodeId]
    ttl: float
    granted: asyncio.Future[Lease]


@dataclass(slots=True)
class _Tree:
    held: dict[int, _Held] = field(default_factory=dict)
    """By token."""
    waiters: list[_Waiter] = field(default_factory=list)
    """In order of arrival."""


class InProcessLeases(PathLeases):
    """
    Leases within one process, on one event loop.

    Several processes that share one store are kept apart by the expectations of their change sets alone.

    Args:
        clock: what times-to-live and waits are measured by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._trees: dict[TreeId, _Tree] = {}
        self._token = 0

    async def acquire(
        self, tree: TreeId, *, shared: Sequence[NodeId] = (), exclusive: Sequence[NodeId] = (), ttl: timedelta, wait: timedelta
    ) -> Lease:
        """Take all nodes or none."""
        alone = frozenset(exclusive)
        waiter = _Waiter(
            shared=frozenset(shared) - alone,
            exclusive=alone,
            ttl=ttl.total_seconds(),
            granted=asyncio.get_running_loop().create_future(),
        )
        self._trees.setdefault(tree, _Tree()).waiters.append(waiter)
        end = self._clock.monotonic() + wait.total_seconds()
        try:
            self._serve(tree)
            while not waiter.granted.done():
                left = end - self._clock.monotonic()
                if left <= 0:
                    raise LeaseBusyError(f"{tree}: other work held its path for more than {wait.total_seconds():g} s")
                await self._wait(waiter.granted, min(left, self._next_end(tree)))
                self._serve(tree)
        except BaseException:
            self._leave(tree, waiter)
            raise
        return waiter.granted.result()

    async def renew(self, lease: Lease, *, ttl: timedelta) -> None:
        """Extend the lease."""
        if not self.valid(lease):
            self._serve(lease.tree)
            raise LeaseLostError(f"the lease {lease.token} on {lease.tree} has ended")
        self._trees[lease.tree].held[lease.token].expires = self._clock.monotonic() + ttl.total_seconds()

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        held = self._trees.get(lease.tree, _Tree()).held
        if held.pop(lease.token, None) is not None:
            self._serve(lease.tree)

    async def holds(self, lease: Lease) -> bool:
        """Whether the lease has not ended."""
        return self.valid(lease)

    def valid(self, lease: Lease) -> bool:
        """`holds`, for callers that cannot wait; safe on any thread."""
        tree = self._trees.get(lease.tree)
        held = None if tree is None else tree.held.get(lease.token)
        return held is not None and held.expires > self._clock.monotonic()

    def _serve(self, name: TreeId) -> None:
        """Drop what has ended, then grant what can be, in order: nobody overtakes on a node that an earlier one waits for."""
        tree = self._trees.get(name)
        if tree is None:
            return
        now = self._clock.monotonic()
        for token in [token for token, held in tree.held.items() if held.expires <= now]:
            del tree.held[token]
        shared: set[NodeId] = set()
        exclusive: set[NodeId] = set()
        for held in tree.held.values():
            shared.update(held.lease.shared)
            exclusive.update(held.lease.exclusive)
        left: list[_Waiter] = []
        for waiter in tree.waiters:
            if waiter.granted.cancelled():
                continue
            free = (
                exclusive.isdisjoint(waiter.shared)
                and exclusive.isdisjoint(waiter.exclusive)
                and shared.isdisjoint(waiter.exclusive)
            )
            if free:
                self._token += 1
                lease = Lease(
                    tree=name, shared=tuple(sorted(waiter.shared)), exclusive=tuple(sorted(waiter.exclusive)), token=self._token
                )
                tree.held[lease.token] = _Held(lease, now + waiter.ttl)
                waiter.granted.set_result(lease)
            else:
                left.append(waiter)
            shared |= waiter.shared
            exclusive |= waiter.exclusive
        tree.waiters = left
        if not tree.held and not tree.waiters:
            del self._trees[name]

    def _next_end(self, name: TreeId) -> float:
        """Seconds until the next held lease ends by itself."""
        now = self._clock.monotonic()
        tree = self._trees.get(name)
        return min((held.expires - now for held in tree.held.values()), default=float("inf")) if tree else float("inf")

    def _leave(self, name: TreeId, waiter: _Waiter) -> None:
        """A waiter goes away without its lease: whom it stood before may go on."""
        tree = self._trees.get(name)
        if tree is None:
            return
        if waiter.granted.done() and not waiter.granted.cancelled():
            tree.held.pop(waiter.granted.result().token, None)
        else:
            waiter.granted.cancel()
        self._serve(name)

    async def _wait(self, granted: asyncio.Future[Lease], seconds: float) -> None:
        sleeper = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((granted, sleeper), return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleeper.cancel()
