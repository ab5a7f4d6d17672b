from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.mixture import GaussianMixture

from memory.structures import mixture


def two_groups(seed: int, low: int, high: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.concatenate([random.normal(0.15, 0.08, low), random.normal(0.6, 0.1, high)])


@pytest.mark.parametrize(("seed", "low", "high"), [(0, 200, 20), (1, 50, 50), (2, 1000, 12), (3, 30, 5)])
def test_finds_what_a_kept_library_finds(seed: int, low: int, high: int) -> None:
    values = two_groups(seed, low, high)
    ours = mixture.fit(values)
    assert ours is not None
    theirs = GaussianMixture(2, tol=mixture.TOLERANCE, max_iter=1000, reg_covar=mixture.VARIANCE_FLOOR, n_init=5, random_state=0)
    theirs.fit(values[:, None])
    order = np.argsort(theirs.means_[:, 0])
    assert ours.means == pytest.approx(theirs.means_[order, 0], abs=5e-3)
    assert ours.variances == pytest.approx(theirs.covariances_[order, 0, 0], abs=2e-3)
    assert ours.weights == pytest.approx(theirs.weights_[order], abs=2e-2)
    assert np.mean((ours.log_odds(values) > 0) == (theirs.predict(values[:, None]) == order[1])) > 0.99


def test_the_border_is_where_the_odds_are_even() -> None:
    fitted = mixture.fit(two_groups(4, 300, 40))
    assert fitted is not None
    border = fitted.threshold()
    assert fitted.means[0] < border < fitted.means[1]
    assert fitted.log_odds(np.array([border]))[0] == pytest.approx(0.0, abs=1e-9)


def test_what_is_nearer_than_the_near_is_near_and_what_is_farther_than_the_far_is_not() -> None:
    """A wide component is the likelier one far out; neither tail may change sides."""
    wide_low = mixture.Mixture(weights=(0.9, 0.1), means=(0.1, 0.6), variances=(0.05, 0.0004))
    wide_high = mixture.Mixture(weights=(0.9, 0.1), means=(0.1, 0.6), variances=(0.0004, 0.05))
    assert wide_low.log_odds(np.array([0.99]))[0] < 0 < 0.99 - wide_low.threshold()
    assert wide_high.log_odds(np.array([-0.9]))[0] > 0 > -0.9 - wide_high.threshold()


def test_no_border_where_the_high_component_is_nowhere_the_likelier() -> None:
    hidden = mixture.Mixture(weights=(0.999, 0.001), means=(0.1, 0.11), variances=(0.01, 0.01))
    assert hidden.threshold() > 0.3


@pytest.mark.parametrize("values", [[], [0.4], [0.4, 0.4, 0.4], [0.4, 0.4 + 1e-5]])
def test_nothing_to_tell_apart(values: list[float]) -> None:
    assert mixture.fit(np.array(values)) is None


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=60), st.randoms(use_true_random=False))
def test_any_similarities_in_any_order(values: list[float], random: object) -> None:
    fitted = mixture.fit(np.array(values))
    shuffled = list(values)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = mixture.fit(np.array(shuffled))
    assert fitted == again
    if fitted is not None:
        assert fitted.means[0] <= fitted.means[1]
        assert sum(fitted.weights) == pytest.approx(1.0)
        assert not math.isnan(fitted.threshold())
        assert fitted.threshold() > fitted.means[0]
