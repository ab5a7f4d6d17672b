"""`banyan search` and `banyan context`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memory.retrieval.catalogue import STRUCTURES
from streams.cli.common import Session, asking_options, run_async
from streams.cli.console import counted, date, one_line, printable

if TYPE_CHECKING:
    from rich.text import Text

    from memory.ports.index import Scope
    from memory.results import Hit, SearchAnswer

Function = TypeVar("Function", bound=Callable[..., Any])

_FIELDS = ("speaker", "conversation", "source")
_SUMMARY_LINES = 3
_MARGIN = 11
"""Columns of rank and score."""


def _strategy_help() -> str:
    """The strategies there are, those of single structures with their names."""
    every = [name for name, structures in STRUCTURES.items() if structures is None]
    single = [f"{name} on {', '.join(sorted(structures))}" for name, structures in STRUCTURES.items() if structures is not None]
    return f"{', '.join(every)}; {', '.join(single)}."


def _scope_options(function: Function) -> Function:
    for option in reversed(
        [
            click.option(
                "--strategy",
                metavar="S",
                default="hybrid",
                show_default=True,
                help=_strategy_help(),
            ),
            click.option(
                "--filter",
                "filters",
                multiple=True,
                metavar="K=V",
                help="Only where it holds; may be repeated. K is speaker, conversation, source, kind (leaf or summary), "
                "or the name of a metadata field.",
            ),
            click.option(
                "--since", metavar="T", help="Only what was said or published at T or later (2026-05-08, 2026-05-08T13:56Z)."
            ),
            click.option("--until", metavar="T", help="Only what was said or published before T."),
        ]
    ):
        function = option(function)
    return function


@click.command(
    epilog="""
\b
Examples:
  banyan search user-42 "where did Ana move?"
  banyan search user-42 "marathon" -k 3 --filter speaker=Ben --since 2026-01-01
  banyan search feed-tech "battery plant" --filter kind=summary
  banyan search user-42 "knee" --group conversation --json | jq '.hits[].event_id'
"""
)
@click.argument("tree")
@click.argument("query")
@click.option("-k", "k", type=click.IntRange(min=1), default=10, show_default=True, metavar="N", help="Most hits.")
@_scope_options
@click.option("--group", type=click.Choice(["conversation", "document"]), help="The best hit of each only.")
@click.option("--explain", is_flag=True, help="Show what each score is made of, and how the strategy went about it.")
@asking_options
@run_async
async def search(  # noqa: PLR0917  # click passes options by name
    tree: str,
    query: str,
    k: int,
    strategy: str,
    filters: Sequence[str],
    since: str | None,
    until: str | None,
    group: str | None,
    explain: bool,
    session: Session,
) -> None:
    """
    Find the turns, chunks and summaries of TREE that answer QUERY.

    Every hit says where it comes from; the path above it (dimmed) is the topics it lies below. A summary that does not cover
    all that lies below it yet says how many are pending. With --json: {"hits": [...], "seq": N}, times in UTC.
    """
    scope = parse_scope(filters, since, until)
    async with session.asked(mode="search") as memory:
        answer = await memory.search(
            tree,
            query,
            k=k,
            strategy=strategy,
            scope=scope,
            group=group or "none",  # type: ignore[arg-type]  # click has checked it
            explain=explain,
        )
    if session.output.as_json:
        from streams.answers import answer_json  # noqa: PLC0415

        session.output.emit(answer_json(answer, explain=explain))
        return
    show_answer(session, answer, explain=explain)


@click.command(
    epilog="""
\b
Examples:
  banyan context user-42 "how is Ben's knee?" --tokens 500
  banyan context feed-tech "harbour tunnel" --tokens 2000 --since 2026-01-01 > context.txt
