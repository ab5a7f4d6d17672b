"""One evaluation: a memory of its own, the records in, every question asked with every strategy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from memory.errors import SettingError
from memory.local import LocalMemory, open_local
from memory.model import NodeKind, Vector
from memory.results import Hit
from memory.retrieval.text import embedded_text
from memory.service.chunking import items
from streams.bootstrap import open_embedder, open_labels, open_navigator, open_summarizer
from streams.evaluation import metrics
from streams.evaluation.baselines import LEAVES, fused
from streams.evaluation.choices import STRATEGIES
from streams.evaluation.dataset import Case, Dataset
from streams.evaluation.timing import Asked as SummariesAsked
from streams.evaluation.timing import CountedSummarizer, TimedEmbedder
from streams.settings import Settings

ARTICLES_K: Final = 3 * metrics.DEPTH
"""Documents asked for where the session level is coarser than they are, so that ten distinct ones are among them."""

_BATCH: Final = 32

Report = Callable[[int, int, str], None]
"""Told how far it is: done, of how many, detail."""


@dataclass(slots=True)
class Filled:
    """What putting the records in took."""

    items: int = 0
    duplicates: int = 0
    committed_s: float = 0.0
    fresh_s: float = 0.0
    """From the start until every summary was up to date."""
    cpu_s: float = 0.0
    """Processor time for all of it, summaries and embeddings included."""
    summaries: SummariesAsked = field(default_factory=SummariesAsked)
    """What the summarizer was asked for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question, answered with one strategy."""

    case: Case
    turn: dict[str, float]
    """Metrics by name."""
    session: dict[str, float]


@dataclass(slots=True)
class StrategyRun:
    """Everything that one strategy answered."""

    asked: list[Asked] = field(default_factory=list)
    search_ms: list[float] = field(default_factory=list)
    """Of each turn-level search, the query's embedding included."""
    embed_ms: list[float] = field(default_factory=list)


async def embedded(settings: Settings, dataset: Dataset, *, stop: asyncio.Event, report: Report) -> dict[str, Vector]:
    """
    Vectors of all that is to be put in, by text, so that they need not be computed for each structure anew.

    Args:
        settings: say which model, and how documents are cut.
        dataset: what is to be put in.
        stop: when set, the rest is left.
        report: told after each batch.
    """
    cut = settings.memory.ingest.chunk_tokens
    texts = list(dict.fromkeys(embedded_text(item) for record in dataset.records for item in items(record, chunk_tokens=cut)))
    embedder = await open_embedder(settings)
    known: dict[str, Vector] = {}
    try:
        for start in range(0, len(texts), _BATCH):
            if stop.is_set():
                break
            batch = texts[start : start + _BATCH]
            known.update(zip(batch, await embedder.embed(batch), strict=True))
            report(len(known), len(texts), "")
    finally:
        await embedder.close()
    return known


async def open_memory(
    settings: Settings, data: Path | None, *, known: Mapping[str, Vector] | None = None
) -> tuple[LocalMemory, TimedEmbedder, CountedSummarizer]:
    """
    The memory to measure, with the settings' models, its embedder and its summarizer.

    Args:
        settings: in force; where they keep trees is not looked at.
        data: folder to keep it in; None for a temporary one.
        known: vectors of texts that the embedder need not be asked for (`embedded`).
    """
    tree = settings.tree
    embedder = TimedEmbedder(await open_embedder(settings), known=known)
    summarizer = CountedSummarizer(open_summarizer(settings))
    memory = await open_local(
        data,
        embedder=embedder,
        summarizer=summarizer,
        navigator=open_navigator(settings),
        labels=open_labels(settings),
        settings=settings.memory,
        structure=tree.structure,
        parameters=tree.parameters(),
    )
    return memory, embedder, summarizer


def conditions(settings: Settings) -> tuple[str, ...]:
    """What besides the data makes a tree what it is."""
    tree = settings.tree
    grown = f"{tree.structure} {sorted(tree.parameters().items())}"
    return (settings.embedder, str(settings.embedder_dimensions), settings.summarizer, grown)


