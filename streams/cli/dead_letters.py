"""`banyan dead-letters`."""

from __future__ import annotations

from base64 import b64decode
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from streams.cli.app import Exit
from streams.cli.common import Session, run_async, shared_options
from streams.cli.console import counted, one_line, printable
from streams.cli.interrupts import Interrupts
from streams.cli.letters import opened_letters, purged_text, purging, tombstones

if TYPE_CHECKING:
    from streams.dead_letter_topic import DeadLetterTopic, Letter

_STOPPING = "stopping after what is being sent; the same command goes on from there"
_REASON_SHOWN = 90

_only = click.option(
    "--only", metavar="ERROR", help="Only those with this error, as `list` shows it, e.g. text or TreeMismatchError."
)
_topic = click.option(
    "--topic", metavar="TOPIC", help="Only those from this topic: turns, documents, summaries, or its whole name."
)


@click.group(
    name="dead-letters",
    epilog="""
\b
Examples:
  banyan dead-letters list
  banyan dead-letters show 3:17
  banyan dead-letters replay --only TreeMismatchError --dry-run
  banyan dead-letters replay --only TreeMismatchError
""",
)
def dead_letters() -> None:
    """
    Look at records that could not be taken, and send them again.

    A worker puts what no repetition helps with on a topic of its own, as it came, with the reason. Once the reason is gone (a
    setting, a model, an older version), replay sends the records to where they came from.
    """


