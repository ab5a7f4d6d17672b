"""Claims on nodes in Redis: among all processes and machines that summarize a tree."""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from memory.adapters.redis.link import Link
from memory.errors import ClaimBusyError
from memory.model import NodeId, TreeId
from memory.ports.claims import REASON_CHARACTERS_MAX, Claim, Failure, NodeClaims

FAILURES_MAX = 10_000
"""Nodes in a tree's ledger; beyond that, one of them is forgotten for each that comes."""
PAGE = 500
_record = msgspec.msgpack.Decoder(tuple[int, float, str, str])


class RedisNodeClaims(NodeClaims):
    """
    Claims of all processes that use one Redis: a key a claim, which the server lets end by itself.

    Args:
        link: to Redis; not closed with the claims.
    """

    def __init__(self, link: Link) -> None:
        self._link = link

    async def claim(self, tree: TreeId, node: NodeId, *, ttl: timedelta) -> Claim:
        """Take the node."""
        token = secrets.token_hex(8)
        taken, answer = await self._take(tree, node, token, ttl)
        if not taken:
            left = max(0, int(answer)) / 1000
            raise ClaimBusyError(f"{node} of tree {tree!r} is being summarized by another worker", retry_after=left)
        return Claim(tree=tree, node=node, token=token, failures=_record.decode(answer)[0] if answer else 0)

    async def renew(self, claim: Claim, *, ttl: timedelta) -> bool:
        """Extend the claim."""
        return (await self._take(claim.tree, claim.node, claim.token, ttl))[0]

    async def release(self, claim: Claim) -> None:
        """Give the node back."""
        await self._end(claim, "release")

    async def done(self, claim: Claim) -> None:
        """Give the node back and forget its failures."""
        await self._end(claim, "done")

    async def failed(self, claim: Claim, reason: str) -> int:
        """Give the node back and count a failure."""
        # Half a surrogate pair has no bytes to be sent as.
        told = reason[:REASON_CHARACTERS_MAX].encode("utf-8", "replace").decode()
        return await self._end(claim, "failed", told)

    async def failures(self, tree: TreeId, *, limit: int = 1_000) -> Sequence[Failure]:
        """Nodes whose last attempts failed."""
        found: dict[NodeId, Failure] = {}
        cursor = b"0"
        while True:
            cursor, fields = await self._link.command("HSCAN", self._link.keys(tree).failures, cursor, "COUNT", PAGE)
            for name, value in fields.items():
                count, at_ms, reason, _ = _record.decode(value)
                node = NodeId(name.decode())
                found[node] = Failure(node=node, failures=count, reason=reason, at=datetime.fromtimestamp(at_ms / 1000, UTC))
            if int(cursor) == 0:
                break
        return sorted(found.values(), key=lambda one: (-one.failures, one.node))[:limit]

    async def _take(self, tree: TreeId, node: NodeId, token: str, ttl: timedelta) -> tuple[bool, bytes]:
        keys = self._link.keys(tree)
        ttl_ms = math.ceil(ttl.total_seconds() * 1000)
        taken, answer = await self._link.script("claim_take", [keys.claim(node), keys.failures], token, ttl_ms, node)
        return bool(taken), answer

    async def _end(self, claim: Claim, how: str, reason: str = "") -> int:
        keys = self._link.keys(claim.tree)
        names = [keys.claim(claim.node), keys.failures]
        return int(await self._link.script("claim_end", names, claim.token, claim.node, how, reason, FAILURES_MAX))
