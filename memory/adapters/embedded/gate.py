"""
Path leases among the processes that share one store file.

A lease is had among the tasks of this process first come, first served (`InProcessLeases`), and this process has the tree to itself
meanwhile, by a lock on one byte of a lock file. The kernel gives such a lock back when its process dies, however it dies. While one
process is stopped (SIGSTOP) with the lock, others wait for their bound once and then go on without leases until the lock is free
again: expectations keep their commits right.

Without this, processes that write one tree plan in vain much of the time: each commit of the one, most of all each summary that is
written, refuses the plan the other has just made (measured in docs/reliability.md).
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from memory.adapters.embedded.leases import InProcessLeases
from memory.errors import LeaseBusyError, StoreUnavailableError
from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.leases import Lease, PathLeases

STRIPES = 1 << 20
"""Bytes that trees are spread over; two trees on one byte only wait for one another."""
HOLD_MAX = 0.05  # seconds
"""How long a process goes on with a tree, lease after lease, while others wait for it."""
POLL_FIRST, POLL_LAST = 0.0005, 0.01  # seconds
STUCK_WAIT, STUCK_REST = 0.05, 1.0  # seconds
"""Longest wait for a lock that was not to be had in a lease's whole wait (its process is stopped or stuck), and how long it is then
only tried and not waited for."""

_SET = getattr(fcntl, "F_OFD_SETLK", None)
_GET = getattr(fcntl, "F_OFD_GETLK", None)


@dataclass(slots=True)
class _Gate:
    """One stripe, as this process has it."""

    users: int = 0
    """Leases, held or waited for among our tasks, for which we have the lock."""
    entering: int = 0
    since: float | None = None
    """When our present run of leases began; None when the others have had their turn since."""
    polite: float = 0.0
    """Until when we leave the lock to those who wait."""
    stuck: bool = False
    rested: float = 0.0
    """When a stuck lock is waited for again."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)