@dead_letters.command(name="list")
@_only
@_topic
@click.option("--all", "everything", is_flag=True, help="Those too that were replayed.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="Show at most so many; all are counted.")
@shared_options
@run_async
async def list_(only: str | None, topic: str | None, everything: bool, limit: int, session: Session) -> int:
    """Show the dead letters that wait, and how many there are of each error."""
    async with _opened(session, _chosen(only, topic, replayed=everything)) as letters:
        shown: list[Letter] = []
        errors: Counter[str] = Counter()
        async for some in letters.letters():
            errors.update(letter.envelope.error for letter in some)
            room = limit - len(shown)
            for letter in some[:room] if room > 0 else []:
                shown.append(letter)
                if session.output.as_json:
                    session.output.emit(_row(letter))
        if not session.output.as_json:
            _show_list(session, shown, errors)
        _warn_unreadable(session, letters)
    return Exit.OK


@dead_letters.command()
@click.argument("place", metavar="PARTITION:OFFSET")
@shared_options
@run_async
async def show(place: str, session: Session) -> int:
    """Show one dead letter with its content. Exit code 1 when there is none at that place."""
    from streams.dead_letter_topic import parse_place  # noqa: PLC0415

    wanted = parse_place(place)
    async with _opened(session, lambda letter: (letter.partition, letter.offset) == wanted) as letters:
        async for some in letters.letters():
            (letter,) = some
            if session.output.as_json:
                session.output.emit({**_row(letter), **_content(letter)})
            else:
                _show_one(session, letter)
            return Exit.OK
    session.output.note(f"there is no dead letter at {place}; `banyan dead-letters list` shows which there are")
    return Exit.FOUND


@dead_letters.command()
@click.argument("places", nargs=-1, metavar="[PARTITION:OFFSET]...")
@_only
@_topic
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@shared_options
@run_async
async def replay(places: Sequence[str], only: str | None, topic: str | None, dry_run: bool, session: Session) -> int:
    """
    Send dead letters to the topics they came from, byte for byte, with their keys and headers.

    Without a place or an option: all that were not replayed yet. Repeating the command sends nothing twice; one that was
    interrupted goes on. A record that fails again becomes a dead letter again, one that its tree has forgotten is not sent. Exit
    code 1 when a named place has no letter.
    """
    from streams.dead_letter_topic import parse_place  # noqa: PLC0415

    named = {parse_place(place) for place in places}
    wanted = _chosen(only, topic, replayed=bool(named))

    def choose(letter: Letter) -> bool:
        return wanted(letter) and (not named or (letter.partition, letter.offset) in named)

    with Interrupts(session.output, _STOPPING) as interrupts:
        async with (
            _opened(session, choose) as letters,
            tombstones(session) as forgotten,
            _sending(session, dry_run=dry_run) as send,
        ):
            counts: Counter[str] = Counter()
            errors: Counter[str] = Counter()
            found: set[tuple[int, int]] = set()
            with session.output.progress("replaying", total=None) as progress:
                async for some in letters.letters():
                    fresh = [letter for letter in some if not letter.replayed and letters.goes(letter)]
                    found.update((letter.partition, letter.offset) for letter in some)
                    counts["already"] += sum(letter.replayed for letter in some)
                    counts["foreign"] += sum(not letters.goes(letter) for letter in some)
                    gone = await forgotten(fresh)
                    fresh = [letter for letter in fresh if (letter.partition, letter.offset) not in gone]
                    counts["forgotten"] += len(gone)
                    await send(letters, fresh)
                    counts["replayed"] += len(fresh)
                    errors.update(letter.envelope.error for letter in fresh)
                    progress.update(counts["replayed"], detail=counted(counts["replayed"], "letter"))
                    if interrupts.stop.is_set():
                        break
            interrupted = interrupts.stop.is_set()
            _report(session, counts, errors, dry_run=dry_run, interrupted=interrupted)
            _warn_unreadable(session, letters)
            missing = named - found
    if interrupted:
        return Exit.INTERRUPTED
    for partition, offset in sorted(missing):
        session.output.note(f"there is no dead letter at {partition}:{offset}")
    return Exit.FOUND if missing else Exit.OK


@dead_letters.command()
@shared_options
@run_async
async def purge(session: Session) -> int:
    """
    Take the letters of what trees have forgotten off the topic.

    `banyan forget` does it for what it forgets; this is for what was forgotten over HTTP or by the topic. Kafka deletes only all
    before a place: letters that wait before the last of these are sent to the topic again first; those that were replayed go too.
    """
    async with _opened(session, lambda _: True) as letters, tombstones(session) as forgotten:
        purged = await purging(session, letters, forgotten)
    if session.output.as_json:
        session.output.emit({"removed": purged.removed, "moved": purged.moved, "dropped": purged.dropped})
    else:
        session.output.show(purged_text(purged))
    return Exit.OK


@asynccontextmanager
async def _opened(session: Session, choose: Callable[[Letter], bool]) -> AsyncIterator[DeadLetterTopic]:
    session.load()
    async with opened_letters(session, choose) as letters:
        yield letters


@asynccontextmanager
async def _sending(session: Session, *, dry_run: bool) -> AsyncIterator[Callable[[DeadLetterTopic, Sequence[Letter]], Any]]:
    from streams.broker import Broker  # noqa: PLC0415
    from streams.producing import Producer  # noqa: PLC0415

    async def nothing(_letters: DeadLetterTopic, _some: Sequence[Letter]) -> None:
        pass

    if dry_run:
        yield nothing
        return
    producer = await Producer(Broker.of(session.settings)).start()

    async def send(letters: DeadLetterTopic, some: Sequence[Letter]) -> None:
        await letters.replay(some, producer, at=datetime.now(UTC).isoformat())

    try:
        yield send
    finally:
        await producer.stop()


def _chosen(only: str | None, topic: str | None, *, replayed: bool) -> Callable[[Letter], bool]:
    def choose(letter: Letter) -> bool:
        came_from = letter.envelope.topic
        return (
            (replayed or not letter.replayed)
            and only in (None, letter.envelope.error)
            and (topic is None or came_from == topic or came_from.endswith(f".{topic}"))
        )

    return choose


def _row(letter: Letter) -> dict[str, Any]:
    kept = letter.envelope
    return {
        "place": letter.place,
        "at": kept.at,
        "topic": kept.topic,
        "partition": kept.partition,
        "offset": kept.offset,
        "error": kept.error,
        "reason": kept.reason,
        "attempts": kept.attempts,
        "also": len(kept.also),
        "bytes": len(kept.delivery.value or b""),
        "replayed": letter.replayed,
        "came_back": letter.came_back,
    }


def _content(letter: Letter) -> dict[str, Any]:
    kept = letter.envelope
    return {
        "timestamp": kept.timestamp,
        "key": kept.key,
        "key_text": _text(kept.key),
        "raw": kept.raw,
        "text": _text(kept.raw),
        "headers": [{"name": name, "value": value, "text": _text(value)} for name, value in kept.headers],
        "also": kept.also,
    }


def _text(encoded: str | None) -> str | None:
    """What the bytes say in UTF-8, or nothing."""
    try:
        return None if encoded is None else b64decode(encoded).decode()
    except UnicodeDecodeError:
        return None


def _show_list(session: Session, shown: Sequence[Letter], errors: Counter[str]) -> None:
    output = session.output
    if not errors:
        output.show("there are no dead letters")
        return
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from streams.dead_letter_topic import source  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("place", "given up", "from", "error", "reason", ""):
        table.add_column(column, overflow="fold")
    for letter in shown:
        kept = letter.envelope
        state = "replayed" if letter.replayed else "came back" if letter.came_back else ""
        cells = (letter.place, kept.at[:19], source(kept), kept.error, _cut(kept.reason), state)
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    output.show(table)
    total = errors.total()
    said = ", ".join(f"{count:,} {one_line(error)}" for error, count in errors.most_common(10))
    more = f" ({len(shown):,} shown, --limit shows more)" if len(shown) < total else ""
    output.note(f"{counted(total, 'dead letter')}{more}: {said}")


def _show_one(session: Session, letter: Letter) -> None:
    from streams.dead_letter_topic import source  # noqa: PLC0415

    kept = letter.envelope
    lines = [
        ("place", letter.place),
        ("from", source(kept)),
        ("error", kept.error),
        ("reason", kept.reason),
        ("attempts", str(kept.attempts)),
        ("given up", kept.at),
        ("key", _shown(kept.key)),
        *((f"header {name}", _shown(value)) for name, value in kept.headers),
    ]
    if kept.also:
        lines.append(("also", f"{counted(len(kept.also), 'further message')} that asked for the same"))
    if letter.replayed:
        lines.append(("replayed", "yes"))
    text = "".join(f"{name}: {one_line(value)}\n" for name, value in lines)
    session.output.write(f"{text}\n{printable(_shown(kept.raw))}\n".encode("utf-8", "replace"))


def _shown(encoded: str | None) -> str:
    text = _text(encoded)
    return text if text is not None else "none" if encoded is None else f"base64 {encoded}"


def _cut(text: str) -> str:
    return text if len(text) <= _REASON_SHOWN else text[: _REASON_SHOWN - 1] + "…"


def _report(session: Session, counts: Counter[str], errors: Counter[str], *, dry_run: bool, interrupted: bool) -> None:
    output = session.output
    if output.as_json:
        output.emit(
            {
                "replayed": 0 if dry_run else counts["replayed"],
                "would_replay": counts["replayed"] if dry_run else 0,
                "already": counts["already"],
                "foreign": counts["foreign"],
                "forgotten": counts["forgotten"],
                "errors": errors,
                "interrupted": interrupted,
            }
        )
        return
    said = ", ".join(f"{count:,} {one_line(error)}" for error, count in errors.most_common(10))
    done = "would be sent again" if dry_run else "sent again"
    output.show(f"{counted(counts['replayed'], 'dead letter')} {done}{': ' if said else ''}{said}")
    if counts["already"]:
        output.note(f"{counts['already']:,} were replayed before, and are left alone")
    if counts["forgotten"]:
        output.note(f"{counts['forgotten']:,} are of what was forgotten, and not sent; `banyan dead-letters purge` takes them off")
    if counts["foreign"]:
        output.warn(f"{counts['foreign']:,} came from topics that no worker of this installation reads, and are left alone")


def _warn_unreadable(session: Session, letters: DeadLetterTopic) -> None:
    if letters.unreadable:
        session.output.warn(f"{counted(letters.unreadable, 'message')} on the topic cannot be read as dead letters")
