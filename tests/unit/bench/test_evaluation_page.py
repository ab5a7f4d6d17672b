"""Rows of several measurements become one table by a command, and each says where it is from."""

from __future__ import annotations

from typing import Any

from tests.bench.evaluation_page import measured_lines, merge

OLD = {"commit": "aaa", "machine": "one", "on": "2026-01-01"}
NEW = {"commit": "bbb", "machine": "two", "on": "2026-02-02"}


def result(*strategies: str, recall: float, grown: float | None = 9.0) -> dict[str, Any]:
    level = {"recall@3": recall, "recall@5": recall, "recall@10": recall, "ndcg@10": recall}
    return {
        "conditions": "a digest",
        "strategies": {each: {"turn": level, "session": level, "unit": level, "by_category": {}} for each in strategies},
        "latency_ms": {"p50": recall, "strategies": {each: {"p50": recall} for each in strategies}},
        "ingestion": {"items_per_s_committed": grown},
        "tree": {"nodes": grown},
        "questions": 3,
    }


def test_a_row_is_replaced_and_the_others_stay() -> None:
    sets: dict[str, Any] = {}
    merge(sets, {"locomo": {"memtree": result("hybrid", "bm25", recall=0.1), "hat": result("hybrid", recall=0.2)}}, OLD)
    merge(sets, {"locomo": {"memtree": result("bm25", recall=0.7, grown=2.0)}, "nq_long": {"hat": result("bm25", recall=1)}}, NEW)
    memtree = sets["locomo"]["memtree"]
    assert {each: found["turn"]["recall@3"] for each, found in memtree["strategies"].items()} == {"hybrid": 0.1, "bm25": 0.7}
    assert memtree["latency_ms"]["strategies"] == {"hybrid": {"p50": 0.1}, "bm25": {"p50": 0.7}}
    assert memtree["ingestion"] == {"items_per_s_committed": 9.0}, "of the run that measured all of it"
    assert memtree["tree"] == {"nodes": 9.0}
    assert memtree["measured"] == {"hybrid": OLD, "bm25": NEW}
    assert sets["locomo"]["hat"]["measured"] == {"hybrid": OLD}
    assert "conditions" not in memtree
    said = "\n".join(measured_lines(sets))
    assert "Commit bbb, 2026-02-02, two: LoCoMo: memtree (bm25). Natural Questions, whole pages." in said
    assert "Commit aaa, 2026-01-01, one: LoCoMo: memtree (hybrid); hat." in said


def test_what_a_tree_cost_is_of_the_latest_run_that_measured_all_of_it_and_put_it_in() -> None:
    sets: dict[str, Any] = {}
    for grown in (9.0, None, 8.0):
        merge(sets, {"locomo": {"hat": result("hybrid", recall=0.1, grown=grown)}}, NEW)
        assert sets["locomo"]["hat"]["ingestion"] == {"items_per_s_committed": grown or 9.0}


def test_summaries_of_conversations_are_replaced_whole() -> None:
    sets: dict[str, Any] = {"msc": {"hat": {"f1": 1.0}}}
    merge(sets, {"msc": {"hat": {"f1": 2.0, "conditions": "x"}}}, NEW)
    assert sets == {"msc": {"hat": {"f1": 2.0, "measured": NEW}}}
    assert "two: summaries." in "\n".join(measured_lines(sets))
