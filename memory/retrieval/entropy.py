"""Which granularity a query is sure about: weights by inverse entropy (MemGAS, section 2.3, equations 3 and 4)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

G = TypeVar("G")

SHARE_MIN = 1e-3
"""Of the largest entropy. A granularity that is certain, one unit far nearer than all others, would get all the weight."""


def entropy(similarities: NDArray[np.floating], degree: float) -> float:
    """
    Shannon entropy of the softmax of similarities (equation 3): H = -Σ p_i log p_i, where p_i = exp(s_i / λ) / Σ_j exp(s_j / λ).

    Args:
        similarities: (n,) of a query with the units of one granularity, n of 1 or more.
        degree: λ, above 0: the smaller, the more the best ones count.

    Returns:
        Nats, from 0 to log n.
    """
    scaled = np.asarray(similarities, dtype=np.float64) / degree
    exponentials = np.exp(scaled - scaled.max())
    total = exponentials.sum()
    # H = log Z - E[x] for p = exp(x) / Z: no logarithm of a probability that has become 0.
    mean = float((exponentials * (scaled - scaled.max())).sum() / total)
    return max(0.0, float(np.log(total)) - mean)


def weights(similarities: Mapping[G, NDArray[np.floating]], degree: float) -> dict[G, float]:
    """
    Of each granularity, its share of the inverse entropies (equation 4): w_g = (1 / H_g) / Σ_h (1 / H_h).

    Entropies are taken in units of the largest that so many units can have, log n. The paper has as many units of each granularity;
    where there are twenty turns a session, the entropy of the many is the larger for that alone, and weights would follow counts.

    Args:
        similarities: of a query with the units of each granularity; one without units gets no weight.
        degree: λ of equation 3.

    Returns:
        Shares that add up to 1; all 0 where no granularity has units.
    """
    inverse: dict[G, float] = {}
    for granularity, values in similarities.items():
        if len(values):
            # One unit alone is as open as a question can leave it.
            share = entropy(values, degree) / math.log(len(values)) if len(values) > 1 else 1.0
            inverse[granularity] = 1.0 / max(share, SHARE_MIN)
    total = sum(inverse.values())
    return {granularity: inverse.get(granularity, 0.0) / total if total else 0.0 for granularity in similarities}
