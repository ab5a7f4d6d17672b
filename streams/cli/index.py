"""`banyan index`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import click

from streams.cli.app import Exit
from streams.cli.common import Session, run_async, shared_options
from streams.cli.console import counted

if TYPE_CHECKING:
    from memory.model import TreeId
    from memory.service.reindexing import Comparison, Reindexing

_PASSING = "a replica in memory is made anew by every process; BANYAN_INDEX_FILE keeps one, and is what this command looks at"


@click.group(
    epilog="""
\b
Examples:
  banyan index verify user-42
  banyan index verify --repair
  banyan index rebuild user-42 feed-tech
"""
)
def index() -> None:
    """
    Compare the search index with the store, and make it anew.

    The index is derived from the trees: beside a store in a file, in RediSearch, or in a replica's file, as the settings say. It
    answers all the while.
    """


@index.command()
@click.argument("trees", metavar="[TREE]…", nargs=-1)
@click.option("--repair", is_flag=True, help="Make the index of a tree that differs anew.")
@shared_options
@run_async
async def verify(trees: Sequence[str], repair: bool, session: Session) -> int:
    """
    Compare the index of each TREE, or of all, with the store, node by node.

    Compared are who said what when, vectors, and a sample of the words. What the index has not taken over yet is taken over first.
    Exit code 1 when a tree differs and was not repaired.
    """
    found: list[tuple[Comparison, bool]] = []
    async with _opened(session, trees) as (reindexing, names):
        for tree in names:
            compared = await _watched(session, f"comparing {tree}", reindexing.verify, tree)
            if not compared.level and repair:
                await _watched(session, f"making {tree} anew", reindexing.rebuild, tree)
                again = await _watched(session, f"comparing {tree}", reindexing.verify, tree)
                found.append((compared, again.level))
            else:
                found.append((compared, False))
    if session.output.as_json:
        session.output.emit({"trees": [_as_json(each, repaired=repaired) for each, repaired in found]})
    for each, repaired in found:
        _show(session, each, repaired=repaired)
    return Exit.OK if all(each.level or repaired for each, repaired in found) else Exit.FOUND


@index.command()
@click.argument("trees", metavar="[TREE]…", nargs=-1)
@shared_options
@run_async
async def rebuild(trees: Sequence[str], session: Session) -> None:
    """
    Make the index of each TREE, or of all, anew from the store.

    The old index answers until the new one takes its place. Interrupted, the same command goes on where it was.
    """
    done: dict[str, int] = {}
    async with _opened(session, trees) as (reindexing, names):
        for tree in names:
            done[tree] = await _watched(session, f"making {tree} anew", reindexing.rebuild, tree)
    if session.output.as_json:
        session.output.emit({"trees": [{"tree": tree, "seq": seq} for tree, seq in done.items()]})
    for name, seq in done.items():
        session.output.show(f"[green]✔[/green] {name} is indexed anew, up to commit {seq:,}")


@asynccontextmanager
async def _opened(session: Session, trees: Sequence[str]) -> AsyncIterator[tuple[Reindexing, list[TreeId]]]:
    async with session.memory(mode="index") as memory:
        from memory.records import tree_id  # noqa: PLC0415
        from memory.service.reindexing import Reindexing  # noqa: PLC0415

        if memory.parts.index.passing:
            session.output.warn(_PASSING)
        names = [tree_id(each) for each in trees] or [info.id for info in await memory.trees()]
        yield Reindexing(store=memory.parts.store, index=memory.parts.index), names


async def _watched(session: Session, label: str, work: Callable[..., Awaitable[Any]], tree: TreeId) -> Any:
    with session.output.progress(label, total=None) as progress:
        return await work(tree, progress=lambda done, total: progress.update(done, total=total))


def _as_json(found: Comparison, *, repaired: bool) -> dict[str, object]:
    return {
        "tree": found.tree,
        "seq": found.seq,
        "nodes": found.nodes,
        "missing": found.missing,
        "differing": found.differing,
        "superfluous": found.superfluous,
        "level": found.level,
        "repaired": repaired,
        "examples": list(found.examples),
    }


def _show(session: Session, found: Comparison, *, repaired: bool) -> None:
    looked = f"{counted(found.nodes, 'node')}, up to commit {found.seq:,}"
    if found.level:
        session.output.show(f"[green]✔[/green] {found.tree} is indexed as it is: {looked}")
        return
    wrong = f"{found.missing:,} missing, {found.differing:,} different, {found.superfluous:,} too many"
    if repaired:
        session.output.show(f"[green]✔[/green] {found.tree} was made anew; there had been {wrong}: {looked}")
        return
    session.output.show(f"[red]✘[/red] {found.tree} is indexed differently, {wrong}: {looked}")
    for node in found.examples:
        session.output.show(f"  {node}")
