"""Two score columns into one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Scores = NDArray[np.float64]
"""(n,) one score a candidate."""

RANK_CONSTANT = 60.0
"""k of reciprocal rank fusion (Cormack, Clarke and Büttcher 2009)."""


def scaled_dense(dense: Scores, *, floor_rank: int, ranked: int | None = None) -> Scores:
    """
    Cosines to [0, 1]: the best becomes 1, the `floor_rank`-th best and all below it 0.

    With a floor at a rank, not at the least of all, a score says how far a node stands out of the candidates however large the
    tree is.

    Args:
        dense: (n,) cosines.
        floor_rank: 2 or more; the least score is the floor when there are fewer.
        ranked: only the first so many take part in finding best and floor; None for all.
    """
    own = dense[:ranked]
    if not len(own):
        return np.zeros(len(dense))
    best = own.max()
    rank = min(floor_rank, len(own))
    floor = np.partition(own, len(own) - rank)[len(own) - rank]
    if not best > floor:
        return np.where(dense >= best, 1.0, 0.0)
    scaled: Scores = np.clip((dense - floor) / (best - floor), 0.0, 1.0)
    return scaled


def scaled_lexical(lexical: Scores) -> Scores:
    """BM25 scores to [0, 1]: 0 stays 0 and the best becomes 1; all 0 stays so."""
    best = lexical.max(initial=0.0)
    scaled: Scores = lexical / best if best > 0.0 else np.zeros(len(lexical))
    return scaled


def weighted(dense: Scores, lexical: Scores, *, dense_weight: float) -> Scores:
    """Score fusion: `dense_weight` of the one, the rest to 1 of the other; both in [0, 1], and so is the result."""
    fused: Scores = dense_weight * dense + (1.0 - dense_weight) * lexical
    return fused


def reciprocal_rank(*columns: Scores, constant: float = RANK_CONSTANT) -> Scores:
    """
    Reciprocal rank fusion: the sum of 1 / (constant + rank), ranks from 1 and in the order given among equals.

    Kept for comparison; score fusion was better on every data set (decision 0003).
    """
    total = np.zeros(len(columns[0]))
    for column in columns:
        ranks = np.empty(len(column))
        ranks[np.argsort(-column, kind="stable")] = np.arange(1, len(column) + 1)
        total += 1.0 / (constant + ranks)
    return total
