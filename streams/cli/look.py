"""`banyan tree`, `banyan stats` and `banyan check`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from memory.errors import NodeNotFoundError
from streams.cli.app import Exit
from streams.cli.common import Session, asking_options, run_async, shared_options
from streams.cli.console import counted, date, duration, one_line

if TYPE_CHECKING:
    from rich.text import Text
    from rich.tree import Tree

    from memory.model import TreeInfo
    from memory.results import TreeNode, TreeReport
    from streams.answers import Prices

_GUIDE = 4
"""Columns that a level of the drawing takes."""
_TEXT_MIN = 24
_VIOLATIONS_SHOWN = 50
_WHAT_TO_DO = (
    "  What to do: put a copy of the store from before in its place, or import an export under another name (`banyan import FILE "
    "--tree NAME`), or ingest the records into a tree of another name."
)


@click.command(
    epilog="""
\b
Examples:
  banyan tree
  banyan tree user-42
  banyan tree user-42 --depth 2 --children 50
  banyan tree user-42 --node 8c1f… --depth 5
  banyan tree user-42 --json | jq '.children[].text'
"""
)
@click.argument("tree_name", metavar="[TREE]", required=False)
@click.option("--depth", type=click.IntRange(min=1), default=3, show_default=True, metavar="N", help="Levels to draw.")
@click.option(
    "--children", type=click.IntRange(min=1), default=20, show_default=True, metavar="N", help="Most children of a node to draw."
)
@click.option("--node", metavar="ID", help="Start at this node instead of the root.")
@asking_options
@run_async
async def tree(tree_name: str | None, depth: int, children: int, node: str | None, session: Session) -> None:
    """
    Draw TREE: topics (bold, with the number of leaves below them), and the turns and chunks they were made from.

    Without TREE: the trees there are. With --json: the node as {"id", "kind", "text", "descendants", "pending", "hidden",
    "children": [...]}.
    """
    async with session.asked(mode="look") as memory:
        if tree_name is None:
            _show_trees(session, await memory.trees())
            return
        try:
            top = await memory.tree(tree_name, depth=depth, children=children, node=node)
        except NodeNotFoundError as error:
            raise NodeNotFoundError(f"{error}; `banyan tree {tree_name} --json` shows the ids of its nodes") from error
    if session.output.as_json:
        from streams.answers import node_json  # noqa: PLC0415

        session.output.emit(node_json(top))
        return
    session.output.show(draw(top, tree_name, session.output.out.width))


@click.command(
    epilog="""
\b
Examples:
  banyan stats user-42
  banyan stats user-42 --json | jq .pending
"""
)
@click.argument("tree_name", metavar="TREE")
@asking_options
@run_async
async def stats(tree_name: str, session: Session) -> None:
    """
    Count what TREE holds and what it has cost: nodes, depth, branching, pending summaries, model calls, bytes.

    The cost is shown where BANYAN_OPENAI_PRICE_IN or BANYAN_OPENAI_PRICE_OUT says what a million tokens cost.
    """
    async with session.asked(mode="look") as memory:
        report = await memory.stats(tree_name)
    if session.output.as_json:
        from streams.answers import stats_json  # noqa: PLC0415

        session.output.emit(stats_json(report, prices=_prices(session)))
        return
    _show_stats(session, report)


@click.command(
    epilog="""
\b
Examples:
  banyan check user-42
  banyan check user-42 --json | jq '.violations'
