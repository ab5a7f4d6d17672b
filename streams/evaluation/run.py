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
from memory.results import Hit, TreeNode
from memory.retrieval.text import embedded_text
from memory.service.chunking import items
from streams.evaluation import metrics
from streams.evaluation.baselines import LEAVES, fused, units_at
from streams.evaluation.choices import GRANULARITIES, STRATEGIES
from streams.evaluation.dataset import Case, Dataset
from streams.evaluation.timing import Asked as SummariesAsked
from streams.evaluation.timing import CountedSummarizer, TimedEmbedder
from streams.models import open_embedder, open_labels, open_navigator, open_summarizer
from streams.settings import Settings

ARTICLES_K: Final = 3 * metrics.DEPTH
"""Documents asked for where the session level is coarser than they are, so that ten distinct ones are among them."""

UNITS_K: Final = 100
"""Hits of any kind, or units of one granularity, asked for, so that ten distinct sessions are among them."""
_CHILDREN_MAX: Final = 1_000
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
    """Metrics by name; empty where a strategy ranks no leaves."""
    session: dict[str, float]
    unit: dict[str, float]
    """Sessions by hits of any kind: a summary counts as the session that all below it was said in."""


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
    asker = _asker(memory, dataset, strategy)
    run = StrategyRun()
    if dataset.cases:
        for tree in dataset.trees:
            await asker.ranked(tree, dataset.cases[0].text)
    embedder.take_query_s()
    pure = {tree: await pure_summaries(memory, dataset, tree) for tree in dataset.trees}
    for number, case in enumerate(dataset.cases, 1):
        if stop.is_set():
            break
        if not case.tree:
            nothing = metrics.score([], case.sessions)
            run.asked.append(Asked(case=case, turn=metrics.score([], case.turns), session=nothing, unit=nothing))
            continue
        started = time.perf_counter()
        hits = await asker.ranked(case.tree, case.text)
        run.search_ms.append((time.perf_counter() - started) * 1e3)
        run.embed_ms.append(embedder.take_query_s() * 1e3)
        run.asked.append(await asker.judged(case, hits, pure[case.tree]))
        embedder.take_query_s()
        report(number, len(dataset.cases), "")
    return run


async def contributions(memory: LocalMemory, tree: str) -> int | None:
    """
    Pairs of a leaf and a summary above it: the model calls there would have been if nothing were folded.

    None when the tree is too wide to be read whole.
    """
    total = 0
    below = [await memory.tree(tree, children=_CHILDREN_MAX)]
    while below:
        node = below.pop()
        if node.kind is NodeKind.SUMMARY:
            total += node.descendants
        # Those with most leaves come first: behind a leaf there are only leaves.
        if node.hidden and (not node.children or node.children[-1].kind is not NodeKind.LEAF):
            return None
        below.extend(node.children)
    return total


async def pure_summaries(memory: LocalMemory, dataset: Dataset, tree: str) -> dict[str, str]:
    """The session of each summary whose leaves were all said in one; the others, and those too wide to be read, are not in it."""
    found: dict[str, str] = {}

    def session(node: TreeNode) -> str | None:
        if node.event_id is not None:
            return dataset.places[tree, node.event_id].session
        below = {session(child) for child in node.children}
        one = next(iter(below)) if len(below) == 1 and not node.hidden else None
        if one is not None and node.kind is NodeKind.SUMMARY:
            found[node.id] = one
        return one

    session(await memory.tree(tree, children=_CHILDREN_MAX))
    return found


def _asker(memory: LocalMemory, dataset: Dataset, strategy: str) -> _Asker:
    if strategy == "dense+bm25":
        return _Fused(memory, dataset, strategy)
    if strategy in GRANULARITIES:
        return _Granularity(memory, dataset, strategy)
    # Over leaves alone, collapsed retrieval is dense retrieval.
    return _Asker(memory, dataset, "collapsed" if strategy == "dense" else strategy)