"""
)
@click.argument("tree")
@click.argument("query")
@click.option(
    "--tokens", type=click.IntRange(min=1), required=True, metavar="N", help="Longest text, in tokens (about four characters)."
)
@_scope_options
@click.option(
    "--context-filter/--no-context-filter",
    default=None,
    help="Have the model that BANYAN_CONTEXT_FILTER names leave out what does not matter to QUERY, or not; without either, where "
    "one is named.",
)
@asking_options
@run_async
async def context(  # noqa: PLR0917  # click passes options by name
    tree: str,
    query: str,
    tokens: int,
    strategy: str,
    filters: Sequence[str],
    since: str | None,
    until: str | None,
    context_filter: bool | None,
    session: Session,
) -> None:
    """
    Pack what TREE holds on QUERY into a text for a prompt, at most N tokens, in the order of time.

    With --json: {"text": "...", "tokens": N, "hits": [...], "filtered": false, "note": ""}.
    """
    scope = parse_scope(filters, since, until)
    async with session.asked(mode="search") as memory:
        packed = await memory.context(tree, query, tokens=tokens, strategy=strategy, scope=scope, context_filter=context_filter)
    if packed.note:
        session.output.warn(f"nothing was left out of the context: {packed.note}")
    if not packed.text:
        session.output.warn(f"the context is empty: nothing was found, or nothing of it fits into {counted(tokens, 'token')}")
    if session.output.as_json:
        from streams.answers import context_json  # noqa: PLC0415

        session.output.emit(context_json(packed))
        return
    # The text is for a prompt: exactly as packed, but for a terminal, which what was ingested must not command.
    text = printable(packed.text) if session.output.out.is_terminal else packed.text
    session.output.write(text.encode("utf-8", "replace") + b"\n")


def parse_scope(filters: Sequence[str], since: str | None, until: str | None) -> Scope:
    """
    What `--filter`, `--since` and `--until` ask for.

    Raises:
        UsageError: a filter without `=`, one given twice, or an unknown kind.
        RecordError: no time in ISO 8601.
    """
    from memory.model import NodeKind  # noqa: PLC0415  # brings numpy
    from memory.ports.index import Scope  # noqa: PLC0415
    from memory.records import parse_time  # noqa: PLC0415

    given: dict[str, str] = {}
    for each in filters:
        name, separator, value = each.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"--filter {each!r} is not K=V, e.g. speaker=Ana")
        if name.strip() in given:
            raise click.UsageError(f"--filter {name.strip()} is given twice; all filters must hold at once")
        given[name.strip()] = value
    kind = given.pop("kind", None)
    if kind not in (None, NodeKind.LEAF.value, NodeKind.SUMMARY.value):
        raise click.UsageError(f"--filter kind={kind} is neither leaf nor summary")
    named = {name: given.pop(name, None) for name in _FIELDS}
    return Scope(
        kinds=frozenset({NodeKind(kind)}) if kind else None,
        since=parse_time("--since", since) if since else None,
        until=parse_time("--until", until) if until else None,
        metadata=given,
        **named,
    )


def show_answer(
    session: Session,
    answer: SearchAnswer,
    *,
    explain: bool = False,
    expected: frozenset[str] = frozenset(),
    lines: int | None = None,
) -> None:
    """
    Show hits to a person.

    Args:
        session: whose output.
        answer: the hits.
        explain: also the parts of each score, and the strategy's trace.
        expected: event ids to mark.
        lines: most lines of a text; None shows turns and chunks whole.
    """
    if not answer.hits:
        session.output.show("[dim]nothing found[/dim]")
    for rank, hit in enumerate(answer.hits, 1):
        _show_hit(session, rank, hit, explain=explain, expected=expected, lines=lines)
    if explain:
        session.output.show(f"[bold]{answer.strategy}[/bold], as of commit {answer.seq}")
        for line in answer.trace:
            session.output.show(_text(f"  {one_line(line)}", "dim"))


def _show_hit(session: Session, rank: int, hit: Hit, *, explain: bool, expected: frozenset[str], lines: int | None) -> None:
    """One hit: rank, score and where it is from in a line, its text, and the topics above it."""
    from rich.console import Group  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    mark = _mark(hit, expected)
    head = Text(_whence(hit), style="bold")
    head.append(f"  ✔ {mark}" if mark else "", style="not bold green")
    head.append(f"  {counted(hit.pending, 'leaf')} pending" if hit.pending else "", style="not bold yellow")
    body = [head]
    title, _, rest = hit.text.strip().partition("\n") if hit.kind.value == "summary" else ("", "", hit.text)
    if title and rest:
        body.append(Text(one_line(title), style="italic"))
    width = max(40, session.output.out.width - _MARGIN)
    text = one_line(rest or title)
    lines = lines or (_SUMMARY_LINES if hit.kind.value == "summary" else None)
    if lines is not None and len(text) > width * lines:
        text = text[: width * lines - 12].rsplit(" ", 1)[0] + " …"
    body.append(Text(text))
    if hit.path:
        body.append(
            Text(_breadcrumb([_title(crumb.text) for crumb in hit.path], width), style="dim", no_wrap=True, overflow="ellipsis")
        )
    if explain and hit.parts:
        body.append(Text("  ".join(f"{name} {value:.3f}" for name, value in hit.parts.items()), style="magenta"))
    row = Table.grid(padding=(0, 1, 0, 0))
    row.add_column(justify="right", width=3)
    row.add_column(width=6)
    row.add_column()
    row.add_row(Text(str(rank), style="bold"), Text(f"{hit.score:.3f}", style="cyan"), Group(*body))
    session.output.show(row)


def _mark(hit: Hit, expected: frozenset[str]) -> str:
    if not expected:
        return ""
    if hit.event_id is not None:
        return "looked for" if hit.event_id in expected else ""
    covered = len(expected.intersection(hit.sources))
    return f"made from {covered} of the {len(expected)} looked for" if covered > 1 else ""


def _whence(hit: Hit) -> str:
    origin = hit.source
    if origin is None:
        return f"summary of {counted(hit.descendants, 'leaf')}"
    parts = [origin.speaker, origin.title, origin.source, date(origin.at), str(hit.event_id)]
    if hit.chunk:
        parts.append(f"part {hit.chunk + 1}")
    return " · ".join(one_line(part) for part in parts if part)


def _title(text: str) -> str:
    return one_line(text.strip().partition("\n")[0])


def _breadcrumb(titles: Sequence[str], width: int) -> str:
    # The uppermost says what it is about, the lowest what exactly; those between add little where room is scarce.
    shown = [titles[0], titles[-1]] if len(titles) > 2 else list(titles)
    each = max(20, width // len(shown) - 4)
    return (" › … › " if len(titles) > 2 else " › ").join(_shorten(title, each) for title in shown)


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1].rstrip() + "…"


def _text(text: str, style: str) -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text(text, style=style)
