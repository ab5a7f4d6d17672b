"""An ingest worker that takes one batch and then none, though Faust goes on fetching. Run as a script by the tests."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import structlog

from streams.agents import turns
from streams.agents.consuming import consume
from streams.app import Role
from streams.run import run_worker
from streams.setting_tables import LogSettings
from streams.settings import load
from streams.telemetry import configure_logging
from tests.integration.kafka.seen_first import end_once_seen


class Deaf:
    """A stream that ends its first batch and then never has another."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def noack_take(self, size: int, within: float) -> Any:
        async for events in self._stream.noack_take(size, within=within):
            yield events
            structlog.stdlib.get_logger("test").warning("deaf")
            await asyncio.Event().wait()


async def once(stream: Any, runtime: Any) -> None:
    await consume(Deaf(stream), runtime)


def main() -> int:
    end_once_seen()
    turns.consume = once  # type: ignore[attr-defined, assignment]
    settings = load(os.environ).settings
    configure_logging(LogSettings(level="info", format="json"))
    return asyncio.run(run_worker(Role.INGEST, settings))


if __name__ == "__main__":
    sys.exit(main())
