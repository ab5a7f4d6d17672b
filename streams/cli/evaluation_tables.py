"""An evaluation's outcome for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

_METRICS = ("recall@3", "recall@5", "recall@10", "ndcg@10")
_SHORT = {"recall@3": "R@3", "recall@5": "R@5", "recall@10": "R@10", "ndcg@10": "NDCG@10"}

_LIKENESS = {
    "f1": "F1",
    "bleu_1": "BLEU-1",
    "bleu_2": "BLEU-2",
    "bleu_4": "BLEU-4",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "distinct_1": "DISTINCT-1",
    "distinct_2": "DISTINCT-2",
    "bertscore": "BERTScore",
}


def tables(result: Mapping[str, Any], *, documents: bool) -> list[RenderableType]:
    """
    The tables of `streams.evaluation.report.outcome`.

    Args:
        result: the outcome.
        documents: whether items are documents, not turns.
    """
    names = ("items", "documents") if documents else ("turns", "sessions")
    shown: list[RenderableType] = [_strategies(result, names)]
    categories = next(iter(result["strategies"].values()))["by_category"]
    if len(categories) > 1:
        shown.extend(_categories(result, level, name) for level, name in zip(("turn", "session"), names, strict=True))
    shown.append(_tree(result["tree"]))
    return shown


def wide_tables(sets: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> list[RenderableType]:
    """A table of all structures and strategies for each data set, by name and structure."""
    return [_sessions(name, each) if _is_msc(each) else _set(name, each) for name, each in sets.items()]


def _is_msc(structures: Mapping[str, Mapping[str, Any]]) -> bool:
    return any(result["format"] == "msc" for result in structures.values())


def _set(name: str, structures: Mapping[str, Mapping[str, Any]]) -> Table:
    first = next(iter(structures.values()))
    table = Table(title=f"{name}: {first['questions']:,} questions", title_justify="left", title_style="bold", box=None)
    table.add_column("structure", no_wrap=True, min_width=9)
    table.add_column("strategy", no_wrap=True, min_width=10)
    for level in ("items", "sessions"):
        for number, metric in enumerate(_METRICS):
            table.add_column(f"{level}\n{_SHORT[metric]}" if number == 0 else f"\n{_SHORT[metric]}", justify="right")
    table.add_column("by unit\nR@10", justify="right")
    for column in ("search, ms\np50", "\np99", "CPU ms\nan item", "summaries\nan item", "KB\nan item"):
        table.add_column(column, justify="right")
    for structure, result in structures.items():
        taken = result["ingestion"]
        cost = [
            _number(taken["cpu_ms_per_item"], 1),
            _number(taken["summaries_asked_per_item"], 2),
            _number(result["size"]["store_bytes_per_item"] / 1024, 1),
        ]
        times = result["latency_ms"]["strategies"]
        for number, (strategy, levels) in enumerate(result["strategies"].items()):
            found = [_percent(levels[level].get(metric)) for level in ("turn", "session") for metric in _METRICS]
            found.append(_percent(levels["unit"].get("recall@10")))
            took = [_number(times.get(strategy, {}).get(each), 1) for each in ("p50", "p99")]
            table.add_row("" if number else structure, strategy, *found, *took, *([""] * 3 if number else cost))
    return table


def _sessions(name: str, structures: Mapping[str, Mapping[str, Any]]) -> Table:
    table = Table(title=f"{name}: summaries against gold ones", title_justify="left", title_style="bold", box=None)
    table.add_column("structure")
    columns = ("f1", "bleu_1", "bleu_2", "distinct_1", "distinct_2", "words", "gold_words")
    for column in ("F1", "BLEU-1", "BLEU-2", "DISTINCT-1", "DISTINCT-2", "words", "gold words"):
        table.add_column(column, justify="right")
    for structure, result in structures.items():
        table.add_row(structure, *(_number(result[column], 2) for column in columns))
    return table


def judged_table(value: Mapping[str, Any]) -> Table:
    """Judged answers, by strategy and category."""
    table = Table(title=f"Answers judged by {value['model']}", title_justify="left", title_style="bold", box=None)
    table.add_column("strategy")
    table.add_column("questions")
    for name in ("accuracy", "correct", "wrong", "unparsable", "unanswered"):
        table.add_column(name, justify="right")
    for strategy, marks in value["strategies"].items():
        for category, row in (("all", marks), *marks["by_category"].items()):
            accuracy = "" if row["accuracy"] is None else _percent(row["accuracy"])
            counts = (f"{row[name]:,}" for name in ("correct", "wrong", "unparsable", "unanswered"))
            table.add_row(strategy if category == "all" else "", category, accuracy, *counts)
    return table


def likeness_table(value: Mapping[str, Any]) -> Table:
    """Answers against the right ones, by strategy and category."""
    table = Table(title="Answers against the right ones", title_justify="left", title_style="bold", box=None)
    table.add_column("strategy")
    table.add_column("questions")
    for name in _LIKENESS.values():
        table.add_column(name, justify="right")
    for strategy, marks in value["strategies"].items():
        for category, row in (("all", marks), *marks["by_category"].items()):
            shown = ("" if name not in row["likeness"] else _percent(row["likeness"][name]) for name in _LIKENESS)
            table.add_row(strategy if category == "all" else "", category, *shown)
    return table


def _strategies(result: Mapping[str, Any], names: tuple[str, str]) -> Table:
    title = f"{result['format']}: {result['questions']:,} questions, {result['tree']['items']:,} items"
    table = Table(title=title, title_justify="left", title_style="bold", box=None)
    table.add_column("strategy")
    for level in names:
        for number, metric in enumerate(_METRICS):
            table.add_column(f"{level}\n{_SHORT[metric]}" if number == 0 else f"\n{_SHORT[metric]}", justify="right")
    table.add_column("search, ms\np50", justify="right")
    table.add_column("\np99", justify="right")
    table.add_column("not embedding\np50", justify="right", style="dim")
    times = result["latency_ms"]["strategies"]
    for strategy, levels in result["strategies"].items():
        cells = [_percent(levels[level].get(metric)) for level in ("turn", "session") for metric in _METRICS]
        took = times.get(strategy, {})
        shown = [f"{took[name]:.1f}" if name in took else "" for name in ("p50", "p99", "p50_without_embedding")]
        table.add_row(strategy, *cells, *shown)
    return table


def _categories(result: Mapping[str, Any], level: str, name: str) -> Table:
    strategies = result["strategies"]
    table = Table(title=f"{name}: R@10 by category", title_justify="left", title_style="bold", box=None)
    table.add_column("category", no_wrap=True)
    for column in ("questions", *strategies):
        table.add_column(column, justify="right")
    for category, row in next(iter(strategies.values()))["by_category"].items():
        found = (measured["by_category"][category][level].get("recall@10") for measured in strategies.values())
        table.add_row(category, f"{row['questions']:,}", *map(_percent, found))
    return table


def _tree(tree: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False)
    table.add_column(style="dim")
    table.add_column()
    calls = [f"{tree['llm_calls_per_item']:.2f} model calls", f"{tree['rewrites_per_item']:.2f} summaries written"]
    if tree["contributions_per_item"] is not None:
        calls.append(f"{tree['contributions_per_item']:.2f} contributions")
    rows = [
        ("trees", f"{tree['trees']:,}, {tree['structure']}, {tree['embedder']}"),
        ("nodes", f"{tree['nodes']:,}: {tree['leaves']:,} leaves, {tree['summaries']:,} summaries, {tree['pending']:,} pending"),
        ("depth", f"{tree['depth_max']} at most, {tree['depth_median']:g} in the median; branching {tree['branching']:.2f}"),
        ("by depth", "  ".join(f"{depth}: {count:,}" for depth, count in tree["nodes_by_depth"].items())),
        ("an item", ", ".join(calls)),
    ]
    for row in rows:
        table.add_row(*row)
    return table


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _number(value: float | None, decimals: int) -> str:
    return "" if value is None else f"{value:,.{decimals}f}"
