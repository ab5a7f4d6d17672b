"""docs/benchmarks.md from the measured results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.bench import page_pipeline, page_service

Results = Mapping[str, Mapping[str, Any]]

HEAD = """# Benchmarks

Written by `make bench`; do not edit. Each figure names the commit it was measured on; a plus says that files differed from it. A
figure is a single run's (latencies: of 300 queries; rates: median of three runs where it says so) on a machine that did nothing
else, with `OPENBLAS_NUM_THREADS=1`, as the command line sets it. Data sets are not part of the project: LoCoMo figures are of the
conversations in the folder that `BANYAN_BENCH_DATA` names.

| figure | measured | must | aim | command | commit |
|---|---|---|---|---|---|
"""


def _get(results: Results, part: str, *names: str) -> list[Any] | None:
    found = results.get(part)
    if found is None or any(name not in found for name in names):
        return None
    return [found[name] for name in names]


def _curve(calls: Mapping[str, float]) -> str:
    return " / ".join(f"{calls[rate]:.2f}" for rate in ("1", "20", "100", "400") if rate in calls)


def _rows() -> list[tuple[str, str, tuple[str, ...], Callable[..., str], str, str]]:
    """(figure, part, names, how to show them, must, aim)."""
    return [
        (
            "durable inserts/s, vectors given, summaries queued, batches of 64: tree of 1,000 to 2,000 leaves / 100,000 leaves",
            "inserts",
            ("inserts_per_s_1k", "inserts_per_s_100k"),
            lambda small, large: f"{small:,} / {large:,}",
            "1,500 / 1,000",
            "5,000 / 4,000",
        ),
        ("cost of an insert at 100k over at 1k", "inserts", ("cost_ratio",), str, "≤ 2", "≤ 1.3"),
        (
            "end to end offline, turns/s: until committed and searchable / until every summary is fresh",
            "endtoend",
            ("searchable_per_s", "fresh_per_s", "embedder_alone_per_s", "searchable_share_of_embedder", "data"),
            lambda searchable, fresh, own, share, data: f"{searchable} / {fresh} ({data}; the embedder alone {own}, share {share})",
            "200 / 80",
            "embedder × 0.8 / 200",
        ),
        (
            "hybrid search at 100k leaves, query vector given, p50 / p99",
            "search",
            ("hybrid_p50_ms", "hybrid_p99_ms"),
            lambda p50, p99: f"{p50} / {p99} ms",
            "10 / 40 ms",
            "3 / 12 ms",
        ),
        (
            "the same with `collapsed`; with `traversal`",
            "search",
            ("collapsed_p50_ms", "collapsed_p99_ms", "traversal_p50_ms", "traversal_p99_ms"),
            lambda a, b, c, d: f"{a} / {b} ms; {c} / {d} ms",
            "",
            "",
        ),
        (
            "`router` over a MemGAS of 10,000 units, query vector given, p50 / p99; right after a commit; processor time of both "
            "(the paper: 23.9 ms)",
            "memgas",
            (
                "router_p50_ms",
                "router_p99_ms",
                "router_after_a_commit_p50_ms",
                "router_cpu_p50_ms",
                "router_after_a_commit_cpu_p50_ms",
            ),
            lambda p50, p99, after, cpu, cpu_after: f"{p50} / {p99} ms; {after} ms; {cpu}; {cpu_after} ms",
            "23.9 ms",
            "10 ms",
        ),
        (
            "planning an insertion into a MemGAS of 1,000 / 10,000 units, processor time; comparing with all units, as the paper",
            "memgas",
            ("insert_ms_by_units", "insert_all_pairs_ms_by_units"),
            lambda near, every: f"{near['1000']} / {near['10000']} ms; {every['1000']} / {every['10000']} ms",
            "",
            "the same at any size",
        ),
        (
            "memory of the view a node (384 dimensions)",
            "inserts",
            ("view_bytes_per_node",),
            lambda size: f"{size / 1000:.2f} KB",
            "≤ 3 KB",
            "≤ 1.8 KB",
        ),
        ("open of a 100k tree until the first answer", "inserts", ("open_s",), lambda s: f"{s} s", "5 s", "1 s"),
        (
            "the local embedder: short texts/s batched; one text; chunks of 2,000 characters/s; load",
            "models",
            ("short_texts_per_s", "single_p50_ms", "chunks_of_2000_characters_per_s", "load_s"),
            lambda batched, single, long, load: f"{batched}; {single} ms; {long}; {load} s",
            "",
            "",
        ),
        (
            "LLM calls an item until every summary is fresh, summarizer of 1 s, 16 at once: at 1 / 20 / 100 / 400 items/s",
            "calls",
            ("clustered", "clustered_arriving", "conversations", "conversations_arriving", "linger_s"),
            lambda clustered, soon, turns, soon_turns, linger: (
                f"{_curve(clustered)} clustered; {_curve(turns)} conversations; of these while items arrive {_curve(soon)}; "
                f"{_curve(soon_turns)} (linger {linger:g} s)"
            ),
            "< 3.27 everywhere, ≤ 1 at 20/s",
            "≤ 0.3 at 100/s, ≤ 0.2 at 400/s",
        ),
        (
            "summaries/s, model of 1 s, on Redis: one call at a time; 16 at once in one process; 4 in each of 4 (times the first)",
            "pool",
            ("summaries_per_s", "one_process_ratio", "four_processes_ratio"),
            lambda rates, one, four: f"{rates['1']}; {rates['1 x 16']} ({one}×); {rates['4 x 4']} ({four}×)",
            "12×",
            "15×",
        ),
        (
            "LoCoMo as given, hybrid, offline: turns R@10 / sessions R@10",
            "quality",
            ("locomo_turn", "locomo_session"),
            lambda turn, session: f"{turn:.3f} / {session:.3f}",
            "0.70 / 0.93",
            "0.78 / 0.97",
        ),
        (
            "evidence R@10, hybrid / dense / BM25: MultiHop-RAG; HotpotQA; MuSiQue; 2Wiki",
            "quality",
            ("multihoprag", "hotpotqa", "musique", "twowiki"),
            lambda *sets: "; ".join(" / ".join(f"{value:.3f}" for value in one) for one in sets),
            "above both on each",
            "",
        ),
        *page_pipeline.rows(),
        *page_service.rows(),
    ]


def render(results: Results) -> str:
    """The page."""
    lines = [HEAD]
    for figure, part, names, show, must, aim in _rows():
        values = _get(results, part, *names)
        measured = show(*values) if values is not None else "not measured yet"
        commit = results[part]["commit"] if values is not None else ""
        lines.append(f"| {figure} | {measured} | {must} | {aim} | `python -m tests.bench.{part}` | {commit} |\n")
    machines = sorted({result["machine"] for result in results.values()})
    lines.append("\nMeasured on: " + "; ".join(machines) + ".\n")
    inserts = results.get("inserts")
    if inserts:
        depths = ", ".join(
            f"{depth}: {count:,}" for depth, count in sorted(inserts["depths"].items(), key=lambda pair: int(pair[0]))
        )
        lines.append(
            f"\nThe tree of 100,000 leaves: {inserts['nodes']:,} nodes by depth {depths}; "
            f"the root has {inserts['root_children']:,} children; "
            f"{inserts['store_bytes_per_leaf']:,} bytes a leaf in the store's file, change log included.\n"
        )
    lines.append(
        "\nFor comparison, on a machine of the same kind: the only published MemTree code inserts at 0.3 ms an item with 100 "
        "items and 2.2 ms with 3,000, in memory only, growing linearly, and loses 372 of 3,000 texts.\n"
    )
    return "".join(lines)
