"""An evaluation's outcome as JSON values; what `--json` prints and what the tables are made of."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from memory.results import TreeReport
from streams.evaluation import metrics
from streams.evaluation.dataset import Dataset
from streams.evaluation.judge import Marks
from streams.evaluation.likeness import likeness
from streams.evaluation.run import Asked, Filled, StrategyRun


def outcome(
    dataset: Dataset, filled: Filled, runs: Mapping[str, StrategyRun], trees: Sequence[TreeReport], contributions: int | None
) -> dict[str, Any]:
    """
    Everything but judged answers.

    Args:
        dataset: what was measured on.
        filled: what putting it in took.
        runs: by strategy, the foremost first.
        trees: of the data set.
        contributions: pairs of leaf and summary above it, over all trees; None when unknown.
    """
    return {
        "format": dataset.format,
        "questions": len(dataset.cases),
        "questions_left_out": dataset.left_out,
        "items_skipped": dataset.skipped,
        "strategies": {name: _levels(run) for name, run in runs.items()},
        "tree": _tree(trees, contributions),
        "latency_ms": _latency(runs),
        "ingestion": _ingestion(filled),
    }


def judged(model: str, marks: Mapping[str, Marks], left_out: int) -> dict[str, Any]:
    """Judged answers, by strategy, and how alike they are to the right ones; takes as long as `likeness` does."""
    return {
        "model": model,
        "left_out": left_out,
        "calls": sum(each.calls for each in marks.values()),
        "known": sum(each.known for each in marks.values()),
        "tokens_in": sum(each.tokens_in for each in marks.values()),
        "tokens_out": sum(each.tokens_out for each in marks.values()),
        "incomplete": next((each.failure for each in marks.values() if each.failure), None),
        "strategies": {
            name: {
                "accuracy": each.accuracy(),
                **each.counts(),
                "likeness": likeness(each.answers()),
                "by_category": {
                    category: {
                        "accuracy": each.accuracy(category),
                        **each.counts(category),
                        "likeness": likeness(each.answers(category)),
                    }
                    for category in sorted({one.exam.category for one in each.judged})
                },
            }
            for name, each in marks.items()
        },
    }


def _levels(run: StrategyRun) -> dict[str, Any]:
    categories: dict[str, list[Asked]] = {}
    for asked in run.asked:
        categories.setdefault(asked.case.category, []).append(asked)
    return {
        **_both(run.asked),
        "by_category": {name: {"questions": len(those), **_both(those)} for name, those in sorted(categories.items())},
    }


def _both(asked: Sequence[Asked]) -> dict[str, dict[str, float]]:
    return {
        "turn": metrics.mean([each.turn for each in asked if each.turn]),
        "session": metrics.mean([each.session for each in asked]),
        "unit": metrics.mean([each.unit for each in asked]),
    }


def _latency(runs: Mapping[str, StrategyRun]) -> dict[str, Any]:
    """The foremost strategy's at the top, then each one's."""
    timed = {name: _times(run) for name, run in runs.items() if run.search_ms}
    first = next(iter(timed.values()), {})
    return {**first, "strategies": timed}


def _times(run: StrategyRun) -> dict[str, float]:
    alone = [search - embed for search, embed in zip(run.search_ms, run.embed_ms, strict=True)]
    return {
        "p50": metrics.percentile(run.search_ms, 0.5),
        "p99": metrics.percentile(run.search_ms, 0.99),
        "p50_without_embedding": metrics.percentile(alone, 0.5),
        "p99_without_embedding": metrics.percentile(alone, 0.99),
    }


def _tree(trees: Sequence[TreeReport], contributions: int | None) -> dict[str, Any]:
    leaves = sum(tree.leaves for tree in trees)
    nodes = sum(tree.nodes for tree in trees)
    depths: dict[int, int] = {}
    for tree in trees:
        for depth, count in tree.depths.items():
            depths[depth] = depths.get(depth, 0) + count
    parents = sum(tree.summaries + 1 for tree in trees)
    return {
        "trees": len(trees),
        "structure": trees[0].structure if trees else None,
        "parameters": dict(trees[0].parameters) if trees else {},
        "embedder": trees[0].embedder if trees else None,
        "items": sum(tree.events for tree in trees),
        "nodes": nodes,
        "leaves": leaves,
        "summaries": sum(tree.summaries for tree in trees),
        "pending": sum(tree.pending for tree in trees),
        "depth_max": max((tree.depth_max for tree in trees), default=0),
        "depth_median": statistics.median(tree.depth_median for tree in trees) if trees else 0,
        "branching": nodes / parents if parents else 0,
        "nodes_by_depth": {str(depth): count for depth, count in sorted(depths.items())},
        "llm_calls_per_item": _share(sum(tree.llm_calls for tree in trees), leaves),
        "rewrites_per_item": _share(sum(tree.rewrites for tree in trees), leaves),
        "llm_tokens_per_item": _share(sum(tree.tokens_in + tree.tokens_out for tree in trees), leaves),
        "contributions_per_item": None if contributions is None else _share(contributions, leaves),
    }


def _ingestion(filled: Filled) -> dict[str, Any]:
    """Rates only where everything was put in by this run."""
    whole = filled.items > 0 and not filled.duplicates
    return {
        "items": filled.items,
        "there_already": filled.duplicates,
        "committed_s": filled.committed_s,
        "fresh_s": filled.fresh_s,
        "items_per_s_committed": _rate(filled.items, filled.committed_s) if whole else None,
        "items_per_s_fresh": _rate(filled.items, filled.fresh_s) if whole else None,
        "cpu_ms_per_item": 1e3 * filled.cpu_s / filled.items if whole else None,
        "summaries_asked_per_item": _share(filled.summaries.calls, filled.items) if whole else None,
        "summary_tokens_in_per_item": _share(filled.summaries.tokens_in, filled.items) if whole else None,
        "summary_tokens_out_per_item": _share(filled.summaries.tokens_out, filled.items) if whole else None,
    }


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 0.0


def _rate(items: int, seconds: float) -> float | None:
    rate = items / seconds if seconds > 0 else math.inf
    return rate if math.isfinite(rate) else None
