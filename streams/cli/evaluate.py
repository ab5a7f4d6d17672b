"""`banyan eval`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memory.errors import SettingError
from memory.retrieval import catalogue
from streams.cli.app import Exit
from streams.cli.common import Session, json_option, run_async
from streams.cli.console import counted, duration
from streams.cli.evaluate_sessions import measure
from streams.cli.evaluate_table import Results, Wanted, measure_table, sets_of
from streams.cli.evaluation_run import Measuring, reporter
from streams.cli.interrupts import Interrupts
from streams.evaluation.choices import FORMATS, STRATEGIES, chosen_for, strategies_for

if TYPE_CHECKING:
    import asyncio

    from memory.local import LocalMemory
    from streams.evaluation.dataset import Dataset
    from streams.evaluation.judge import Exam, Marks

_STOPPING = "stopping after what is in hand; Ctrl-C again ends at once"
_OPENAI = "openai:"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judging:
    """How answers are to be judged."""

    model: str | None
    """As given with --judge; None takes the summarizer's, where that is a chat model."""
    skip: bool
    yes: bool
    tokens: int
    concurrency: int
    prices: tuple[float, float] | None
    """Of a million tokens in, and out."""
    cache: Path | None


@click.command(
    name="eval",
    epilog="""
\b
Examples:
  banyan eval locomo data/locomo
  banyan eval passages data/hotpotqa --strategy hybrid --strategy bm25
  banyan eval multihoprag data/multihoprag --json | tail -1 | jq .strategies.hybrid.turn
  banyan eval all data --structure all --results figures.json
  banyan eval locomo data/locomo --data kept --judge gpt-4o-mini --price 0.15 0.60
\b
Formats, each a folder of JSON lines:
  locomo       conversations.jsonl, qa.jsonl    a tree for each conversation
  multihoprag  facts.jsonl, queries.jsonl       one tree
  passages     corpus.jsonl, queries.jsonl      one tree
  quality      articles.jsonl, questions.jsonl  one tree; evidence is found by the right option
  nq           docs.jsonl, queries.jsonl        one tree; evidence is where the answer stands
  msc          session3_test.jsonl              a tree for each conversation; summaries, not searches, are measured
  all          every folder in PATH that is of one of these
""",
)
@click.argument("name", metavar="FORMAT", type=click.Choice([*FORMATS, "all"]))
@click.argument("folder", metavar="PATH", type=click.Path(path_type=Path))
@click.option(
    "--strategy",
    "strategies",
    multiple=True,
    type=click.Choice(["all", *STRATEGIES]),
    help="What to measure; may be repeated. Without it, or with all, everything that works on the structure.",
)
@click.option(
    "--structure",
    "structures",
    metavar="S",
    multiple=True,
    help="How the trees grow (BANYAN_STRUCTURE); may be repeated, or all.",
)
@click.option(
    "--results",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Keep what was measured in this JSON file; what it holds already is not measured again.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Keep the memory in this folder, to be used again by the next run; otherwise it is removed.",
)
@click.option("--judge", metavar="MODEL", help="Also answer with this chat model from what was found, and have it judge.")
@click.option("--no-judge", is_flag=True, help="Do not, although the summarizer is a chat model.")
@click.option("--yes", is_flag=True, help="Do not ask before the chat model is used.")
@click.option(
    "--context-tokens", type=click.IntRange(50, 100_000), default=1_000, show_default=True, help="What an answer is made from."
)
@click.option(
    "--concurrency", type=click.IntRange(1, 64), default=8, show_default=True, help="Questions the chat model has at once."
)
@click.option("--price", type=float, nargs=2, metavar="IN OUT", help="Of a million tokens in and out, to estimate the cost.")
@click.option(
    "--answers",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Where the chat model's replies are kept; without it below the cache folder.",
)
@json_option
@run_async
async def evaluate(
    *,
    name: str,
    folder: Path,
    strategies: Sequence[str],
    structures: Sequence[str],
    results: Path | None,
    data: Path | None,
    judge: str | None,
    no_judge: bool,
    yes: bool,
    context_tokens: int,
    concurrency: int,
    price: tuple[float, float] | None,
    answers: Path | None,
    as_json: bool,
) -> int:
    """
    Measure retrieval on a data set in PATH whose answers are known.

    Needs no chat model: the share of the evidence among the first 3, 5 and 10 distinct turns (or documents) and sessions,
    NDCG at 10, times, and what the trees look like. The data is put into a memory of its own, never into the settings'
    store. With --json the last line on standard output holds everything.

    With --judge, or with a chat model as summarizer, questions are also answered and judged, with the prompts of the MemTree paper;
    replies are kept, so that the same command goes on where it stopped.
    """
    session = Session(as_json=as_json)
    strategies = () if "all" in strategies else strategies
    if name == "all" or results is not None or len(structures) > 1 or "all" in structures:
        if judge:
            raise click.UsageError("--judge goes with one structure and one data set, and without --results")
        session.load(structure=None)
        names = _structures(structures) or (session.settings.tree.structure,)
        wanted = Wanted(sets=sets_of(name, folder), structures=names, strategies=strategies, data=data)
        _check_pairs(wanted)
        with Interrupts(session.output, _STOPPING) as interrupts:
            return await measure_table(session, wanted, Results(results), interrupts.stop)
    session.load(structure=structures[0] if structures else None)
    if name == "msc":
        if strategies or data or judge:
            raise click.UsageError("msc measures summaries: --strategy, --data and --judge mean nothing to it")
        with Interrupts(session.output, _STOPPING) as interrupts:
            return await measure(session, folder, interrupts.stop)
    judging = _Judging(
        model=judge, skip=no_judge, yes=yes, tokens=context_tokens, concurrency=concurrency, prices=price, cache=answers
    )
    from streams.evaluation.formats import load  # noqa: PLC0415  # brings numpy
    from streams.evaluation.run import conditions, open_memory  # noqa: PLC0415

    chosen = chosen_for(session.settings.tree.structure, strategies)
    dataset = load(name, folder).marked(*conditions(session.settings))
    session.output.note(
        f"{counted(len(dataset.records), 'item')} in {counted(len(dataset.trees), 'tree')}, "
        f"{counted(len(dataset.cases), 'question')} with evidence, {dataset.left_out} without"
    )
    with Interrupts(session.output, _STOPPING) as interrupts:
        memory, embedder, summarizer = await open_memory(session.settings, data)
        async with memory:
            measuring = Measuring(session, memory, embedder, summarizer, dataset, interrupts.stop)
            run = _Evaluation(session, memory, dataset, measuring, interrupts.stop)
            return await run.run(chosen, judging, named=bool(strategies))


