"""`banyan forget`."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from streams.cli.app import Exit
from streams.cli.common import Session, asking_options, run_async
from streams.cli.console import counted, one_line
from streams.cli.ingest import wait_for_summaries
from streams.cli.interrupts import Interrupts

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from memory.results import ForgetReport
    from streams.forgotten_letters import Purged
    from streams.remote import RemoteMemory

_STOPPING = "what is forgotten by now stays so; Ctrl-C again ends at once"
_NOT_WAITING = "not waiting for the summaries any longer; Ctrl-C again ends at once"
_PENDING_EVERY = 0.5  # seconds
_SHOWN = 5
_SENT_TOGETHER = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class _Selection:
    """What is to be forgotten of a tree."""

    tree: str
    events: tuple[str, ...]
    conversation: str | None
    before: datetime | None

    @property
    def options(self) -> dict[str, Any]:
        """As `LocalMemory.forget` and `streams.forgotten_letters.selecting` take it."""
        return {"events": self.events, "conversation": self.conversation, "before": self.before}

    def __str__(self) -> str:
        if self.conversation is not None:
            return f"conversation {self.conversation!r} of {self.tree}"
        if self.before is not None:
            return f"everything of {self.tree} that was said or published before {self.before.isoformat()}"
        more = f" and {len(self.events) - _SHOWN:,} more" if len(self.events) > _SHOWN else ""
        return f"{', '.join(map(repr, self.events[:_SHOWN]))}{more} of {self.tree}"


@click.command(
    epilog="""
\b
Examples:
  banyan forget user-42 --event t-981
  banyan forget user-42 --conversation c-7 --yes
  banyan forget feed-tech --before 2025-01-01 --json
"""
)
@click.argument("tree_name", metavar="TREE")
@click.option("--event", "events", multiple=True, metavar="ID", help="A turn, a document or feedback; may be given several times.")
@click.option("--conversation", metavar="C", help="The turns of this conversation.")
@click.option("--before", metavar="T", help="What was said or published before this time, ISO 8601.")
@click.option("--yes", is_flag=True, help="Do not ask on a terminal.")
@click.option("--no-wait", is_flag=True, help="Do not make the summaries now; the next ingest makes them.")
@asking_options
@run_async
async def forget(
    tree_name: str, events: Sequence[str], conversation: str | None, before: str | None, yes: bool, no_wait: bool, session: Session
) -> int:
    """
    Forget turns and documents of TREE for good: texts, summaries made from them, vectors.

    When it returns they are in no answer and in no file of the store, and summaries that had covered them have been made anew. An
    event that is not there is not taken either when it comes. Where BANYAN_BROKER is set, dead letters go too, and what `banyan
    repair` reads has it. What Kafka topics, backups and a model's provider still have is in docs/forgetting.md.
    """
    chosen = _selection(tree_name, events, conversation, before)
    if not yes and not session.output.as_json and sys.stdin.isatty() and sys.stderr.isatty():
        click.confirm(f"Forget {one_line(str(chosen))}? It cannot be had back.", err=True, abort=True)
    from memory.local import LocalMemory  # noqa: PLC0415  # brings numpy

    with Interrupts(session.output, _STOPPING) as interrupts:
        # Nothing is embedded but the summaries that are made anew.
        async with session.asked(mode="index" if no_wait else "search", summaries=not no_wait) as memory:
            report = await _forget(session, memory, chosen)
            purged = None if interrupts.stop.is_set() else await _without_letters(session, chosen)
            _tell(session, chosen, report)
            fresh = True
            if report is not None and not no_wait and not interrupts.stop.is_set():
                interrupts.message = _NOT_WAITING
                if isinstance(memory, LocalMemory):
                    # Some were made while others were still forgotten: a number said now would not be theirs.
                    fresh = await wait_for_summaries(session, memory, interrupts.stop, tree=tree_name, counting=False)
                else:
                    fresh = await _until_clean(session, memory, tree_name, interrupts.stop)
                if fresh and report.summaries_remade:
                    session.output.note("its summaries are up to date")
        if session.output.as_json:
            session.output.emit(_json(chosen, report, purged, fresh=fresh and report is not None and not no_wait))
        elif purged is not None:
            from streams.cli.letters import purged_text  # noqa: PLC0415

            session.output.show(purged_text(purged))
        if interrupts.stop.is_set():
            return Exit.INTERRUPTED
        return Exit.OK if fresh else Exit.UNAVAILABLE


def _selection(tree: str, events: Sequence[str], conversation: str | None, before: str | None) -> _Selection:
    kinds = [name for name, given in (("--event", events), ("--conversation", conversation), ("--before", before)) if given]
    if len(kinds) != 1:
        said = f"{' and '.join(kinds)} are given" if kinds else "none is given"
        raise click.UsageError(f"of --event, --conversation and --before exactly one says what is to be forgotten; {said}")
    from memory.records import parse_forget, tree_id  # noqa: PLC0415  # brings numpy

    tree_id(tree)
    # Checked as on the topic, so that what can be forgotten here can be there.
    for event in events:
        parse_forget({"id": "forget", "event": event}, tree=tree)
    when = None
    if not events:
        when = parse_forget({"id": "forget", "conversation": conversation, "before": before}, tree=tree).before
    return _Selection(tree=tree, events=tuple(dict.fromkeys(events)), conversation=conversation, before=when)


async def _forget(session: Session, memory: LocalMemory | RemoteMemory, chosen: _Selection) -> ForgetReport | None:
    """Forget; where a broker is set, say so by the events' ids on the topic too, for a store that has to be repaired."""
    from memory.local import LocalMemory  # noqa: PLC0415

    if not isinstance(memory, LocalMemory) or not session.is_set("broker"):
        return await memory.forget(chosen.tree, **chosen.options)
    events = await _ids(memory, chosen)
    report = await memory.forget(chosen.tree, **({"events": events} if events else chosen.options))
    await _say(session, chosen.tree, events)
    return report


