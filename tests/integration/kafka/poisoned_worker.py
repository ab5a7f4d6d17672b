"""A summary worker whose model answers rubbish about some nodes, is away, or refuses the key. Run as a script by the tests."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence

from memory.adapters.embedded.extractive import ExtractiveSummarizer
from memory.errors import SettingError, SummarizerAnswerError, SummarizerError
from memory.ports.summarizer import Summary, SummaryRequest
from streams import pipelines
from streams.app import Role
from streams.run import run_worker
from streams.runtime import Runtime
from streams.setting_tables import LogSettings
from streams.settings import Settings, load
from streams.telemetry import configure_logging


class Poisoned(ExtractiveSummarizer):
    """Never likes violins."""

    async def summarize(self, request: SummaryRequest) -> Summary:
        if any("violin" in text for text in request.new):
            raise SummarizerAnswerError("rubbish")
        return await super().summarize(request)


class Away(ExtractiveSummarizer):
    """Always busy."""

    async def summarize(self, request: SummaryRequest) -> Summary:  # noqa: ARG002
        raise SummarizerError("away (503)")


class Refused(ExtractiveSummarizer):
    """Has had its key taken away."""

    async def summarize(self, request: SummaryRequest) -> Summary:  # noqa: ARG002
        raise SettingError("the model answered 401, the key was refused")


KINDS = {"poisoned": Poisoned, "away": Away, "refused": Refused}


def main(arguments: Sequence[str]) -> int:
    async def opened(settings: Settings) -> pipelines.Summarizing:
        summarizer = KINDS[arguments[0] if arguments else "poisoned"]()
        return await pipelines.open_summarizing(settings, summarizer=summarizer)

    settings = load(os.environ).settings
    configure_logging(LogSettings(level="info", format="json"))
    return asyncio.run(run_worker(Role.SUMMARIES, settings, runtime=Runtime(settings, opened)))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
