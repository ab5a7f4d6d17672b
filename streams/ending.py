"""The end of a process that answers: the first signal asks for it, the second does not wait."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = structlog.stdlib.get_logger("streams")


class Ending:
    """That the process is to end, from the first signal on; the second ends it at once."""

    def __init__(self) -> None:
        self.asked = False
        self._calls: list[Callable[[], None]] = []

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take the process's signals: from before anything is opened until all is closed, so that its end is never the signal's."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._on_signal, each)
        try:
            yield
        finally:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

    def call(self, call: Callable[[], None]) -> None:
        """Have something called at the first signal; at once, if that has come."""
        self._calls.append(call)
        if self.asked:
            call()

    def _on_signal(self, number: signal.Signals) -> None:
        if self.asked:
            _log.warning("ended at once", signal=number.name)
            os._exit(128 + number)
        _log.info("draining", signal=number.name)
        self.asked = True
        for call in self._calls:
            call()