async def _ids(memory: LocalMemory, chosen: _Selection) -> Sequence[str]:
    from memory.records import tree_id  # noqa: PLC0415

    forgetting, tree = memory.parts.forgetting, tree_id(chosen.tree)
    if chosen.conversation is not None:
        return await forgetting.of_conversation(tree, chosen.conversation)
    if chosen.before is not None:
        return await forgetting.before(tree, chosen.before)
    return chosen.events


async def _say(session: Session, tree: str, events: Sequence[str]) -> None:
    from memory.records import Forget  # noqa: PLC0415
    from streams.broker import Broker, need_kafka, open_admin  # noqa: PLC0415
    from streams.producing import Producer  # noqa: PLC0415
    from streams.record_messages import message_of  # noqa: PLC0415
    from streams.topics import TopicsMissingError, require, topics  # noqa: PLC0415

    need_kafka()
    broker, names, at = Broker.of(session.settings), topics(session.settings.kafka), datetime.now(UTC)
    admin = await open_admin(broker)
    try:
        await require(admin, [names.forgets.name], broker.address)
    except TopicsMissingError:
        return
    finally:
        await admin.close()
    producer = await Producer(broker).start()
    try:
        for first in range(0, len(events), _SENT_TOGETHER):
            await producer.send(
                message_of(names, Forget(tree=tree, id=f"forget-{uuid.uuid4()}", event=event, at=at))
                for event in events[first : first + _SENT_TOGETHER]
            )
    finally:
        await producer.stop()


async def _without_letters(session: Session, chosen: _Selection) -> Purged | None:
    """Take the dead letters of what was forgotten off their topic; None where no broker is set."""
    if not session.is_set("broker"):
        return None
    from streams.broker import need_kafka  # noqa: PLC0415
    from streams.cli.letters import opened_letters, purging  # noqa: PLC0415
    from streams.forgotten_letters import selecting  # noqa: PLC0415
    from streams.topics import TopicsMissingError  # noqa: PLC0415

    need_kafka()
    from memory.records import tree_id  # noqa: PLC0415

    try:
        async with opened_letters(session) as letters:
            return await purging(session, letters, selecting(tree_id(chosen.tree), **chosen.options))
    except TopicsMissingError:
        return None


async def _until_clean(session: Session, memory: RemoteMemory, tree: str, stop: asyncio.Event) -> bool:
    """Wait until the service has made all summaries of the tree; False when it cannot make those that are left."""
    most = 0
    with session.output.progress("summarizing", total=None) as progress:
        while not stop.is_set():
            report = await memory.stats(tree)
            if not report.pending:
                return True
            if len(report.failing) >= report.pending:
                session.output.warn(f"{counted(report.pending, 'summary')} cannot be made now: {report.failing[0].reason}")
                return False
            most = max(most, report.pending)
            progress.update(most - report.pending, total=most, detail=f"{counted(report.pending, 'summary')} to go")
            await asyncio.wait([asyncio.ensure_future(stop.wait())], timeout=_PENDING_EVERY)
    return False


def _tell(session: Session, chosen: _Selection, report: ForgetReport | None) -> None:
    output = session.output
    if report is None:
        output.note(f"taken: the workers forget {one_line(str(chosen))}")
        return
    if output.as_json:
        return
    gone = [counted(count, what) for count, what in ((report.leaves, "leaf"), (report.summaries_gone, "summary")) if count]
    said = [f"{counted(report.forgotten, 'event')} forgotten"]
    said += [f"gone: {' and '.join(gone)}"] if gone else []
    said += [f"to be made again of what is left: {counted(report.summaries_remade, 'summary')}"] if report.summaries_remade else []
    output.show("; ".join(said))
    if report.already:
        output.note(f"{counted(report.already, 'event')} had been forgotten before")
    if report.unknown:
        output.note(f"{counted(report.unknown, 'event')} had not come, and will not be taken")
    if not (report.forgotten or report.already or report.unknown):
        output.note(f"there was nothing: {one_line(str(chosen))}")


def _json(chosen: _Selection, report: ForgetReport | None, purged: Purged | None, *, fresh: bool) -> dict[str, Any]:
    letters = None if purged is None else {"removed": purged.removed, "moved": purged.moved, "dropped": purged.dropped}
    said: dict[str, Any] = {"status": "sent"} if report is None else {"status": "forgotten", **asdict(report)}
    return {"tree": chosen.tree, **said, "fresh": fresh, "dead_letters": letters}
