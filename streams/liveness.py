"""
Whether a worker works: looked at by what it has done (`streams.progress`), not by the process being there.

A thread of its own watches, since a loop that hangs cannot watch itself. Half of what it ends the process for makes `/healthz`
fail.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace

import structlog

from streams.progress import Limits, Progress

EX_TEMPFAIL = 75
"""The exit code of a process that could not go on and is to be started again (sysexits.h)."""
CHECK_EVERY = 1.0  # seconds
LOOP_SILENT_MAX = 60
"""Checks in a row without a sign of life of the event loop before the process is ended."""
STOPPED = 10.0  # seconds
"""Between two checks: then it was the process as a whole that was stopped."""

_log = structlog.stdlib.get_logger("streams.liveness")


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
        limits: when.
        end: is told the reason.
    """

    def __init__(self, progress: Progress, limits: Limits, *, end: Callable[[str], None] = end_process) -> None:
        self._progress = progress
        self._limits = limits
        self._half = replace(limits, stall=limits.stall / 2, in_hand=limits.in_hand / 2, outcast=limits.outcast / 2)
        self._end = end
        self._stopped = threading.Event()
        self._beats = -1
        self._silent = 0
        self._checked: float | None = None
        self.unwell: str | None = None
        """Why it is on its way to be ended."""

    def start(self) -> None:
        """Watch, in a thread of its own."""
        threading.Thread(target=self._watch, name="banyan-watchdog", daemon=True).start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopped.set()

    def verdict(self, now: float) -> str | None:
        """
        Why the process is to end, or None. To be asked once every `CHECK_EVERY` seconds; tells `unwell` too.

        The loop's silence is counted in checks, and what waits is counted anew after a pause between them: a process that was
        stopped as a whole (SIGSTOP) has not hung.
        """
        if self._checked is not None and now - self._checked > STOPPED:
            self._progress.unseen()
        self._checked = now
        progress = self._progress
        self._silent = self._silent + 1 if progress.beats == self._beats else 0
        self._beats = progress.beats
        silent = f"the event loop has not answered for {self._silent} checks, {CHECK_EVERY:g} s apart"
        self.unwell = silent if self._silent >= LOOP_SILENT_MAX // 2 else progress.verdict(now, self._half)
        if self._silent >= LOOP_SILENT_MAX:
            return silent
        return progress.verdict(now, self._limits)

    def _watch(self) -> None:
        while not self._stopped.wait(CHECK_EVERY):
            try:
                reason = self.verdict(time.monotonic())
            except Exception:  # noqa: BLE001
                # Whatever it is, a watchdog that is dead would be worse.
                _log.exception("watchdog failed")
                continue
            if reason is not None:
                self._end(reason)
                return
