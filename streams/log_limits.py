"""Libraries that say the same thing thousands of times a second, kept from flooding the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

EVERY = 10.0  # seconds
AT_ONCE = 3
"""Messages of one kind that pass in that time."""
LIBRARIES = ("aiokafka", "faust", "mode", "redis", "opentelemetry")


class RepeatFilter(logging.Filter):
    """
    Lets a few messages of one kind (logger, level, place in the source) pass, then says how many it held back.

    Args:
        libraries: loggers, with all below them; others are not looked at.
        now: monotonic seconds.
    """

    def __init__(self, libraries: tuple[str, ...] = LIBRARIES, *, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._libraries = libraries
        self._now = now
        self._seen: dict[tuple[str, int, str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record passes; the first after a flood says how much was held back."""
        if record.name.split(".", 1)[0] not in self._libraries:
            return True
        kind = (record.name, record.levelno, record.pathname, record.lineno)
        now = self._now()
        since, count = self._seen.get(kind, (now, 0))
        if now - since >= EVERY:
            if count > AT_ONCE:
                record.msg = f"{record.getMessage()} [and {count - AT_ONCE} more like it in {now - since:.0f} s]"
                record.args = ()
            since, count = now, 0
        self._seen[kind] = (since, count + 1)
        return count < AT_ONCE


def limit_logs() -> None:
    """
    Put the filter on every handler of the root logger, and leave out what libraries say of their every step.

    To be called after logging is configured.
    """
    if logging.getLogger().level > logging.DEBUG:
        for name in (*LIBRARIES, "streams.app"):
            logging.getLogger(name).setLevel(logging.WARNING)
    limit = RepeatFilter()
    for handler in logging.getLogger().handlers:
        handler.addFilter(limit)
