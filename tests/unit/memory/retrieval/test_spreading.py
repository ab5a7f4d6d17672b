"""Neighbours lend their scores."""

from __future__ import annotations

import math

import numpy as np
import pytest

from memory.retrieval.spreading import pooled


def test_a_turn_gains_from_its_neighbours_on_both_sides() -> None:
    scores = pooled(np.array([0.0, 1.0, 0.0]), ["c"] * 3, [4, 5, 6], kernel=(0.25,))
    assert scores == pytest.approx([0.5, 1.0, 0.5])


def test_distance_weakens_and_ends() -> None:
    scores = pooled(np.array([1.0, 0.0, 0.0, 0.0]), ["c"] * 4, [0, 1, 2, 3], kernel=(0.25, 0.04))
    assert scores == pytest.approx([1.0, 0.5, 0.2, 0.0])


def test_candidates_may_come_in_any_order_and_with_gaps() -> None:
    scores = pooled(np.array([0.0, 1.0, 0.0]), ["c"] * 3, [7, 5, 6], kernel=(0.25, 0.04))
    assert scores == pytest.approx([0.2, 1.0, 0.5])


def test_other_conversations_and_loners_are_no_neighbours() -> None:
    scores = pooled(np.array([1.0, 0.5, 0.5, 0.5]), ["c", "d", None, None], [0, 1, 0, 1], kernel=(1.0,))
    assert scores == pytest.approx([1.0, 0.5, 0.5, 0.5])


def test_one_strong_neighbour_counts_for_more_than_two_middling_ones() -> None:
    one = pooled(np.array([1.0, 0.2, 0.0]), ["c"] * 3, [0, 1, 2], kernel=(0.4,))[1]
    two = pooled(np.array([0.5, 0.2, 0.5]), ["c"] * 3, [0, 1, 2], kernel=(0.4,))[1]
    assert one > two
    assert one == pytest.approx(math.sqrt(0.04 + 0.4))


def test_without_a_kernel_nothing_spreads() -> None:
    assert pooled(np.array([0.3, 0.4]), ["c", "c"], [0, 1], kernel=()) == pytest.approx([0.3, 0.4])
