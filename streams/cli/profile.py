"""`banyan profile`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from streams.cli.app import Exit, say_error
from streams.cli.common import Session, asking_options, run_async
from streams.cli.console import counted, date, one_line, printable

if TYPE_CHECKING:
    from memory.results import Profile


@click.command(
    epilog="""
\b
Examples:
  banyan profile user-42
  banyan profile user-42 Ana --facts 5
"""
)
@click.argument("tree_name", metavar="TREE")
@click.argument("speaker", required=False)
@click.option("--facts", type=click.IntRange(0, 100), default=20, show_default=True, metavar="N", help="Most statements.")
@asking_options
@run_async
async def profile(tree_name: str, speaker: str | None, facts: int, session: Session) -> int:
    """
    Show who speaks in TREE, or who SPEAKER is by what they said.

    What they speak about, what they say of themselves word for word, and when they spoke. Found without a model.
    """
    from streams.answers import profile_json, speaker_json  # noqa: PLC0415  # nothing of the domain is needed for --help

    async with session.asked(mode="look") as memory:
        if speaker is None:
            speakers = await memory.speakers(tree_name)
            if session.output.as_json:
                session.output.emit({"speakers": [speaker_json(each) for each in speakers]})
            for each in () if session.output.as_json else speakers:
                last = f", last {date(each.last_at)}" if each.last_at else ""
                _say(session, f"{printable(each.name)}  {counted(each.turns, 'turn')}{last}")
            return Exit.OK
        found = await memory.profile(tree_name, speaker, facts=facts)
    if found is None:
        say_error(f"nobody of the name {speaker!r} speaks in {tree_name}; `banyan profile {tree_name}` shows who does")
        return Exit.FOUND
    if session.output.as_json:
        session.output.emit(profile_json(found))
    else:
        _show(session, found)
    return Exit.OK


def _show(session: Session, found: Profile) -> None:
    spoke = f"{counted(found.turns, 'turn')} in {counted(found.conversations, 'conversation')}"
    when = f", {date(found.first_at)} to {date(found.last_at)}" if found.first_at else ""
    _say(session, f"{printable(found.speaker)}  {spoke}{when}")
    if found.phrases:
        _say(session, f"speaks about {printable(', '.join(found.phrases))}")
    for fact in found.facts:
        day = f"{date(fact.at)}  " if fact.at else ""
        _say(session, f"  {day}{one_line(fact.text)}  [{fact.event_id}]")


def _say(session: Session, text: str) -> None:
    from rich.text import Text  # noqa: PLC0415

    session.output.show(Text(text))
