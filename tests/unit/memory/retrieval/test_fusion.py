"""Scales and sums of scores."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from memory.retrieval.fusion import reciprocal_rank, scaled_dense, scaled_lexical, weighted

COLUMN = arrays.arrays(np.float64, st.integers(0, 40), elements=st.floats(-1, 1, width=32))


def test_cosines_are_scaled_between_the_best_and_the_floor() -> None:
    scaled = scaled_dense(np.array([0.9, 0.5, 0.7, 0.1]), floor_rank=3)
    assert scaled == pytest.approx([1.0, 0.0, 0.5, 0.0])


def test_those_that_are_not_ranked_move_neither_end_of_the_scale() -> None:
    scaled = scaled_dense(np.array([0.9, 0.5, 1.0, 0.0, 0.7]), floor_rank=2, ranked=2)
    assert scaled == pytest.approx([1.0, 0.0, 1.0, 0.0, 0.5])


def test_a_scale_without_extent_keeps_the_best() -> None:
    assert scaled_dense(np.array([0.4]), floor_rank=100).tolist() == [1.0]
    assert scaled_dense(np.array([0.4, 0.4]), floor_rank=100).tolist() == [1.0, 1.0]
    assert scaled_dense(np.array([0.4]), floor_rank=100, ranked=0).tolist() == [0.0]


def test_bm25_is_scaled_by_the_best_and_zero_stays_zero() -> None:
    assert scaled_lexical(np.array([4.0, 0.0, 2.0])).tolist() == [1.0, 0.0, 0.5]
    assert scaled_lexical(np.zeros(2)).tolist() == [0.0, 0.0]
    assert scaled_lexical(np.zeros(0)).tolist() == []


@given(COLUMN, st.integers(2, 50))
def test_scaling_keeps_the_order_and_the_bounds(column: np.ndarray[tuple[int], np.dtype[np.float64]], floor_rank: int) -> None:
    scaled = scaled_dense(column, floor_rank=floor_rank)
    assert ((scaled >= 0) & (scaled <= 1)).all()
    assert (np.diff(scaled[np.argsort(column, kind="stable")]) >= 0).all()


def test_weights_share_the_sum() -> None:
    assert weighted(np.array([1.0, 0.0]), np.array([0.0, 1.0]), dense_weight=0.4) == pytest.approx([0.4, 0.6])


def test_reciprocal_rank_adds_what_each_list_says() -> None:
    fused = reciprocal_rank(np.array([3.0, 2.0, 1.0]), np.array([2.0, 3.0, 1.0]))
    assert fused == pytest.approx([1 / 61 + 1 / 62, 1 / 62 + 1 / 61, 2 / 63])
