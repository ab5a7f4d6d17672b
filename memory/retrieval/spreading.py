"""A turn is understood with the turns around it: an answer follows its question, "that" stands for what was said before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from memory.retrieval.fusion import Scores

_SEQUENCE_SPAN = 1 << 40
"""More places than a sequence has, by far."""


def pooled(scores: Scores, sequences: Sequence[str | None], positions: ArrayLike, *, kernel: Sequence[float]) -> Scores:
    """
    Every score with its neighbours': the root of the kernel-weighted sum of squares.

    Squares let one strong neighbour count for more than several middling ones.

    Args:
        scores: (n,) 0 or more.
        sequences: what each candidate has neighbours in; None when it has none.
        positions: (n,) integers, place in that sequence; neighbours differ by 1.
        kernel: weights of the neighbours at distance 1, 2, …, on both sides; the candidate's own is 1.

    Returns:
        (n,) at least `scores`. Neighbours that are not among the candidates count as 0.
    """
    squares = scores**2
    total = squares.copy()
    codes: dict[str | None, int] = {None: -1}
    numbers = np.array([codes.setdefault(sequence, len(codes)) for sequence in sequences], np.int64)
    # Each place becomes one number, with gaps between sequences that no kernel reaches across.
    keys = np.where(numbers < 0, np.int64(-1), numbers * _SEQUENCE_SPAN + np.asarray(positions, np.int64))
    placed = np.argsort(keys)[np.count_nonzero(numbers < 0) :]
    ordered = keys[placed]
    for distance, weight in enumerate(kernel, start=1):
        later = np.searchsorted(ordered, ordered + distance)
        pairs = np.flatnonzero(ordered[np.minimum(later, len(ordered) - 1)] == ordered + distance)
        before, after = placed[pairs], placed[later[pairs]]
        # A candidate has one neighbour at most on either side, so that adding through an index adds each once.
        total[before] += weight * squares[after]
        total[after] += weight * squares[before]
    root: Scores = np.sqrt(total)
    return root
