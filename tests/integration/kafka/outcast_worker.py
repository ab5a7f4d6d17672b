"""An ingest worker whose client leaves its group for good, as after too long without a poll. Run as a script by the tests."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Any

import structlog

from streams.app import Role
from streams.pipelines import Ingesting, open_ingesting
from streams.run import run_worker
from streams.runtime import Runtime
from streams.setting_tables import LogSettings
from streams.settings import Settings, load
from streams.telemetry import configure_logging
from tests.integration.kafka.seen_first import end_once_seen

LEAVES_AFTER = 3.0  # seconds


def leave(client: Any) -> None:
    """What the client's own timer does; it does not come back by itself."""

    async def go() -> None:
        coordinator = client._coordinator
        coordinator._coordination_task.cancel()
        await coordinator._maybe_leave_group()
        structlog.stdlib.get_logger("test").warning("left")

    client._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(go(), loop=client._loop))


def main() -> int:
    end_once_seen()

    async def opened(settings: Settings) -> Ingesting:
        asyncio.get_running_loop().call_later(LEAVES_AFTER, out, 0)
        return await open_ingesting(settings)

    def out(times: int) -> None:
        import gc  # noqa: PLC0415

        from aiokafka import AIOKafkaConsumer  # noqa: PLC0415

        found = [each for each in gc.get_objects() if isinstance(each, AIOKafkaConsumer) and each._group_id is not None]
        if times and found:
            for client in found:
                leave(client)
            return
        # On a slow machine it has yet to get its partitions; once it has them, it is left in peace for a moment.
        settled = bool(found) and all(client.assignment() for client in found)
        asyncio.get_running_loop().call_later(LEAVES_AFTER, out, times + settled)

    settings = load(os.environ).settings
    configure_logging(LogSettings(level="info", format="json"))
    return asyncio.run(run_worker(Role.INGEST, settings, runtime=Runtime(settings, opened)))


if __name__ == "__main__":
    sys.exit(main())
