"""
Whether a worker works: looked at by what it has done, not by the process being there.

A worker that was thrown out of its group, or whose loop hangs, looks healthy from outside and does nothing. A thread of its own
watches, since a loop that hangs cannot watch itself.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import structlog

EX_TEMPFAIL = 75
"""The exit code of a process that could not go on and is to be started again (sysexits.h)."""
CHECK_EVERY = 1.0  # seconds
LOOP_SILENT_MAX = 60
"""Checks in a row without a sign of life of the event loop before the process is ended."""

_log = structlog.stdlib.get_logger("streams.liveness")


@dataclass(slots=True)
class Progress:
    """What a worker has done; written by its event loop, read by the watchdog."""

    records: int = 0
    """Acknowledged."""
    in_hand: int = 0
    """Taken and not yet acknowledged."""
    in_hand_since: float | None = None
    """Monotonic time since when something has been in hand and nothing was acknowledged."""
    partitions: int = 0
    """Held by this worker."""
    lag: int = 0
    """Records waiting in them, as of the last look."""
    lag_since: float | None = None
    """Monotonic time since when records have waited while none was in hand."""
    rebalancing_since: float | None = None
    """Monotonic time since when the group has been sharing its partitions anew."""
    beats: int = 0
    """Signs of life of the loop."""

    def taken(self, now: float, records: int) -> None:
        """Records came."""
        self.in_hand += records
        self.lag_since = None
        if self.in_hand_since is None:
            self.in_hand_since = now

    def done(self, now: float, records: int) -> None:
        """Records were acknowledged."""
        self.in_hand -= records
        self.records += records
        self.lag_since = None
        self.in_hand_since = now if self.in_hand else None

    def grouped(self, now: float, *, rebalancing: bool) -> None:
        """The group was looked at."""
        if not rebalancing:
            self.rebalancing_since = None
        elif self.rebalancing_since is None:
            self.rebalancing_since = now

    def looked(self, now: float, *, partitions: int, lag: int) -> None:
        """The partitions were looked at."""
        self.partitions = partitions
        self.lag = lag
        if not lag or self.in_hand:
            self.lag_since = None
        elif self.lag_since is None:
            self.lag_since = now


def end_process(reason: str) -> None:
    """End at once, without waiting for anything that may hang; nothing that was acknowledged is lost by that."""
    _log.error("cannot go on", reason=reason, exit_code=EX_TEMPFAIL)
    for handler in logging.getLogger().handlers:
        handler.flush()
    os._exit(EX_TEMPFAIL)


class Watchdog:
    """
    Ends the process when it works no more.

    Args:
        progress: what is watched.
        stall: seconds that records may wait while nothing is in hand, or that a rebalance may last.
        in_hand_max: seconds in which something in hand must be acknowledged; less than what the client leaves its group after.
        end: is told the reason.
    """

    def __init__(self, progress: Progress, *, stall: float, in_hand_max: float, end: Callable[[str], None] = end_process) -> None:
        self._progress = progress
        self._stall = stall
        self._in_hand_max = in_hand_max
        self._end = end
        self._stopped = threading.Event()
        self._beats = -1
        self._silent = 0

    def start(self) -> None:
        """Watch, in a thread of its own."""
        threading.Thread(target=self._watch, name="banyan-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def verdict(self, now: float) -> str | None:
        """
        Why the process is to end, or None. To be asked once every `CHECK_EVERY` seconds.

        The loop's silence is counted in checks, not in seconds: a process that was stopped as a whole (SIGSTOP) has not hung.
        """
        progress = self._progress
        self._silent = self._silent + 1 if progress.beats == self._beats else 0
        self._beats = progress.beats
        if self._silent >= LOOP_SILENT_MAX:
            return f"the event loop has not answered for {self._silent} checks, {CHECK_EVERY:g} s apart"
        since = progress.in_hand_since
        if since is not None and now - since > self._in_hand_max:
            return f"nothing was acknowledged for {now - since:.0f} s; Kafka's client would leave its group for good soon"
        sharing = progress.rebalancing_since
        if sharing is not None and now - sharing > self._stall:
            return f"the group has been sharing its partitions anew for {now - sharing:.0f} s"
        waiting = progress.lag_since
        if waiting is not None and now - waiting > self._stall:
            return f"{progress.lag} records have waited for {now - waiting:.0f} s and none was taken"
        return None

    def _watch(self) -> None:
        while not self._stopped.wait(CHECK_EVERY):
            if (reason := self.verdict(time.monotonic())) is not None:
                self._end(reason)
                return
