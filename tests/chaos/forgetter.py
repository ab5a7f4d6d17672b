"""
`banyan` in a process that ends itself, as kill -9 would, at a given moment of its work on the store.

    python -m tests.chaos.forgetter MOMENT FILE forget TREE --conversation C

Moments are statements that SQLite begins and thousands of its instructions, of all connections together, counted from 1: how far it
comes does not depend on the machine's speed. With 0 it lives, and writes to FILE how many there were.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import threading
from pathlib import Path
from typing import Any

INSTRUCTIONS = 1_000


class Moments:
    """
    Counts moments.

    Args:
        last: the one at which the process ends; 0 for none.
    """

    def __init__(self, last: int) -> None:
        self.count = 0
        self._last = last
        self._lock = threading.Lock()

    def __call__(self, *_: object) -> int:
        """One more."""
        with self._lock:
            self.count += 1
            if self.count == self._last:
                os.kill(os.getpid(), signal.SIGKILL)
        return 0


def main() -> None:
    """Entry point."""
    last, file, *arguments = sys.argv[1:]
    moments, connect = Moments(int(last)), sqlite3.connect

    def counting(*given: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*given, **options)
        connection.set_trace_callback(moments)
        connection.set_progress_handler(moments, INSTRUCTIONS)
        return connection

    sqlite3.connect = counting  # type: ignore[assignment]
    from streams.cli.app import run  # noqa: PLC0415

    code = run(arguments)
    Path(file).write_text(str(moments.count))
    sys.exit(code)


if __name__ == "__main__":
    main()
