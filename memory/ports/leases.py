"""Time-limited locks on a path of a tree, with fencing tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from memory.model import NodeId, TreeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lock that is held until it is released or its time is over."""

    tree: TreeId
    shared: tuple[NodeId, ...]
    exclusive: tuple[NodeId, ...]
    token: int
    """Fencing token: of two leases on one tree, the one granted later has the greater."""


class PathLeases(ABC):
    """
    Leases on nodes of a tree: any number may share a node, or one may have it to itself.

    All nodes of a lease are had at once or none is. A lease that is not renewed ends by itself after its time-to-live, whatever
    became of its holder. Waiters are served in order of arrival as far as their nodes allow, and none for longer than its wait.
    """

    remote: ClassVar[bool] = False
    """Whether taking one costs round trips, so that it pays to try without."""

    @abstractmethod
    async def acquire(
        self, tree: TreeId, *, shared: Sequence[NodeId] = (), exclusive: Sequence[NodeId] = (), ttl: timedelta, wait: timedelta
    ) -> Lease:
        """
        Take all nodes or none. A node named in both is exclusive.

        Raises:
            LeaseBusyError: not to be had within `wait`; nothing is held.
        """

    @abstractmethod
    async def renew(self, lease: Lease, *, ttl: timedelta) -> None:
        """
        Extend the lease to `ttl` from now.

        Raises:
            LeaseLostError: it had ended already.
        """

    @abstractmethod
    async def release(self, lease: Lease) -> None:
        """Give the lease back; nothing happens when it had ended already."""

    @abstractmethod
    async def holds(self, lease: Lease) -> bool:
        """Whether the lease has not ended."""