class FileLeases(PathLeases):
    """
    Leases of all processes that open the same store.

    Args:
        path: of the lock file, made if missing; best beside the store's file. Where the system has no open-file-description locks
            (Linux has), leases are those of this process alone.
        clock: as for `InProcessLeases`.

    Raises:
        StoreUnavailableError: the file cannot be made.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._clock = clock
        self._local = InProcessLeases(clock)
        self._gates: dict[int, _Gate] = {}
        self._counted: dict[int, tuple[int, asyncio.Task[None]]] = {}
        """Of each lease's token, its stripe and what counts it out when its time is over."""
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreUnavailableError(f"{path} cannot be made: {error.strerror}; check the folder and its permissions") from error

    @property
    def local(self) -> InProcessLeases:
        """The leases among this process's tasks; what a store asks whether a lease is valid."""
        return self._local

    async def acquire(
        self, tree: TreeId, *, shared: Sequence[NodeId] = (), exclusive: Sequence[NodeId] = (), ttl: timedelta, wait: timedelta
    ) -> Lease:
        """Take all nodes or none."""
        end = self._clock.monotonic() + wait.total_seconds()
        stripe = zlib.crc32(tree.encode()) % STRIPES
        if not await self._enter(stripe, end):
            raise LeaseBusyError(f"{tree}: another process held its path for more than {wait.total_seconds():g} s")
        try:
            left = timedelta(seconds=max(0.0, end - self._clock.monotonic()))
            lease = await self._local.acquire(tree, shared=shared, exclusive=exclusive, ttl=ttl, wait=left)
        except BaseException:
            self._leave(stripe)
            raise
        self._counted[lease.token] = stripe, asyncio.create_task(self._end(lease, ttl), name="banyan-lease-end")
        return lease

    async def renew(self, lease: Lease, *, ttl: timedelta) -> None:
        """Extend the lease."""
        await self._local.renew(lease, ttl=ttl)
        if lease.token in self._counted:
            stripe, ending = self._counted[lease.token]
            ending.cancel()
            self._counted[lease.token] = stripe, asyncio.create_task(self._end(lease, ttl), name="banyan-lease-end")

    async def release(self, lease: Lease) -> None:
        """Give the lease back."""
        await self._local.release(lease)
        self._count_out(lease.token)

    async def holds(self, lease: Lease) -> bool:
        """Whether the lease has not ended."""
        return await self._local.holds(lease)

    def close(self) -> None:
        """Close the lock file; all locks are given back. Idempotent."""
        for _, ending in self._counted.values():
            ending.cancel()
        self._counted.clear()
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    async def _end(self, lease: Lease, ttl: timedelta) -> None:
        """A lease that nobody gives back must not keep other processes out for longer than it lasts."""
        await self._clock.sleep(ttl.total_seconds())
        self._counted_out(lease.token)

    def _count_out(self, token: int) -> None:
        counted = self._counted.get(token)
        if counted is not None:
            counted[1].cancel()
            self._counted_out(token)

    def _counted_out(self, token: int) -> None:
        stripe, _ = self._counted.pop(token)
        self._leave(stripe)

    # ------------------------------------------------------------------------------------------------- among processes

    async def _enter(self, stripe: int, end: float) -> bool:
        """Have this process have the stripe, and count one in; False when another one kept it until `end`."""
        if _SET is None or self._file < 0:
            return True
        gate = self._gates.setdefault(stripe, _Gate())
        gate.entering += 1
        try:
            async with gate.turn:
                if not await self._may_stay(gate, stripe, end):
                    return False
                if not gate.users:
                    await self._clock.sleep(gate.polite - self._clock.monotonic())
                    if not await self._lock(gate, stripe, end):
                        return False
                gate.users += 1
                return True
        finally:
            gate.entering -= 1
            self._forget(gate, stripe)

    def _leave(self, stripe: int) -> None:
        if _SET is None or self._file < 0:
            return
        gate = self._gates[stripe]
        gate.users -= 1
        if gate.users == 0:
            if self._overdue(gate, stripe):
                gate.since = None
                gate.polite = self._clock.monotonic() + 1.2 * POLL_LAST
            self._set(fcntl.F_UNLCK, stripe * 2)
            self._forget(gate, stripe)

    def _forget(self, gate: _Gate, stripe: int) -> None:
        idle = not gate.users and not gate.entering
        if idle and gate.since is None and not gate.stuck and gate.polite <= self._clock.monotonic():
            self._gates.pop(stripe, None)

    async def _may_stay(self, gate: _Gate, stripe: int, end: float) -> bool:
        """Let our leases run out when they overlap without end and others wait; False when that takes until `end`."""
        if gate.users and self._overdue(gate, stripe):
            while gate.users:
                if self._clock.monotonic() >= end:
                    return False
                await self._clock.sleep(POLL_FIRST)
        return True

    def _overdue(self, gate: _Gate, stripe: int) -> bool:
        return gate.since is not None and self._clock.monotonic() - gate.since > HOLD_MAX and self._others_wait(stripe)

    async def _lock(self, gate: _Gate, stripe: int, end: float) -> bool:
        """Have the byte of this stripe; the byte after it says that somebody waits."""
        if not self._set(fcntl.F_WRLCK, stripe * 2):
            gate.since = None
            if gate.stuck:
                now = self._clock.monotonic()
                if now < gate.rested:
                    return False
                end = min(end, now + STUCK_WAIT)
            self._set(fcntl.F_RDLCK, stripe * 2 + 1)
            pause = POLL_FIRST
            try:
                while not self._set(fcntl.F_WRLCK, stripe * 2):
                    if self._clock.monotonic() >= end:
                        gate.stuck = True
                        gate.rested = self._clock.monotonic() + STUCK_REST
                        return False
                    await self._clock.sleep(pause)
                    pause = min(pause * 1.5, POLL_LAST)
            finally:
                self._set(fcntl.F_UNLCK, stripe * 2 + 1)
        gate.stuck = False
        if gate.since is None:
            gate.since = self._clock.monotonic()
        return True

    def _set(self, kind: int, byte: int) -> bool:
        """Set or clear a lock on one byte without waiting; False when another process has it."""
        assert _SET is not None
        if self._file < 0:
            return True  # closed: every lock is gone with the file
        try:
            fcntl.fcntl(self._file, _SET, _flock(kind, byte))
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _others_wait(self, stripe: int) -> bool:
        assert _GET is not None
        answer = fcntl.fcntl(self._file, _GET, _flock(fcntl.F_WRLCK, stripe * 2 + 1))
        return bool(struct.unpack("hhqqi4x", answer)[0] != fcntl.F_UNLCK)


def _flock(kind: int, byte: int) -> bytes:
    """`struct flock` of one byte, as Linux has it on 64-bit machines."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, byte, 1, 0)
