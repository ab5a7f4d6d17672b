"""`banyan keys`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from streams.cli.app import Exit
from streams.cli.common import Session, shared_options
from streams.cli.console import one_line
from streams.setting_values import parse_value

if TYPE_CHECKING:
    from streams.query.keys import Key, KeyFile


@click.group(
    epilog="""
\b
Examples:
  banyan keys create chat-app --prefix user-
  banyan keys create dashboard --right read --expires 720h
  banyan keys list
  banyan keys revoke 3f9c12ab77d0
"""
)
def keys() -> None:
    """
    Make, list and revoke the keys of the HTTP service.

    They are kept, hashed, in the file that BANYAN_SERVE_KEYS_FILE names; a running service reads it again when it has changed.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--right",
    "rights",
    type=click.Choice(["read", "write", "admin"]),
    multiple=True,
    help="What it allows; may be repeated. Without it read and write.",
)
@click.option(
    "--prefix", "prefixes", multiple=True, metavar="P", help="Reaches only trees whose names begin so; may be repeated. Else all."
)
@click.option("--expires", metavar="DURATION", help="For how long it lets anybody in, e.g. 720h; without it until it is revoked.")
@click.option("--rate", type=click.FloatRange(0.01, 1_000_000), metavar="N", help="Requests a second, not BANYAN_SERVE_RATE.")
@shared_options
def create(
    name: str, rights: Sequence[str], prefixes: Sequence[str], expires: str | None, rate: float | None, session: Session
) -> None:
    """Make a key called NAME and show it; it is not shown again."""
    from streams.query.keys import Right  # noqa: PLC0415

    now = datetime.now(UTC)
    life = None if expires is None else parse_value(expires, timedelta, label="--expires", bounds=(1, 10 * 365 * 86_400))
    key, token = _file(session).create(
        name,
        rights=[Right(each) for each in rights] or [Right.READ, Right.WRITE],
        prefixes=list(prefixes) or [""],
        now=now,
        expires_at=None if life is None else now + life,
        rate=rate,
    )
    if session.output.as_json:
        session.output.emit({"key": token, **_shown(key)})
        return
    session.output.write(token.encode() + b"\n")
    session.output.note("this is shown once: keep it where only its user reads it")


@keys.command(name="list")
@shared_options
def list_(session: Session) -> None:
    """Show all keys, but not their secrets."""
    now = datetime.now(UTC)
    found = _file(session).read()
    if session.output.as_json:
        for key in found:
            session.output.emit({**_shown(key), "valid": key.valid(now)})
        return
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False)
    for column in ("id", "name", "rights", "trees", "created", "state"):
        table.add_column(column)
    for key in found:
        state = "revoked" if key.revoked_at is not None else "valid" if key.valid(now) else "expired"
        trees = ", ".join(f"{prefix}*" for prefix in key.prefixes)
        row = (key.id, one_line(key.name), ", ".join(key.rights), trees, key.created_at.date().isoformat(), state)
        table.add_row(*(Text(cell) for cell in row))
    session.output.show(table if found else "there are no keys yet; `banyan keys create NAME` makes one")


@keys.command()
@click.argument("identity", metavar="ID")
@shared_options
def revoke(identity: str, session: Session) -> int:
    """Let nobody in with the key of this ID any more (`banyan keys list` shows it)."""
    key = _file(session).revoke(identity, now=datetime.now(UTC))
    if key is None:
        session.output.note(f"there is no key {identity!r}; `banyan keys list` shows those that there are")
        return Exit.FOUND
    if session.output.as_json:
        session.output.emit(_shown(key))
    else:
        session.output.show(f"{key.id} ({one_line(key.name)}) lets nobody in any more")
    return Exit.OK


def _file(session: Session) -> KeyFile:
    from streams.query.keys import KeyFile  # noqa: PLC0415

    return KeyFile(session.load().settings.serve.keys_file)


def _shown(key: Key) -> dict[str, Any]:
    return {
        "id": key.id,
        "name": key.name,
        "rights": list(key.rights),
        "prefixes": list(key.prefixes),
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "rate": key.rate,
    }
