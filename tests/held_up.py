"""
Tests whose deadlines are real, and what is made of one that fails while the machine is held up.

A lease in a server and a connection that says nothing end by clocks that a test cannot move: such tests are marked `real_time`, and
their seconds are short. Where one fails, and meanwhile this process or a server waited for a processor or was stopped for longer
than its deadlines allow, it has shown nothing: it is run again. Where the machine held nothing up, it has failed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path
from typing import Self

import pytest
from _pytest.runner import runtestprotocol

from tests.servers import redis

TICK = 0.005  # seconds
ALLOWED = 0.05  # seconds
"""A fifth of the shortest second of these tests (`tests.contract.conftest.SECOND`)."""
ATTEMPTS = 12


class Watch:
    """For how long this process, or a server that it started, did not run: because of a stop, or of others on the processors."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._longest = 0.0
        self._thread = threading.Thread(target=self._tick, name="held-up", daemon=True)
        self._waited = _waited()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        """The longest stop, or what one process waited for a processor in all, if that is more."""
        waits = [waited - self._waited.get(process, 0.0) for process, waited in _waited().items()]
        return max(self._longest, *waits, 0.0)

    def _tick(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(TICK):
            now = time.monotonic()
            self._longest, last = max(self._longest, now - last - TICK), now


def _waited() -> dict[str, float]:
    """Seconds for which processes were ready to run and did not, by process; nothing where the system does not tell."""
    found = {}
    for process in ("self", *map(str, redis.running)):
        try:
            found[process] = int(Path(f"/proc/{process}/schedstat").read_text(encoding="ascii").split()[1]) / 1e9
        except (OSError, IndexError, ValueError):
            continue
    return found


class RealTime:
    """The plugin."""

    def __init__(self) -> None:
        self.void: Counter[str] = Counter()
        """Runs that showed nothing, by test."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Run a test with real deadlines until its verdict counts."""
        if item.get_closest_marker("real_time") is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for attempt in range(ATTEMPTS):
            with Watch() as watch:
                reports = runtestprotocol(item, log=False, nextitem=nextitem)
            held_up = watch.seconds
            if attempt + 1 == ATTEMPTS or held_up < ALLOWED or not any(report.failed for report in reports):
                break
            self.void[item.nodeid] += 1
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was run again."""
        for test, count in self.void.items():
            terminalreporter.write_line(f"HELD UP: a test with real deadlines was run again {count} times: {test}", yellow=True)
