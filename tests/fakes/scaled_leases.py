"""Leases whose seconds are shorter: a server's clock cannot be moved, so tests on one let time pass faster."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from memory.errors import LeaseBusyError
from memory.model import NodeId, TreeId
from memory.ports.leases import Lease, PathLeases


class ScaledLeases(PathLeases):
    """
    Args:
        leases: what has them.
        scale: real seconds a second.
    """

    def __init__(self, leases: PathLeases, scale: float) -> None:
        self._leases = leases
        self._scale = scale

    async def acquire(
        self, tree: TreeId, *, shared: Sequence[NodeId] = (), exclusive: Sequence[NodeId] = (), ttl: timedelta, wait: timedelta
    ) -> Lease:
        try:
            return await self._leases.acquire(
                tree, shared=shared, exclusive=exclusive, ttl=ttl * self._scale, wait=wait * self._scale
            )
        except LeaseBusyError as error:
            real, said = (f"{seconds.total_seconds():g} s" for seconds in (wait * self._scale, wait))
            raise LeaseBusyError(str(error).replace(real, said)) from error

    async def renew(self, lease: Lease, *, ttl: timedelta) -> None:
        await self._leases.renew(lease, ttl=ttl * self._scale)

    async def release(self, lease: Lease) -> None:
        await self._leases.release(lease)

    async def holds(self, lease: Lease) -> bool:
        return await self._leases.holds(lease)