"""
)
@click.argument("tree_name", metavar="TREE")
@shared_options
@run_async
async def check(tree_name: str, session: Session) -> int:
    """
    Verify TREE: every invariant, and that each item lies where inserting one after the other puts it.

    Nothing is changed. The exit code is 1 when a violation is found.
    """
    async with session.memory(mode="look") as memory:
        report = await memory.check(tree_name)
    if session.output.as_json:
        from streams.answers import check_json  # noqa: PLC0415

        session.output.emit(check_json(report))
        return Exit.OK if report.clean else Exit.FOUND
    looked = f"{counted(report.nodes, 'node')} and {counted(report.replayed, 'placement')} looked at, up to commit {report.seq:,}"
    if report.unverifiable:
        looked += (
            f"; {counted(report.unverifiable, 'placement')} cannot be compared any more, because something was forgotten after them"
        )
    if report.clean:
        session.output.show(f"[green]✔[/green] {tree_name} is sound: {looked}")
        return Exit.OK
    session.output.show(f"[red]✘[/red] {tree_name} has {counted(len(report.violations), 'violation')}: {looked}")
    for each in report.violations[:_VIOLATIONS_SHOWN]:
        session.output.show(_line(f"  {each.invariant}  {each.node or tree_name}  {one_line(each.detail)}"), whole_lines=True)
    if len(report.violations) > _VIOLATIONS_SHOWN:
        session.output.show(f"  … and {len(report.violations) - _VIOLATIONS_SHOWN:,} more (--json shows all)")
    session.output.show(_line(_WHAT_TO_DO, "dim"))
    return Exit.FOUND


def _show_trees(session: Session, trees: Sequence[TreeInfo]) -> None:
    if session.output.as_json:
        from streams.answers import tree_json  # noqa: PLC0415

        session.output.emit({"trees": [tree_json(each) for each in trees]})
        return
    for each in trees:
        session.output.show(_line(f"{each.id}  {each.structure}, {each.model.name}, {counted(each.seq, 'commit')}"))


def draw(top: TreeNode, name: str, width: int) -> Tree:
    """
    A tree as a drawing: one line a node.

    Args:
        top: the node to begin with.
        name: what to call the root.
        width: columns there are.
    """
    from rich.tree import Tree  # noqa: PLC0415

    drawing = Tree(_label(top, width, name), guide_style="dim")
    _grow(drawing, top, width - _GUIDE)
    return drawing


def _grow(drawing: Tree, node: TreeNode, width: int) -> None:
    for child in node.children:
        branch = drawing.add(_label(child, width, ""))
        if child.children:
            _grow(branch, child, width - _GUIDE)
    if node.hidden and node.children:
        drawing.add(_line(f"… {node.hidden:,} more", "dim"))


def _label(node: TreeNode, width: int, name: str) -> Text:
    from rich.cells import cell_len  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    if node.kind.value == "root":
        return Text.assemble((name, "bold"), (f"  {counted(node.descendants, 'leaf')}", "dim"))
    label = Text(no_wrap=True, overflow="ellipsis")
    if node.kind.value == "leaf":
        whence = " ".join(each for each in (one_line(node.speaker or ""), date(node.at)) if each)
        label.append(f"{whence}  " if whence else "", style="cyan")
        label.append(one_line(node.text))
        return label
    count = f"{node.descendants:,}"
    pending = f" ({node.pending:,} pending)" if node.pending else ""
    head, _, rest = node.text.strip().partition("\n")
    body = Text(one_line(head) or "(no summary yet)", style="bold")
    if rest.strip():
        body.append(f"  {one_line(rest)}", style="not bold")
    body.truncate(max(_TEXT_MIN, width - cell_len(f"  {count}{pending}")), overflow="ellipsis")
    label.append_text(body)
    label.append(f"  {count}", style="bold cyan")
    label.append(pending, style="yellow")
    return label


def _show_stats(session: Session, report: TreeReport) -> None:
    from rich.table import Table  # noqa: PLC0415

    prices = _prices(session)
    rows = [
        ("structure", f"{report.structure} ({', '.join(f'{name} {value:g}' for name, value in report.parameters.items())})"),
        ("embedder", f"{report.embedder}, {report.dimension} dimensions"),
        ("commits", f"{report.seq:,}"),
        ("events", f"{report.events:,}"),
        ("nodes", f"{report.nodes:,}: {counted(report.leaves, 'leaf')}, {counted(report.summaries, 'summary')}"),
        ("depth", f"{report.depth_max} at most, {report.depth_median:g} in the median"),
        ("branching", f"{report.branching:.2f} children"),
        ("pending", _pending(report)),
        ("model calls", f"{report.llm_calls:,}, {report.llm_calls_per_item:.2f} an item"),
        ("tokens", f"{report.tokens_in:,} in, {report.tokens_out:,} out"),
        *([("cost", f"{prices.of(report.tokens_in, report.tokens_out):,.2f}")] if prices is not None else []),
        ("rewrites", f"{report.rewrites:,}, {report.rewrites_per_item:.2f} an item"),
        ("size", f"{report.bytes:,} bytes"),
    ]
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    for row in rows:
        table.add_row(*row)
    session.output.show(f"[bold]{report.tree}[/bold]")
    session.output.show(table)
    for one in report.failing:
        session.output.show(_line(f"  {one.id} fails, {counted(one.failures, 'time')} in a row: {one_line(one.reason)}", "yellow"))
    if report.depths:
        session.output.show()
        _show_depths(session, report)


def _pending(report: TreeReport) -> str:
    said = f"{counted(report.pending, 'summary')}, {counted(report.contributions, 'contribution')}"
    if report.oldest_pending_at is None:
        return said
    age = datetime.now(UTC) - report.oldest_pending_at
    return f"{said}, the oldest for {duration(max(0.0, age.total_seconds()))}"


def _prices(session: Session) -> Prices | None:
    from streams.answers import Prices  # noqa: PLC0415

    openai = session.settings.openai
    if openai.price_in is None and openai.price_out is None:
        return None
    return Prices(tokens_in=openai.price_in or 0.0, tokens_out=openai.price_out or 0.0)


def _show_depths(session: Session, report: TreeReport) -> None:
    most = max(report.depths.values())
    room = max(10, min(60, session.output.out.width - 24))
    for depth, count in sorted(report.depths.items()):
        bar = "█" * max(1, round(room * count / most))
        session.output.show(f"[dim]depth {depth:>2}[/dim] {count:>9,} [cyan]{bar}[/cyan]")


def _line(text: str, style: str = "") -> Text:
    from rich.text import Text  # noqa: PLC0415

    return Text(text, style=style)
