"""Two-component Gaussian mixture in one dimension: which similarities are high (MemGAS, section 2.2)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1e-6
"""Gain of the mean log-likelihood below which the fit stops."""
ROUNDS_MAX = 200
VARIANCE_FLOOR = 1e-6
"""Added to each variance, so that a component of equal values keeps a width; a cosine of 1e-3 either way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A fitted mixture; the component at index 1 has the higher mean."""

    weights: tuple[float, float]
    means: tuple[float, float]
    variances: tuple[float, float]

    def log_odds(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Logarithm of how much likelier the high component is than the low one.

        Args:
            values: (n,) similarities.

        Returns:
            (n,)
        """
        joint = self.log_joint(values)
        return np.asarray(joint[1] - joint[0])

    def threshold(self) -> float:
        """
        The similarity from which on one belongs to the high component, in (low mean, ∞].

        A wide component is the likelier one far out on either side, which is not what "high similarity" means; so the border is
        looked for upwards from the low mean, and all beyond it is high. Infinite where the high component is nowhere the likelier.
        """
        # log-odds(x) = a·x² + b·x + c
        (low_mean, high_mean), (low, high) = self.means, self.variances
        a = 0.5 / low - 0.5 / high
        b = high_mean / high - low_mean / low
        c = (
            0.5 * low_mean**2 / low
            - 0.5 * high_mean**2 / high
            + 0.5 * math.log(low / high)
            + math.log(self.weights[1] / self.weights[0])
        )
        if a * low_mean**2 + b * low_mean + c >= 0.0:
            return math.nextafter(low_mean, math.inf)
        roots = [-c / b] if abs(a) < 1e-12 else _roots(a, b, c)
        return min((root for root in roots if root > low_mean), default=math.inf)

    def log_joint(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """
        Logarithm of the density of each value under each component, weighted.

        Args:
            values: (n,)

        Returns:
            (2, n)
        """
        means, variances = np.array(self.means)[:, None], np.array(self.variances)[:, None]
        log_density = -0.5 * (np.log(2 * np.pi * variances) + (values[None, :] - means) ** 2 / variances)
        return np.asarray(np.log(np.array(self.weights))[:, None] + log_density)


def fit(values: NDArray[np.floating]) -> Mixture | None:
    """
    The mixture that expectation maximisation finds from the best split of the sorted values in two.

    Deterministic, and the same for any order of the values up to rounding.

    Args:
        values: (n,) finite similarities.

    Returns:
        None where there are no two groups to tell apart: fewer than two values, or all (nearly) equal.
    """
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    if len(ordered) < 2 or ordered[-1] - ordered[0] < math.sqrt(VARIANCE_FLOOR):
        return None
    split = _best_split(ordered)
    mixture = _maximised(ordered, np.where(np.arange(len(ordered)) < split, 0.0, 1.0))
    before = -math.inf
    for _ in range(ROUNDS_MAX):
        joint = mixture.log_joint(ordered)
        total = np.logaddexp(joint[0], joint[1])
        likelihood = float(total.mean())
        if likelihood - before < TOLERANCE:
            break
        before = likelihood
        mixture = _maximised(ordered, np.exp(joint[1] - total))
    if mixture.means[0] > mixture.means[1]:
        return Mixture(weights=mixture.weights[::-1], means=mixture.means[::-1], variances=mixture.variances[::-1])
    return mixture


def _best_split(ordered: NDArray[np.float64]) -> int:
    """How many of the sorted values the lower of two groups has, for the least squares within groups (2-means, exactly)."""
    count = len(ordered)
    sums = np.cumsum(ordered)[:-1]
    sizes = np.arange(1, count)
    between = sums**2 / sizes + (ordered.sum() - sums) ** 2 / (count - sizes)
    return int(np.argmax(between)) + 1


def _maximised(values: NDArray[np.float64], high: NDArray[np.float64]) -> Mixture:
    """Weights, means and variances given how much of each value is the high component's."""
    shares = np.stack([1.0 - high, high])
    sizes = shares.sum(axis=1) + 10 * np.finfo(np.float64).eps
    means = shares @ values / sizes
    variances = np.einsum("cn,cn->c", shares, (values[None, :] - means[:, None]) ** 2) / sizes + VARIANCE_FLOOR
    weights = sizes / sizes.sum()
    return Mixture(
        weights=(float(weights[0]), float(weights[1])),
        means=(float(means[0]), float(means[1])),
        variances=(float(variances[0]), float(variances[1])),
    )


def _roots(a: float, b: float, c: float) -> list[float]:
    inside = b * b - 4 * a * c
    if inside < 0:
        return []
    # The form that does not subtract nearly equal numbers.
    q = -0.5 * (b + math.copysign(math.sqrt(inside), b))
    return [q / a, c / q] if q else [0.0]
