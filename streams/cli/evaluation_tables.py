"""An evaluation's outcome for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import RenderableType
from rich.table import Table

_METRICS = ("recall@3", "recall@5", "recall@10", "ndcg@10")
_SHORT = {"recall@3": "R@3", "recall@5": "R@5", "recall@10": "R@10", "ndcg@10": "NDCG@10"}


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
