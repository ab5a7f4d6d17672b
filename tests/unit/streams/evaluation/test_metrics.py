"""Metrics against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from streams.evaluation import metrics


def test_recall_counts_evidence_that_can_never_be_found() -> None:
    assert metrics.recall(["a", "b", "c"], frozenset({"a", "c", "nowhere"}), 2) == pytest.approx(1 / 3)
    assert metrics.recall(["a", "b", "c"], frozenset({"a", "c", "nowhere"}), 3) == pytest.approx(2 / 3)
    assert metrics.recall([], frozenset({"a"}), 10) == 0


def test_ndcg_is_one_when_all_evidence_leads_and_falls_with_rank() -> None:
    assert metrics.ndcg(["a", "b", "x"], frozenset({"a", "b"}), 10) == pytest.approx(1.0)
    second_and_third = (1 / math.log2(3) + 1 / 2) / (1 + 1 / math.log2(3))
    assert metrics.ndcg(["x", "a", "b"], frozenset({"a", "b"}), 10) == pytest.approx(second_and_third)


def test_ndcg_ideal_holds_no_more_than_the_cutoff() -> None:
    relevant = frozenset(map(str, range(20)))
    assert metrics.ndcg([str(number) for number in range(10)], relevant, 10) == pytest.approx(1.0)


def test_score_takes_repeated_keys_once() -> None:
    scored = metrics.score(["a", "a", "a", "a", "b"], frozenset({"b"}))
    assert scored["recall@3"] == 1
    assert scored["ndcg@10"] == pytest.approx(1 / math.log2(3))


def test_mean_is_over_questions() -> None:
    both = [metrics.score(["a"], frozenset({"a"})), metrics.score(["a"], frozenset({"b"}))]
    assert metrics.mean(both) == dict.fromkeys(metrics.NAMES, 0.5)
    assert metrics.mean([]) == {}


def test_percentile_is_a_value_that_occurred() -> None:
    values = [float(number) for number in range(1, 101)]
    assert metrics.percentile(values, 0.5) == 50
    assert metrics.percentile(values, 0.99) == 99
    assert metrics.percentile([7.0], 0.99) == 7
    assert math.isnan(metrics.percentile([], 0.5))


def test_where_one_suffices_the_first_of_them_is_all() -> None:
    ranked = ["x", "b", "a", "y"]
    assert metrics.score(ranked, {"a", "b", "c"})["recall@3"] == pytest.approx(2 / 3)
    any_one = metrics.score(ranked, {"a", "b", "c"}, one_suffices=True)
    assert any_one["recall@3"] == any_one["recall@10"] == 1
    assert any_one["ndcg@10"] == pytest.approx(1 / math.log2(3))