async def fill(memory: LocalMemory, dataset: Dataset, *, stop: asyncio.Event, report: Report) -> Filled:
    """Put the records in; what is there already stays. Summaries follow by themselves."""
    filled = Filled()
    started = time.perf_counter()
    done = 0

    def count(results: Sequence[object]) -> None:
        nonlocal done
        done += len(results)
        report(done, len(dataset.records), f"{done / max(1e-3, time.perf_counter() - started):,.0f}/s")

    totals = await memory.ingest_stream(dataset.records, on_batch=count, stop=stop)
    filled.committed_s = time.perf_counter() - started
    filled.items, filled.duplicates = totals.accepted, totals.duplicates
    return filled


async def ask(
    memory: LocalMemory, embedder: TimedEmbedder, dataset: Dataset, strategy: str, *, stop: asyncio.Event, report: Report
) -> StrategyRun:
    """
    Ask every question, one after the other.

    Args:
        memory: with the records in it.
        embedder: the memory's.
        dataset: its trees are asked once before anything is timed, so that indexes are loaded.
        strategy: one of `STRATEGIES`.
        stop: when set, the rest is left.
        report: told after each question.

    Raises:
        SettingError: there is no such strategy.
    """
    if strategy not in STRATEGIES:
        raise SettingError(f"strategy {strategy!r} is not known; there is {', '.join(STRATEGIES)}")
    run = StrategyRun()
    if dataset.cases:
        for tree in dataset.trees:
            await _ranked(memory, dataset, tree, dataset.cases[0].text, strategy)
    embedder.take_query_s()
    coarser = any(place.turn != place.session for place in dataset.places.values())
    for number, case in enumerate(dataset.cases, 1):
        if stop.is_set():
            break
        if not case.tree:
            run.asked.append(Asked(case=case, turn=metrics.score([], case.turns), session=metrics.score([], case.sessions)))
            continue
        started = time.perf_counter()
        turn_hits, session_hits = await _ranked(memory, dataset, case.tree, case.text, strategy)
        run.search_ms.append((time.perf_counter() - started) * 1e3)
        run.embed_ms.append(embedder.take_query_s() * 1e3)
        if session_hits is None:
            session_hits = await _by_session(memory, dataset, case, strategy) if coarser else turn_hits
        embedder.take_query_s()
        run.asked.append(
            Asked(
                case=case,
                turn=metrics.score(_turns(dataset, case.tree, turn_hits), case.turns, one_suffices=case.one_suffices),
                session=metrics.score(_sessions(dataset, case.tree, session_hits), case.sessions),
            )
        )
        report(number, len(dataset.cases), "")
    return run


async def contributions(memory: LocalMemory, tree: str) -> int | None:
    """
    Pairs of a leaf and a summary above it: the model calls there would have been if nothing were folded.

    None when the tree is too wide to be read whole.
    """
    total = 0
    below = [await memory.tree(tree, children=1_000)]
    while below:
        node = below.pop()
        if node.kind is NodeKind.SUMMARY:
            total += node.descendants
        # Those with most leaves come first: behind a leaf there are only leaves.
        if node.hidden and (not node.children or node.children[-1].kind is not NodeKind.LEAF):
            return None
        below.extend(node.children)
    return total


async def _ranked(
    memory: LocalMemory, dataset: Dataset, tree: str, text: str, strategy: str
) -> tuple[Sequence[Hit], Sequence[Hit] | None]:
    """Hits for the turn level, and those for the session level when they came along."""
    if strategy == "dense+bm25":
        hits = await fused(memory, tree, text)
        return hits, hits
    group: Literal["none", "document"] = "none" if dataset.group == "conversation" else "document"
    answer = await memory.search(tree, text, k=metrics.DEPTH, strategy=_read_by(strategy), scope=LEAVES, group=group)
    return answer.hits, None


async def _by_session(memory: LocalMemory, dataset: Dataset, case: Case, strategy: str) -> Sequence[Hit]:
    k = metrics.DEPTH if dataset.group == "conversation" else ARTICLES_K
    return (await memory.search(case.tree, case.text, k=k, strategy=_read_by(strategy), scope=LEAVES, group=dataset.group)).hits


def _read_by(strategy: str) -> str:
    """Over leaves alone, collapsed retrieval is dense retrieval."""
    return "collapsed" if strategy == "dense" else strategy


def _turns(dataset: Dataset, tree: str, hits: Sequence[Hit]) -> list[str]:
    return [dataset.places[tree, hit.event_id].turn for hit in hits if hit.event_id is not None]


def _sessions(dataset: Dataset, tree: str, hits: Sequence[Hit]) -> list[str]:
    return [dataset.places[tree, hit.event_id].session for hit in hits if hit.event_id is not None]
