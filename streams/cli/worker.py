"""`banyan worker`."""

from __future__ import annotations

from dataclasses import replace

import click

from streams.cli.common import Session, run_async, shared_options


@click.group(
    epilog="""
\b
Examples:
  BANYAN_STORE=redis://localhost banyan worker ingest
  banyan worker ingest --json 2> worker.log
  BANYAN_SUMMARIZER=openai:gpt-4o-mini BANYAN_SUMMARIES_WORKERS=16 banyan worker summaries
"""
)
def worker() -> None:
    """
    Run a worker; as many of each kind as the load needs, on as many machines.

    It is told what to do by settings alone, logs to standard error (--json: as JSON lines), and ends in order on SIGTERM or Ctrl-C;
    a second one ends it at once. Whatever ends it, nothing is lost. Exit code 75 means that it could not go on and is to be started
    again.
    """


@worker.command()
@shared_options
@run_async
async def ingest(session: Session) -> int:
    """Put turns and documents from Kafka into trees."""
    return await _run("ingest", session)


@worker.command()
@shared_options
@run_async
async def summaries(session: Session) -> int:
    """Bring the summaries of trees up to date as they change."""
    return await _run("summaries", session)


async def _run(role: str, session: Session) -> int:
    loaded = session.load()
    from streams.broker import need_kafka  # noqa: PLC0415
    from streams.telemetry import configure_logging  # noqa: PLC0415

    need_kafka()
    from streams.app import Role  # noqa: PLC0415  # brings Faust
    from streams.run import run_worker  # noqa: PLC0415

    log = session.settings.log
    if loaded.origins["log_level"] == "default":
        # A process that runs for months and says nothing cannot be told from one that hangs.
        log = replace(log, level="info")
    configure_logging(replace(log, format="json") if session.output.as_json else log)
    return await run_worker(Role(role), session.settings)
