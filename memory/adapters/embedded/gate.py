"""
Path leases among the processes that share one store file.

A lease is had among the tasks of this process first (`InProcessLeases`), and this process then has the tree to itself, by a lock on
one byte of a lock file. The kernel gives such a lock back when its process dies, however it dies. While one process is stopped
(SIGSTOP) with the lock, others wait for their bound and then go on without a lease: expectations keep their commits right.

Without this two processes that write one tree plan in vain most of the time: each commit of the one, most of all each summary that
is written, refuses the plan the other has just made (measured: 2 writers, 50 refusals in a row, a few times a minute).
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
"""How long a process keeps a tree while others wait for it and its own leases overlap."""
POLL_FIRST, POLL_LAST = 0.0005, 0.01  # seconds

_SET = getattr(fcntl, "F_OFD_SETLK", None)
_GET = getattr(fcntl, "F_OFD_GETLK", None)


@dataclass(slots=True)
class _Gate:
    users: int = 0
    since: float = 0.0
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    empty: asyncio.Event = field(default_factory=asyncio.Event)


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
        await self._enter(tree, end, wait)
        try:
            left = timedelta(seconds=max(0.0, end - self._clock.monotonic()))
            return await self._local.acquire(tree, shared=shared, exclusive=exclusive, ttl=ttl, wait=left)
        except BaseException:
            self._leave(tree)
            raise

    async def renew(self, lease: Lease, *, ttl: timedelta) -> None:
        """Extend the lease."""
        await self._local.renew(lease, ttl=ttl)

    async def release(self, lease: Lease) -> None:
        """Give the lease back. To be called once for every lease, ended or not: it also counts this process out."""
        await self._local.release(lease)
        self._leave(lease.tree)

    async def holds(self, lease: Lease) -> bool:
        """Whether the lease has not ended."""
        return await self._local.holds(lease)

    def close(self) -> None:
        """Close the lock file; all locks are given back."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    async def _enter(self, tree: TreeId, end: float, wait: timedelta) -> None:
        if _SET is None:
            return
        stripe = zlib.crc32(tree.encode()) % STRIPES
        gate = self._gates.setdefault(stripe, _Gate())
        async with gate.turn:
            if gate.users and self._clock.monotonic() - gate.since > HOLD_MAX and self._others_wait(stripe):
                # Our leases overlap without end: let them run out, so that the others get their turn.
                gate.empty.clear()
                await gate.empty.wait()
                await self._clock.sleep(POLL_FIRST * 4)
            if not gate.users:
                await self._lock(stripe, tree, end, wait)
                gate.since = self._clock.monotonic()
            gate.users += 1

    def _leave(self, tree: TreeId) -> None:
        if _SET is None:
            return
        stripe = zlib.crc32(tree.encode()) % STRIPES
        gate = self._gates[stripe]
        gate.users -= 1
        if gate.users == 0:
            self._set(fcntl.F_UNLCK, stripe * 2)
            gate.empty.set()
            if not gate.turn.locked():
                del self._gates[stripe]

    async def _lock(self, stripe: int, tree: TreeId, end: float, wait: timedelta) -> None:
        """Have the byte of this stripe; the byte after it says that somebody waits."""
        if self._set(fcntl.F_WRLCK, stripe * 2):
            return
        self._set(fcntl.F_RDLCK, stripe * 2 + 1)
        pause = POLL_FIRST
        try:
            while not self._set(fcntl.F_WRLCK, stripe * 2):
                if self._clock.monotonic() >= end:
                    raise LeaseBusyError(f"{tree}: another process held its path for more than {wait.total_seconds():g} s")
                await self._clock.sleep(pause)
                pause = min(pause * 1.5, POLL_LAST)
        finally:
            self._set(fcntl.F_UNLCK, stripe * 2 + 1)

    def _set(self, kind: int, byte: int) -> bool:
        """Set or clear a lock on one byte without waiting; False when another process has it."""
        assert _SET is not None
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
