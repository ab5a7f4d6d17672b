"""`banyan mcp`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import click

from memory.errors import SettingError
from streams.cli.common import Session, asking_options, run_async


@click.command(
    epilog="""
\b
Examples:
  banyan mcp                                             started by a host, on standard input and output
  banyan mcp --store sqlite:////home/ana/memory --tree ana
  banyan mcp --url https://memory.example.org            tools over a running service; its key is BANYAN_KEY
  banyan mcp --transport http                            at http://127.0.0.1:8001/mcp
"""
)
@click.option(
    "--transport",
    type=click.Choice(["stdio", "http"]),
    default="stdio",
    show_default=True,
    help="stdio: a host starts this command. http: streamable HTTP, for hosts that connect.",
)
@click.option("--host", metavar="H", default="127.0.0.1", show_default=True, help="Address to listen on, with http.")
@click.option(
    "--port", type=click.IntRange(0, 65_535), metavar="N", default=8001, show_default=True, help="Port; 0 takes a free one."
)
@click.option("--allow-host", "names", multiple=True, metavar="NAME", help="A name by which hosts may call it; may be repeated.")
@click.option("--tree", metavar="T", help="The one memory that tools use; without it each call names one.")
@click.option("--read-only", is_flag=True, help="Offer no tool that changes anything.")
@asking_options
@run_async
async def mcp(
    transport: Literal["stdio", "http"],
    host: str,
    port: int,
    names: Sequence[str],
    tree: str | None,
    read_only: bool,
    session: Session,
) -> None:
    """
    Give agents the memory as tools, by the Model Context Protocol: remember, recall, context, overview, trees.

    With http, keys of `banyan keys create` are asked for where others can reach it (another --host, an --allow-host), and
    everywhere with BANYAN_AUTH=keys.
    Logs to standard error. Ends in order when the host goes, and on SIGTERM or Ctrl-C.
    """
    loaded = session.load()
    from streams.telemetry import configure_logging  # noqa: PLC0415

    log = session.settings.log
    configure_logging(replace(log, format="json") if session.output.as_json else log)
    try:
        from streams.mcp.run import Wanted, run_mcp  # noqa: PLC0415  # an optional extra
    except ModuleNotFoundError as error:
        raise SettingError("tools for agents need the extra mcp: pip install 'banyan-memory[mcp]'") from error
    settings = session.settings
    wanted = Wanted(
        transport=transport,
        host=host,
        port=port,
        names=names,
        keys=None if loaded.origins["auth"] == "default" else settings.auth == "keys",
        tree=tree,
        read_only=read_only,
    )

    def told(address: str) -> None:
        if session.output.as_json:
            session.output.emit({"url": address})
        else:
            session.output.show(f"Banyan's tools are at {address}")

    await run_mcp(settings, wanted, told=told)
