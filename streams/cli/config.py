"""`banyan config`."""

from __future__ import annotations

import click

from streams.cli.common import Session, shared_options
from streams.setting_values import show_value
from streams.settings import known


@click.command(
    epilog="""
\b
Examples:
  banyan config
  BANYAN_STORE=sqlite:///memory banyan config --json
"""
)
@shared_options
def config(session: Session) -> None:
    """
    Show the settings in force, and where each came from.

    Each setting is a variable, or a line in banyan.toml: BANYAN_INGEST_BATCH_ITEMS is ingest_batch_items there, or batch_items
    below [ingest]. Keys and passwords are not shown.
    """
    loaded = session.load()
    if session.output.as_json:
        session.output.emit(
            {
                name: {"value": show_value(loaded.value(setting)), "origin": loaded.origins[name], "variable": setting.variable}
                for name, setting in known().items()
            }
        )
        return
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("setting", "value", "from"):
        table.add_column(column, overflow="fold")
    for name, setting in known().items():
        value, origin = show_value(loaded.value(setting)), loaded.origins[name]
        style = "dim" if origin == "default" else ""
        shown = "" if value is None else f"{value:_}" if isinstance(value, int) and value > 9_999 else str(value)
        table.add_row(Text(setting.variable), Text(shown, style=style), Text(origin, style=style))
    session.output.show(table)
