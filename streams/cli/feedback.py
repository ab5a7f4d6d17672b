"""`banyan feedback`."""

from __future__ import annotations

import uuid

import click

from streams.cli.app import Exit
from streams.cli.common import Session, asking_options, run_async


@click.command(
    epilog="""
\b
Examples:
  banyan feedback user-42 approval --event t-981
  banyan feedback user-42 rebuttal --event t-17 --id ticket-5512 --at 2026-05-08T14:02:00Z
"""
)
@click.argument("tree_name", metavar="TREE")
@click.argument("verdict", type=click.Choice(["approval", "rebuttal"]), metavar="approval|rebuttal")
@click.option("--event", required=True, metavar="ID", help="The turn or document that it is about, as it was put in.")
@click.option("--chunk", type=click.IntRange(min=0), metavar="N", help="Which chunk of a document, from 0; without it all.")
@click.option("--id", "identity", metavar="ID", help="Of this feedback: with the same id it counts once. Without it a new one.")
@click.option("--at", metavar="T", help="When it was given, ISO 8601; without it now.")
@asking_options
@run_async
async def feedback(
    tree_name: str, verdict: str, event: str, chunk: int | None, identity: str | None, at: str | None, session: Session
) -> int:
    """
    Say that what TREE remembers of a turn or document is right, or wrong.

    An approval raises its weight, a rebuttal lowers it; `banyan search --strategy descent --explain` shows what that does to a
    score. Taken by trees whose structure keeps weights (hmem).
    """
    from memory.results import EventStatus  # noqa: PLC0415  # nothing of the domain is needed for --help

    given = {"id": identity or f"feedback-{uuid.uuid4()}", "event": event, "verdict": verdict, "chunk": chunk, "at": at}
    async with session.asked(mode="search") as memory:
        [result] = await memory.feedback([given], tree=tree_name)
    if session.output.as_json:
        answer = {"id": result.id, "status": result.status.value, "seq": result.seq or None, "reason": result.reason or None}
        session.output.emit(answer)
    else:
        where = f" (commit {result.seq:,})" if result.seq else ""
        session.output.note(f"{result.id}: {result.status.value}{where}{': ' if result.reason else ''}{result.reason}")
    match result.status:
        case EventStatus.REJECTED:
            return Exit.FOUND
        case EventStatus.CONFLICT:
            return Exit.REFUSED
        case _:
            return Exit.OK