class _Asker:
    """
    Asks with one strategy, and judges what it gives.

    Args:
        memory, dataset: asked, and what it holds.
        strategy: of the memory.
    """

    def __init__(self, memory: LocalMemory, dataset: Dataset, strategy: str) -> None:
        self._memory = memory
        self._dataset = dataset
        self._strategy = strategy
        self._coarser = any(place.turn != place.session for place in dataset.places.values())

    async def ranked(self, tree: str, text: str) -> Sequence[Hit]:
        """What a user would ask, whose time counts: the turn level."""
        group: Literal["none", "document"] = "none" if self._dataset.group == "conversation" else "document"
        found = await self._memory.search(tree, text, k=metrics.DEPTH, strategy=self._strategy, scope=LEAVES, group=group)
        return found.hits

    async def judged(self, case: Case, hits: Sequence[Hit], pure: Mapping[str, str]) -> Asked:
        """One answer, at all levels."""
        session = await self._by_session(case) if self._coarser else hits
        unit = await self._units(case) if self._coarser else hits
        return Asked(
            case=case,
            turn=metrics.score(self._turns(case, hits), case.turns, one_suffices=case.one_suffices),
            session=metrics.score(self._sessions(case, session), case.sessions),
            unit=metrics.score(self._sessions(case, unit, pure), case.sessions),
        )

    async def _by_session(self, case: Case) -> Sequence[Hit]:
        k = metrics.DEPTH if self._dataset.group == "conversation" else ARTICLES_K
        group = self._dataset.group
        return (await self._memory.search(case.tree, case.text, k=k, strategy=self._strategy, scope=LEAVES, group=group)).hits

    async def _units(self, case: Case) -> Sequence[Hit]:
        return (await self._memory.search(case.tree, case.text, k=UNITS_K, strategy=self._strategy)).hits

    def _turns(self, case: Case, hits: Sequence[Hit]) -> list[str]:
        return [self._dataset.places[case.tree, hit.event_id].turn for hit in hits if hit.event_id is not None]

    def _sessions(self, case: Case, hits: Sequence[Hit], pure: Mapping[str, str] | None = None) -> list[str]:
        found = []
        for hit in hits:
            if hit.event_id is not None:
                found.append(self._dataset.places[case.tree, hit.event_id].session)
            elif pure is not None and hit.id in pure:
                found.append(pure[hit.id])
        return found


class _Fused(_Asker):
    """The baseline of both scores, whose leaves serve every level."""

    async def ranked(self, tree: str, text: str) -> Sequence[Hit]:
        """See `_Asker.ranked`."""
        return await fused(self._memory, tree, text)

    async def judged(self, case: Case, hits: Sequence[Hit], pure: Mapping[str, str]) -> Asked:  # noqa: ARG002
        """See `_Asker.judged`."""
        session = metrics.score(self._sessions(case, hits), case.sessions)
        turn = metrics.score(self._turns(case, hits), case.turns, one_suffices=case.one_suffices)
        return Asked(case=case, turn=turn, session=session, unit=session)


class _Granularity(_Asker):
    """
    The nearest units of one granularity of MemGAS, which are no leaves.

    Each is of one session, whose turns it names: so the session is known however wide the tree is.
    """

    async def ranked(self, tree: str, text: str) -> Sequence[Hit]:
        """See `_Asker.ranked`."""
        return await units_at(self._memory, tree, text, depth=GRANULARITIES[self._strategy], k=UNITS_K)

    async def judged(self, case: Case, hits: Sequence[Hit], pure: Mapping[str, str]) -> Asked:  # noqa: ARG002
        """See `_Asker.judged`."""
        sessions = [self._dataset.places[case.tree, hit.sources[0]].session for hit in hits if hit.sources]
        found = metrics.score(sessions, case.sessions)
        return Asked(case=case, turn={}, session=found, unit=found)