def _structures(named: Sequence[str]) -> tuple[str, ...]:
    """Structures as asked for, each once; `all` is all there are."""
    from memory.structures.registry import NAMES  # noqa: PLC0415  # brings numpy

    unknown = [each for each in named if each not in (*NAMES, "all")]
    if unknown:
        raise SettingError(f"structure {unknown[0]!r} is not known; there is {', '.join(NAMES)}, and all")
    return tuple(NAMES) if "all" in named else tuple(dict.fromkeys(named))


def _check_pairs(wanted: Wanted) -> None:
    """Raise SettingError where a strategy works on none of the structures."""
    for strategy in wanted.strategies:
        if not any(strategy in strategies_for(structure) for structure in wanted.structures):
            chosen_for(wanted.structures[0], [strategy])


class _Evaluation:
    """One run, with its output."""

    def __init__(self, session: Session, memory: LocalMemory, dataset: Dataset, measuring: Measuring, stop: asyncio.Event) -> None:
        self._session = session
        self._output = session.output
        self._memory = memory
        self._dataset = dataset
        self._measuring = measuring
        self._stop = stop

    async def run(self, strategies: Sequence[str], judging: _Judging, *, named: bool) -> int:
        """All of it; the exit code."""
        import asyncio  # noqa: PLC0415

        from streams.evaluation.report import judged  # noqa: PLC0415

        result = await self._measuring.measure(strategies)
        if result is None:
            return Exit.INTERRUPTED
        self._show(result)
        code = Exit.OK
        model = self._model(judging)
        # The others are measures: nothing makes a context with them.
        readable = [each for each in strategies if each in catalogue.STRATEGIES][: None if named else 1]
        if model is not None and not readable:
            self._output.warn(f"nothing to judge: answers are made with {', '.join(catalogue.STRATEGIES)}")
        elif model is not None:
            exams = {each: await self._exams(each, judging) for each in readable}
            marks = await self._examine(exams, model, judging)
            if marks is not None:
                asked = len(next(iter(exams.values())))
                result["judged"] = await asyncio.to_thread(judged, model, marks, len(self._dataset.cases) - asked)
                self._show_judged(result["judged"])
                if result["judged"]["incomplete"]:
                    self._output.warn(f"not all answers were judged; the same command goes on: {result['judged']['incomplete']}")
                    code = Exit.UNAVAILABLE
        if self._stop.is_set():
            return Exit.INTERRUPTED
        if self._output.as_json:
            self._output.emit(result)
        return code

    # ------------------------------------------------------------------------------------------------------------ judging

    def _model(self, judging: _Judging) -> str | None:
        """The chat model's name; None when nothing is to be judged."""
        if judging.skip:
            return None
        summarizer = self._session.settings.summarizer
        given = judging.model or (summarizer if summarizer.startswith(_OPENAI) else None)
        return given.removeprefix(_OPENAI) if given else None

    async def _exams(self, strategy: str, judging: _Judging) -> list[Exam]:
        """The questions whose answer is known, with what the memory gives for them."""
        from streams.evaluation.judge import Exam  # noqa: PLC0415

        exams = []
        for case in self._dataset.cases:
            if self._stop.is_set():
                break
            if case.answer is None or not case.tree:
                continue
            packed = await self._memory.context(case.tree, case.text, tokens=judging.tokens, strategy=strategy)
            exams.append(Exam(id=case.id, category=case.category, query=case.text, context=packed.text, answer=case.answer))
        return exams

    async def _examine(self, exams: dict[str, list[Exam]], model: str, judging: _Judging) -> dict[str, Marks] | None:
        """None when the user did not want to, or nobody could be asked."""
        from streams.evaluation.chat import Chat, Replies  # noqa: PLC0415
        from streams.evaluation.judge import estimate, examine  # noqa: PLC0415
        from streams.models import openai_endpoint  # noqa: PLC0415

        settings = self._session.settings
        endpoint = replace(openai_endpoint(settings), attempts=6, wait_max_s=120.0)
        folder = judging.cache or (settings.cache_dir or Path.home() / ".cache" / "banyan") / "eval"
        chat = Chat(model=model, endpoint=endpoint, replies=Replies(folder))
        try:
            needed = [estimate(each, chat) for each in exams.values()]
            calls = sum(each.calls for each in needed)
            tokens_in, tokens_out = sum(each.tokens_in for each in needed), sum(each.tokens_out for each in needed)
            if calls and not self._agreed(model, calls, tokens_in, tokens_out, judging):
                return None
            marks = {}
            for strategy, each in exams.items():
                with self._output.progress(f"judging {strategy}", total=len(each)) as progress:
                    marks[strategy] = await examine(
                        each,
                        chat,
                        concurrency=judging.concurrency,
                        stop=self._stop,
                        report=reporter(progress),
                    )
                if marks[strategy].failure or self._stop.is_set():
                    break
            return marks
        finally:
            with suppress(Exception):
                await chat.close()

    def _agreed(self, model: str, calls: int, tokens_in: int, tokens_out: int, judging: _Judging) -> bool:
        cost = ""
        if judging.prices is not None:
            cost = f", about {(tokens_in * judging.prices[0] + tokens_out * judging.prices[1]) / 1e6:,.2f} at the given prices"
        self._output.note(f"{model}: at most {counted(calls, 'call')}, about {tokens_in:,} tokens in and {tokens_out:,} out{cost}")
        if judging.yes:
            return True
        if sys.stdin.isatty() and sys.stderr.isatty():
            # While the terminal is waited for the loop is not, so that Ctrl-C must not wait for it either.
            handler = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                return click.confirm("Go on?", err=True)
            finally:
                signal.signal(signal.SIGINT, handler)
        if judging.model is None:
            self._output.note("not answered and judged: --yes agrees to it, --no-judge says that it is not wanted")
            return False
        raise click.UsageError("nobody is there to agree to the calls above; --yes does")

    # ------------------------------------------------------------------------------------------------------------- tables

    def _show(self, result: dict[str, Any]) -> None:
        if self._output.as_json:
            return
        from streams.cli.evaluation_tables import tables  # noqa: PLC0415

        for each in tables(result, documents=self._dataset.group == "document"):
            self._output.show(each)
            self._output.show()
        ingestion = result["ingestion"]
        if ingestion["items_per_s_committed"]:
            self._output.show(
                f"[dim]ingested[/dim]   {counted(ingestion['items'], 'item')}: committed and searchable in "
                f"{duration(ingestion['committed_s'])} ({ingestion['items_per_s_committed']:,.0f}/s), every summary up to date in "
                f"{duration(ingestion['fresh_s'])} ({ingestion['items_per_s_fresh']:,.0f}/s)"
            )

    def _show_judged(self, value: dict[str, Any]) -> None:
        if self._output.as_json:
            return
        from streams.cli.evaluation_tables import judged_table, likeness_table  # noqa: PLC0415

        for each in (judged_table(value), likeness_table(value)):
            self._output.show(each)
            self._output.show()
