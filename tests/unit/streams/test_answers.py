"""Answers as JSON."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.model import NodeId, TreeId
from memory.results import FailingNode, TreeReport
from streams.answers import Prices, stats_json

AT = datetime(2026, 1, 1, tzinfo=UTC)


def report() -> TreeReport:
    return TreeReport(
        tree=TreeId("t"),
        structure="memtree",
        embedder="fake",
        dimension=8,
        parameters={"base": 0.4},
        seq=3,
        events=3,
        nodes=4,
        leaves=3,
        summaries=1,
        depth_max=2,
        depth_median=2,
        branching=1.5,
        pending=1,
        contributions=2,
        oldest_pending_at=AT,
        failing=(FailingNode(id=NodeId("n"), failures=5, reason="refused", at=AT),),
        depths={1: 1, 2: 3},
        llm_calls=4,
        llm_calls_per_item=1.3,
        tokens_in=2_000_000,
        tokens_out=500_000,
        rewrites=4,
        rewrites_per_item=1.3,
        bytes=1000,
    )


def test_what_a_tree_has_cost_is_known_where_prices_are() -> None:
    assert stats_json(report())["cost"] is None
    assert stats_json(report(), prices=Prices(tokens_in=0.15, tokens_out=0.6))["cost"] == pytest.approx(0.6)


def test_what_fails_is_told() -> None:
    assert stats_json(report())["failing"] == [{"id": "n", "failures": 5, "reason": "refused", "at": AT}]
