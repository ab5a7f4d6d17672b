"""Ctrl-C: once finishes what is in hand, twice ends at once."""

from __future__ import annotations

import asyncio
import os
import signal
from types import TracebackType
from typing import Self

from streams.cli.console import Output

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_INTERRUPTED = 130


class Interrupts:
    """
    While it is entered, the first Ctrl-C (or SIGTERM) sets `stop`, the second ends the process.

    Args:
        output: says what happens.
        message: what the first one means for the work in hand.
    """

    def __init__(self, output: Output, message: str) -> None:
        self._output = output
        self.message = message
        self.stop = asyncio.Event()

    def __enter__(self) -> Self:
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.remove_signal_handler(each)

    def _on_signal(self) -> None:
        if self.stop.is_set():
            # Whatever was acknowledged is on disk; threads may hang in a call, so nothing is waited for.
            self._output.err.show_cursor(True)
            self._output.note("interrupted at once; what was committed is kept")
            os._exit(_INTERRUPTED)
        self.stop.set()
        self._output.note(self.message)
