"""Who is summarizing which node, among all processes, and how often that failed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from memory.model import NodeId, TreeId

REASON_CHARACTERS_MAX = 500
"""Of a failure's reason, in the ledger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to summarize one node, until it is given back or its time is over."""

    tree: TreeId
    node: NodeId
    token: str
    """Names this claim among all."""
    failures: int
    """Attempts at the node that failed in a row before this one, whoever made them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A node whose summary could not be made, as the ledger keeps it until one succeeds."""

    node: NodeId
    failures: int
    """Attempts that failed in a row, at least 1."""
    reason: str
    """Of the last one, for people; at most `REASON_CHARACTERS_MAX` characters."""
    at: datetime
    """Of the last one, UTC."""


class NodeClaims(ABC):
    """
    Claims on nodes that are to be summarized, so that no two workers pay for the same call.

    One at a time has a node. A claim that is not renewed ends by itself after its time-to-live, whatever became of its holder: a
    dead worker is told from a slow one by time alone. What was written under a claim that had ended is still kept right by the
    node's version; a claim saves calls, it does not guard the tree.

    Beside the claims there is a ledger of failures by node, which outlives the process that failed. Calls are safe from several
    tasks, and where the adapter says so, from several processes and machines.
    """

    @abstractmethod
    async def claim(self, tree: TreeId, node: NodeId, *, ttl: timedelta) -> Claim:
        """
        Take the node.

        Whether it or its tree exists is not looked at: a name that no tree can have serves for what workers do one at a time.

        Raises:
            ClaimBusyError: another has it; `retry_after` is until its claim would end by itself.
        """

    @abstractmethod
    async def renew(self, claim: Claim, *, ttl: timedelta) -> bool:
        """Extend the claim to `ttl` from now, also one that had ended and was not taken since. False: another has the node."""

    @abstractmethod
    async def release(self, claim: Claim) -> None:
        """Give the node back, with nothing to say about it; idempotent."""

    @abstractmethod
    async def done(self, claim: Claim) -> None:
        """Give the node back and forget its failures; idempotent."""

    @abstractmethod
    async def failed(self, claim: Claim, reason: str) -> int:
        """
        Give the node back and count a failure, also when the claim had ended meanwhile.

        Returns:
            Failures in a row, this one included.
        """

    @abstractmethod
    async def failures(self, tree: TreeId, *, limit: int = 1_000) -> Sequence[Failure]:
        """Nodes of a tree whose last attempts failed, at most `limit`, those that failed most first."""
