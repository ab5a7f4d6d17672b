from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as shannon

from memory.retrieval import entropy

similarities = st.lists(st.floats(-1, 1), min_size=1, max_size=50).map(np.array)


@given(similarities, st.sampled_from([0.01, 0.1, 0.2, 1.0]))
def test_is_the_entropy_of_the_softmax(values: np.ndarray, degree: float) -> None:
    odds = np.exp((values - values.max()) / degree)
    assert entropy.entropy(values, degree) == pytest.approx(float(shannon(odds / odds.sum())), abs=1e-9)


def test_the_granularity_that_is_surest_weighs_most() -> None:
    given_weights = entropy.weights(
        {"turn": np.array([0.9, 0.1, 0.1, 0.1]), "session": np.array([0.4, 0.4, 0.4, 0.4]), "keyword": np.array([])}, degree=0.2
    )
    assert given_weights["turn"] > 2 * given_weights["session"]
    assert given_weights["keyword"] == 0.0
    assert sum(given_weights.values()) == pytest.approx(1.0)


def test_equal_similarities_leave_all_open() -> None:
    assert entropy.entropy(np.full(8, 0.3), 0.2) == pytest.approx(math.log(8))


def test_many_units_weigh_no_less_for_being_many() -> None:
    few, many = np.array([0.5, 0.1, 0.1, 0.1]), np.array([0.5, *[0.1] * 79])
    shares = entropy.weights({"session": np.full(5, 0.3), "turn": np.full(100, 0.3)}, degree=0.2)
    assert shares["session"] == pytest.approx(shares["turn"])
    shares = entropy.weights({"few": few, "many": many}, degree=0.02)
    assert shares["many"] > 0.3


def test_one_unit_alone_is_open_and_a_certain_one_does_not_take_everything() -> None:
    shares = entropy.weights({"summary": np.array([0.2]), "turn": np.array([0.9, 0.1])}, degree=0.2)
    assert 0.0 < shares["summary"] < shares["turn"] < 1.0
    shares = entropy.weights({"summary": np.array([0.2]), "turn": np.array([0.9, -0.9])}, degree=0.01)
    assert 0.0 < shares["summary"] < 0.01


def test_no_units_no_weights() -> None:
    assert entropy.weights({"turn": np.array([])}, degree=0.2) == {"turn": 0.0}
