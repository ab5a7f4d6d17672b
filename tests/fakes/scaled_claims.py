"""Claims whose time-to-live is scaled, so that the suites need not wait for whole seconds of a server's clock."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from memory.errors import ClaimBusyError
from memory.model import NodeId, TreeId
from memory.ports.claims import Claim, Failure, NodeClaims


class ScaledClaims(NodeClaims):
    """
    Claims in slow motion.

    Args:
        claims: the real ones.
        second: real seconds that a second takes.
    """

    def __init__(self, claims: NodeClaims, second: float) -> None:
        self._claims = claims
        self._second = second

    async def claim(self, tree: TreeId, node: NodeId, *, ttl: timedelta) -> Claim:
        try:
            return await self._claims.claim(tree, node, ttl=ttl * self._second)
        except ClaimBusyError as error:
            raise ClaimBusyError(str(error), retry_after=(error.retry_after or 0.0) / self._second) from error

    async def renew(self, claim: Claim, *, ttl: timedelta) -> bool:
        return await self._claims.renew(claim, ttl=ttl * self._second)

    async def release(self, claim: Claim) -> None:
        await self._claims.release(claim)

    async def done(self, claim: Claim) -> None:
        await self._claims.done(claim)

    async def failed(self, claim: Claim, reason: str) -> int:
        return await self._claims.failed(claim, reason)

    async def failures(self, tree: TreeId, *, limit: int = 1_000) -> Sequence[Failure]:
        return await self._claims.failures(tree, limit=limit)
