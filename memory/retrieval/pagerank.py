"""Personalized PageRank over an association graph (MemGAS, section 2.4; Haveliwala 2002)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Sequence

DAMPING = 0.85
TOLERANCE = 1e-7
"""Change of all ranks together, which add up to 1, at which the walk has converged."""
ROUNDS_MAX = 100
_INT32_MAX = 2**31 - 1

LATE_MIN, LATE_SHARE = 4_096, 8
"""Edges that came late are taken into the whole when they are more than so many, and more than this share of it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Some of a graph's edges, in both directions."""

    size: int
    weights: Any
    """(size, size) sparse."""

    @classmethod
    def of(cls, size: int, pairs: NDArray[np.integer], each: NDArray[np.floating]) -> _Part:
        """The edges as a matrix."""
        from scipy import sparse  # noqa: PLC0415  # optional

        other = pairs[:, 0] != pairs[:, 1]
        # A step of a walk is bound by how much it reads: numbers of 64 bits made it take half as long again.
        narrow = pairs.astype(np.int32) if 2 * len(pairs) < _INT32_MAX else pairs
        into = np.concatenate([narrow[:, 1], narrow[other, 0]])
        out = np.concatenate([narrow[:, 0], narrow[other, 1]])
        value = np.concatenate([each, each[other]])
        return cls(size, sparse.csr_array((value, (into, out)), shape=(size, size)))


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
        pairs = np.asarray(ends, dtype=np.int64).reshape(-1, 2)
        each = np.ones(len(pairs)) if weights is None else np.asarray(weights, dtype=np.float64)
        self.size = size
        self._ends, self._weights = pairs, each
        self._base = self._latest = _Part.of(size, pairs, each)
        self._taken = len(pairs)
        """Edges that `_base` holds; the later ones are in `_latest`."""
        self._strength = _strength(size, pairs, each)

    @property
    def edges(self) -> int:
        """How many there are."""
        return len(self._ends)

    def grown(self, size: int, ends: NDArray[np.integer], weights: NDArray[np.floating] | None = None) -> Graph:
        """
        The graph with more nodes and edges, in a time that goes by these, most of the times.

        Args:
            size: its nodes, no fewer than now.
            ends: (m, 2) of the edges that come to it.
            weights: (m,) of these; None for 1 each.
        """
        more = np.ones(len(ends)) if weights is None else np.asarray(weights, dtype=np.float64)
        grown = object.__new__(Graph)
        grown.size = size
        grown._ends = np.concatenate([self._ends, np.asarray(ends, np.int64).reshape(-1, 2)])
        grown._weights = np.concatenate([self._weights, more])
        late = len(grown._ends) - self._taken
        if late > max(LATE_MIN, self._taken // LATE_SHARE):
            return Graph(size, grown._ends, grown._weights)
        grown._base, grown._taken = self._base, self._taken
        grown._latest = _Part.of(size, grown._ends[self._taken :], grown._weights[self._taken :])
        grown._strength = np.pad(self._strength, (0, size - self.size)) + _strength(size, np.asarray(ends).reshape(-1, 2), more)
        return grown

    def _walked(self, leaving: NDArray[np.float64]) -> NDArray[np.float64]:
        """(n,) where walkers are one step on, given how many leave each node by each unit of weight."""
        if self._base is self._latest:
            return np.asarray(self._base.weights @ leaving)
        arrived = np.zeros(self.size)
        for part in (self._base, self._latest):
            arrived[: part.size] += part.weights @ leaving[: part.size]
        return arrived

    def rank(self, seeds: NDArray[np.floating], *, damping: float = DAMPING, tolerance: float = TOLERANCE) -> NDArray[np.float64]:
        """
        How often a walker is at each node who starts again at the seeds with probability `1 - damping` a step.

        The fixed point of r = (1 - damping) · s + damping · W D⁻¹ r, where s are the seeds in shares, W the weights of edges and
        D their sums by node (Haveliwala 2002, topic-sensitive PageRank). A node without edges sends its walker back to the seeds.

        Args:
            seeds: (n,) 0 or more, not all 0: where to start, in proportion.
            damping: in [0, 1).
            tolerance: change of all ranks together at which the walk has converged; what it stops short of is at most
                `damping / (1 - damping)` times as much.

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
        alone = np.flatnonzero(self._strength == 0)
        share = np.divide(damping, self._strength, out=np.zeros_like(start), where=self._strength > 0)
        for _ in range(ROUNDS_MAX):
            back = 1.0 - damping + damping * float(ranks[alone].sum())
            walked = self._walked(share * ranks) + back * start
            moved = float(np.abs(walked - ranks).sum())
            ranks = walked
            if moved < tolerance:
                break
        return np.asarray(ranks)


def _strength(size: int, pairs: NDArray[np.integer], each: NDArray[np.floating]) -> NDArray[np.float64]:
    """(size,) the weights of each node's edges together, those to itself once."""
    other = pairs[:, 0] != pairs[:, 1]
    both = np.concatenate([pairs[:, 0], pairs[other, 1]])
    counted = np.bincount(both, weights=np.concatenate([each, each[other]]), minlength=size)
    return np.asarray(counted, np.float64)
