"""Sizes that were not measured again keep their rows, and what they say of their commit."""

from __future__ import annotations

from typing import Any

from tests.bench.page_hmem import BEGIN, END, REAL, written

EMPTY = f"before\n{BEGIN}\n{END}\nafter\n"


def size(episodes: int, compared: int) -> dict[str, Any]:
    nodes = {"domains": 1, "categories": 2, "traces": 3}
    times = {"flat_ms": 1.0, "descent_ms": 2.0}
    return {
        "episodes": episodes,
        "dimensions": 8,
        **nodes,
        "compared": compared,
        "compared_max": 9,
        "share": 0.1,
        "recall": 0.9,
        **times,
    }


def test_rows_are_replaced_one_by_one_and_stand_by_size() -> None:
    real = {**size(500, 7), "evidence_flat": 0.5, "evidence_descent": 0.4, "evidence_ratio": 0.8}
    first = written(EMPTY, {"made_up": [size(10_000, 3), size(100_000, 4)], "commit": "aaa", "on": "d1"})
    second = written(first, {"made_up": [size(10_000, 5)], "real": real, "commit": "bbb", "on": "d2"})
    rows = [line.split(" | ") for line in second.splitlines() if line[:3] in {"| 1", "| 5"}]
    assert [(row[0], row[2], row[-1]) for row in rows] == [
        ("| 10,000, 8 (made up)", "5 (9)", "bbb, d2 |"),
        ("| 100,000, 8 (made up)", "4 (9)", "aaa, d1 |"),
        (f"| 500, 8 ({REAL})", "7 (9)", "bbb, d2 |"),
    ]
    assert "the descent 40.0%: 80.0% of it" in second
    third = written(second, {"made_up": [], "commit": "ccc", "on": "d3"})
    assert third == second, "what was not measured again stays, word for word"
    assert (second.startswith("before\n"), second.endswith("after\n")) == (True, True)
