"""Personalized PageRank over an association graph (MemGAS, section 2.4; Haveliwala 2002)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

DAMPING = 0.85
TOLERANCE = 1e-7
"""Change of all ranks together, which add up to 1, at which the walk has converged."""
ROUNDS_MAX = 100


class Graph:
    """
    An undirected weighted graph, ready to be walked.

    Args:
        size: n, the number of nodes.
        ends: (m, 2) node numbers of each edge; an edge that is given twice counts twice, one from a node to itself once.
        weights: (m,) above 0; None for 1 each.

    Raises:
        ImportError: the extra `memgas` (scipy) is not installed.
    """

    def __init__(
        self, size: int, ends: NDArray[np.integer] | Sequence[tuple[int, int]], weights: NDArray[np.floating] | None = None
    ):
        from scipy import sparse  # noqa: PLC0415  # optional

        pairs = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
        each = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
        other = pairs[:, 0] != pairs[:, 1]
        into = np.concatenate([pairs[:, 1], pairs[other, 0]])
        out = np.concatenate([pairs[:, 0], pairs[other, 1]])
        value = np.concatenate([each, each[other]])
        leaving = np.bincount(out, weights=value, minlength=size)
        self.size = size
        self._alone: NDArray[np.bool_] = leaving == 0
        # Column j holds where a walker at j goes.
        self._steps: Any = sparse.csr_array((value / leaving[out], (into, out)), shape=(size, size))

    def rank(self, seeds: NDArray[np.floating], *, damping: float = DAMPING) -> NDArray[np.float64]:
        """
        How often a walker is at each node who starts again at the seeds with probability `1 - damping` a step.

        A node without edges sends its walker back to the seeds.

        Args:
            seeds: (n,) 0 or more, not all 0: where to start, in proportion.
            damping: in [0, 1).

        Returns:
            (n,), adding up to 1.

        Raises:
            ValueError: no seed, or one below 0.
        """
        start = np.asarray(seeds, dtype=np.float64)
        total = float(start.sum())
        if not total > 0 or float(start.min()) < 0:
            raise ValueError("seeds are 0 or more, and one of them is above 0")
        start = start / total
        ranks = start
        for _ in range(ROUNDS_MAX):
            back = 1.0 - damping + damping * float(ranks[self._alone].sum())
            walked = damping * (self._steps @ ranks) + back * start
            moved = float(np.abs(walked - ranks).sum())
            ranks = walked
            if moved < TOLERANCE:
                break
        return np.asarray(ranks)
