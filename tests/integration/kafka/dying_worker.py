"""An ingest worker that dies, or hangs, at a place that is given. Run as a script by the tests."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Sequence

import structlog

from streams.app import Role
from streams.job_topic import JobTopic
from streams.pipelines import Ingesting, open_ingesting
from streams.run import run_worker
from streams.runtime import Runtime
from streams.setting_tables import LogSettings
from streams.settings import Settings, load
from streams.telemetry import configure_logging


class DiesBeforeJobs(JobTopic):
    """The commit stands; no job is sent."""

    async def flush(self) -> int:
        if self.backlog():
            os.kill(os.getpid(), signal.SIGKILL)
        return await super().flush()


class DiesAfterJobs(JobTopic):
    """The jobs are sent; nothing is acknowledged."""

    async def flush(self) -> int:
        sent = await super().flush()
        if sent:
            os.kill(os.getpid(), signal.SIGKILL)
        return sent


class Hangs(JobTopic):
    """For ever."""

    async def flush(self) -> int:
        structlog.stdlib.get_logger("test").warning("hanging")
        return await asyncio.Event().wait()


KINDS: dict[str, type[JobTopic]] = {"before jobs": DiesBeforeJobs, "after jobs": DiesAfterJobs, "hang": Hangs}


def main(arguments: Sequence[str]) -> int:
    async def opened(settings: Settings) -> Ingesting:
        return await open_ingesting(settings, jobs=KINDS[arguments[0]])

    settings = load(os.environ).settings
    configure_logging(LogSettings(level="info", format="json"))
    return asyncio.run(run_worker(Role.INGEST, settings, runtime=Runtime(settings, opened)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
