"""The rows of docs/benchmarks.md about the query service."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Row = tuple[str, str, tuple[str, ...], Callable[..., str], str, str]
Figures = Mapping[str, Any]
KINDS = ("embedded", "replica")
CHOICES = ("shared", "own")


def _row(figure: str, show: Callable[[Figures], str], must: str, aim: str) -> Row:
    def both(embedded: Figures, replica: Figures) -> str:
        return f"{show(embedded)} embedded; {show(replica)} replica"

    return figure, "service", KINDS, both, must, aim


def _searches(show: Callable[[Figures], str]) -> Callable[..., str]:
    """Both choices of RediSearch, at each size."""

    def both(shared: list[Figures], own: list[Figures]) -> str:
        return "; ".join(
            f"{name}: " + ", ".join(f"{show(of)} at {of['nodes']:,}" for of in sizes)
            for name, sizes in (("exact, shared", shared), ("a graph of its own", own))
        )

    return both


def rows() -> list[Row]:
    """(figure, part, names, how to show them, must, aim)."""
    return [
        _row(
            "search over HTTP at 100,000 nodes, vector in the query cache, 1 client: p50 / p99",
            lambda of: f"{of['p50_ms']} / {of['p99_ms']} ms ({of['cpu_ms']} ms of a processor)",
            "15 / 60 ms",
            "6 / 20 ms",
        ),
        _row(
            "searches/s of one service process, hybrid, k = 10, 16 clients on the same two cores",
            lambda of: f"{of['at_once']['per_s']} ({of['at_once']['cpu_ms']} ms of a processor)",
            "100",
            "300",
        ),
        _row(
            "the same while another process ingests 500 items/s: p99 grows by; searches/s",
            lambda of: f"{of['p99_growth']}×; {of['while_ingesting']['per_s']} (at {of['ingested_per_s']} items/s)",
            "≤ 3×",
            "≤ 1.5×",
        ),
        (
            "another process's commit → found: asked then, p50 / p99; waited for, p50 / p99",
            "service",
            ("replica",),
            lambda of: f"{of['found_p50_ms']} / {of['found_p99_ms']} ms; {of['waited_p50_ms']} / {of['waited_p99_ms']} ms replica",
            "20 / 200 ms",
            "5 / 50 ms",
        ),
        _row(
            "search with an embedding of the query by the local model, 1 client: p50 / p99",
            lambda of: f"{of['embedded_p50_ms']} / {of['embedded_p99_ms']} ms",
            "25 ms",
            "12 ms",
        ),
        (
            "first paint of the page with a tree of 100,000 leaves: first text; map drawn (empty cache); sent, without data",
            "first_paint",
            ("first_text_ms", "drawn_ms", "cold_ms", "sent_kb"),
            lambda text, drawn, cold, sent: f"{text} ms; {drawn} ms ({cold} ms); {sent} KB",
            "2 s",
            "1 s",
        ),
        _row(
            "memory of the service with that tree; after all of the above; at most on the way",
            lambda of: f"{of['mb']}; {of['later_mb']}; {of['peak_mb']} MB",
            "800 MB",
            "400 MB",
        ),
        (
            "RediSearch, nodes/s written (processor time of the server and memory a node)",
            "redisearch",
            CHOICES,
            _searches(lambda of: f"{of['nodes_per_s']:,} ({of['write_ms']} ms, {of['bytes_per_node'] / 1000:.1f} KB)"),
            "",
            "",
        ),
        (
            "RediSearch, the ten nearest: p50 / p99; recall, recall with a filter",
            "redisearch",
            CHOICES,
            _searches(
                lambda of: f"{of['nearest_ms'][0]} / {of['nearest_ms'][1]} ms; {of['recall']:.3f}, {of['filtered_recall']:.3f}"
            ),
            "recall ≥ 0.98",
            "",
        ),
        (
            "RediSearch, what `hybrid` asks it: p50 / p99 (processor time of the server)",
            "redisearch",
            CHOICES,
            _searches(lambda of: f"{of['hybrid_ms'][0]} / {of['hybrid_ms'][1]} ms ({of['hybrid_server_ms']} ms)"),
            "",
            "",
        ),
    ]
