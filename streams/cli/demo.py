"""`banyan demo`: the whole job on the example data."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

import streams
from memory.errors import SettingError
from streams.cli.ask import show_answer
from streams.cli.common import Session, json_option, run_async
from streams.cli.console import counted, duration
from streams.cli.ingest import feed_files, wait_for_summaries
from streams.cli.look import draw
from streams.cli.reading import open_inputs

if TYPE_CHECKING:
    from memory.local import LocalMemory
    from memory.results import SearchAnswer

_FILES = ("turns.jsonl", "news.jsonl")
_DEPTH = 2
_CHILDREN = 6
_HITS = {"single_turn": 4, "summary": 2, "two_documents": 6}
_STORIES = {
    "single_turn": "One old turn answers this:",
    "summary": "No single turn answers this; a summary of many does:",
    "two_documents": "This needs two articles, months apart:",
}


@dataclass(frozen=True, slots=True)
class _Question:
    tree: str
    text: str
    kind: str
    expect: frozenset[str]
    answer: str


@click.command(
    epilog="""
\b
Examples:
  banyan demo
  banyan demo --keep my-demo
"""
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the memory in this folder, to ask it more; otherwise it is removed.",
)
@json_option
@run_async
async def demo(keep: Path | None, as_json: bool) -> None:
    """
    See it work: two chats over several months and a news feed become a memory; ask it.

    Everything happens on this machine, in a temporary folder, with the settings in force. With --json: a line about what went
    in, and one about what was asked and found.
    """
    session = Session(as_json=as_json)
    session.load()
    data = example_data()
    questions = [question for question in _questions(data) if question.kind in _STORIES]
    from streams.bootstrap import open_memory  # noqa: PLC0415  # brings numpy and the model's runtime

    started = time.monotonic()
    memory = await open_memory(session.settings, temporary=keep is None, path=keep, summaries=False)
    try:
        _head(session, "1", "Two chats over seven months and a news feed of sixty articles go in")
        never = asyncio.Event()
        inputs = open_inputs([str(data / name) for name in _FILES])
        await feed_files(session, memory, inputs, tree=None, stop=never)
        # Only now, so that the trees, and with them the story, are the same each time: otherwise an item may be placed before or
        # after a summary near it is made.
        await memory.start_summaries()
        await wait_for_summaries(session, memory, never)
        trees = [info.id for info in await memory.trees()]
        for name in trees:
            await _show_tree(session, memory, name)
        asked = [(question, await _ask(session, memory, question, number)) for number, question in enumerate(questions, 3)]
        if as_json:
            session.output.emit(_outcome(asked, trees, time.monotonic() - started))
        _next(session, keep, trees, time.monotonic() - started)
    finally:
        await memory.close()


def example_data() -> Path:
    """
    The folder with the example data, in an installed package or in the source tree.

    Raises:
        SettingError: it is in neither.
    """
    package = Path(streams.__file__).parent
    for folder in (package / "examples_data", package.parent / "examples" / "data"):
        if (folder / "questions.jsonl").is_file():
            return folder
    raise SettingError("the example data is not installed with this package; run the demo from the source tree (make demo)")


def _questions(folder: Path) -> list[_Question]:
    lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    return [
        _Question(each["tree"], each["question"], each["kind"], frozenset(each["expect"]), each["answer"])
        for each in map(json.loads, filter(None, lines))
        if each.get("demo")
    ]


async def _show_tree(session: Session, memory: LocalMemory, name: str) -> None:
    if name.endswith("chats"):
        _head(session, "2", "It has grown into trees of topics; bold lines are summaries, with the number of leaves below them")
    top = await memory.tree(name, depth=_DEPTH, children=_CHILDREN)
    session.output.show(draw(top, name, session.output.out.width))
    session.output.show()


async def _ask(session: Session, memory: LocalMemory, question: _Question, number: int) -> SearchAnswer:
    from rich.padding import Padding  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    from memory.model import NodeKind  # noqa: PLC0415  # brings numpy
    from memory.ports.index import Scope  # noqa: PLC0415

    _head(session, str(number), _STORIES[question.kind])
    only = "summary" if question.kind == "summary" else "leaf"
    command = Text(
        f'banyan search {question.tree} "{question.text}" -k {_HITS[question.kind]} --filter kind={only}', style="bold yellow"
    )
    session.output.show(Padding(command, (0, 0, 1, 3)))
    scope = Scope(kinds=frozenset({NodeKind(only)}))
    answer = await memory.search(question.tree, question.text, k=_HITS[question.kind], scope=scope)
    show_answer(session, answer, expected=question.expect, lines=3)
    session.output.show()
    answered = Text.assemble(("The answer as written down with the data: ", "dim"), question.answer)
    session.output.show(Padding(answered, (0, 0, 0, 3)))
    return answer


def _outcome(asked: list[tuple[_Question, SearchAnswer]], trees: Sequence[str], seconds: float) -> dict[str, object]:
    from streams.answers import answer_json  # noqa: PLC0415

    return {
        "trees": trees,
        "questions": [
            {
                "tree": question.tree,
                "question": question.text,
                "kind": question.kind,
                "expect": sorted(question.expect),
                "found": sorted(question.expect & {source for hit in answer.hits for source in hit.sources}),
                **answer_json(answer),
            }
            for question, answer in asked
        ],
        "seconds": round(seconds, 1),
    }


def _head(session: Session, number: str, text: str) -> None:
    session.output.show()
    session.output.show(f"[bold cyan]{number}[/bold cyan]  [bold]{text}[/bold]")
    session.output.show()


def _next(session: Session, keep: Path | None, trees: Sequence[str], seconds: float) -> None:
    show = session.output.show
    _head(session, "✔", f"That took {duration(seconds)}, {counted(len(trees), 'tree')}, no server and no key")
    if keep is not None:
        store = f"--store sqlite:///{keep}"
        show("   Ask it yourself:")
        show(f'     banyan search {trees[0]} "Who plays the cello?" {store}')
        show(f"     banyan tree {trees[-1]} --depth 4 {store}")
    else:
        show("   Keep it and ask it yourself:   banyan demo --keep my-demo")
    show("   Your own chats and documents:  banyan ingest FILE --tree NAME")
    show("   What a line of FILE looks like: banyan ingest --help")
