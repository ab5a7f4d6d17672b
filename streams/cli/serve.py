"""`banyan serve`."""

from __future__ import annotations

from dataclasses import replace

import click

from memory.errors import SettingError
from streams.cli.common import Session, run_async, shared_options


@click.command(
    epilog="""
\b
Examples:
  banyan keys create chat-app && banyan serve
  BANYAN_AUTH=off banyan serve --port 8080
  BANYAN_STORE=redis://localhost BANYAN_BROKER=localhost:9092 banyan serve --host 0.0.0.0
"""
)
@click.option("--host", metavar="H", help="Address to listen on (BANYAN_SERVE_HOST).")
@click.option("--port", metavar="N", help="Port to listen on; 0 takes a free one (BANYAN_SERVE_PORT).")
@shared_options
@run_async
async def serve(host: str | None, port: str | None, session: Session) -> None:
    """
    Answer over HTTP: put records in, search, look at trees; a page at /, the API at /docs.

    Embedded on a file, or with BANYAN_STORE=redis://… beside workers, where records go to Kafka. Keys are made with `banyan keys
    create`; BANYAN_AUTH=off lets everybody in, on this machine's own address only. Ends in order on SIGTERM or Ctrl-C.
    """
    loaded = session.load(serve_host=host, serve_port=port)
    from streams.telemetry import configure_logging  # noqa: PLC0415

    log = session.settings.log
    if loaded.origins["log_level"] == "default":
        log = replace(log, level="info")
    configure_logging(replace(log, format="json") if session.output.as_json else log)
    try:
        from streams.query.server import run_server  # noqa: PLC0415  # an optional extra
    except ModuleNotFoundError as error:
        raise SettingError("serving needs the extra serve: pip install 'banyan-memory[serve]'") from error
    settings = session.settings

    def told(address: str) -> None:
        if session.output.as_json:
            session.output.emit({"url": address, "auth": settings.auth})
        else:
            session.output.show(f"Banyan is at {address} (API: {address}/docs)")
        if settings.auth == "keys" and not settings.serve.keys_file.exists():
            session.output.warn(
                f"there are no keys in {settings.serve.keys_file} yet, so nobody is let in; `banyan keys create NAME` makes one, "
                "while this runs too"
            )

    await run_server(settings, told=told)
