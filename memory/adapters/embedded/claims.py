"""Claims on nodes among the tasks of one process."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta

from memory.errors import ClaimBusyError
from memory.model import NodeId, TreeId
from memory.ports.claims import REASON_CHARACTERS_MAX, Claim, Failure, NodeClaims
from memory.ports.clock import Clock


class InProcessClaims(NodeClaims):
    """
    Claims within one process, on one event loop; the ledger lasts as long as the process.

    Args:
        clock: what times-to-live are measured by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[tuple[TreeId, NodeId], tuple[str, float]] = {}
        """Token and end."""
        self._failures: defaultdict[TreeId, dict[NodeId, Failure]] = defaultdict(dict)
        self._tokens = map(str, itertools.count(1))

    async def claim(self, tree: TreeId, node: NodeId, *, ttl: timedelta) -> Claim:
        """Take the node."""
        now = self._clock.monotonic()
        _, end = self._held.get((tree, node), ("", now))
        if end > now:
            raise ClaimBusyError(f"{node} of tree {tree!r} is being summarized already", retry_after=end - now)
        token = next(self._tokens)
        self._held[tree, node] = token, now + ttl.total_seconds()
        known = self._failures.get(tree, {}).get(node)
        return Claim(tree=tree, node=node, token=token, failures=known.failures if known else 0)

    async def renew(self, claim: Claim, *, ttl: timedelta) -> bool:
        """Extend the claim."""
        now = self._clock.monotonic()
        token, end = self._held.get((claim.tree, claim.node), ("", now))
        if token != claim.token and end > now:
            return False
        self._held[claim.tree, claim.node] = claim.token, now + ttl.total_seconds()
        return True

    async def release(self, claim: Claim) -> None:
        """Give the node back."""
        key = (claim.tree, claim.node)
        if self._held.get(key, ("", 0.0))[0] == claim.token:
            del self._held[key]

    async def done(self, claim: Claim) -> None:
        """Give the node back and forget its failures."""
        await self.release(claim)
        failed = self._failures.get(claim.tree)
        if failed is not None and failed.pop(claim.node, None) is not None and not failed:
            del self._failures[claim.tree]

    async def failed(self, claim: Claim, reason: str) -> int:
        """Give the node back and count a failure."""
        await self.release(claim)
        of_tree = self._failures[claim.tree]
        before = of_tree.get(claim.node)
        count = before.failures + 1 if before else 1
        of_tree[claim.node] = Failure(node=claim.node, failures=count, reason=reason[:REASON_CHARACTERS_MAX], at=self._clock.now())
        return count

    async def failures(self, tree: TreeId, *, limit: int = 1_000) -> Sequence[Failure]:
        """Nodes whose last attempts failed."""
        found = sorted(self._failures.get(tree, {}).values(), key=lambda one: (-one.failures, one.node))
        return found[:limit]
