"""A turn is understood with the turns around it: an answer follows its question, "that" stands for what was said before."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from memory.retrieval.fusion import Scores


def pooled(scores: Scores, sequences: Sequence[str | None], positions: Sequence[int], *, kernel: Sequence[float]) -> Scores:
    """
    Every score with its neighbours': the root of the kernel-weighted sum of squares.

    Squares let one strong neighbour count for more than several middling ones.

    Args:
        scores: (n,) 0 or more.
        sequences: what each candidate has neighbours in; None when it has none.
        positions: place in that sequence; neighbours differ by 1.
        kernel: weights of the neighbours at distance 1, 2, …, on both sides; the candidate's own is 1.

    Returns:
        (n,) at least `scores`. Neighbours that are not among the candidates count as 0.
    """
    squares = scores**2
    total = squares.copy()
    places = {
        (sequence, position): index
        for index, (sequence, position) in enumerate(zip(sequences, positions, strict=True))
        if sequence is not None
    }
    for distance, weight in enumerate(kernel, start=1):
        pairs = [
            (index, places[sequence, position + distance])
            for (sequence, position), index in places.items()
            if (sequence, position + distance) in places
        ]
        if pairs and weight:
            earlier, later = np.array(pairs, np.intp).T
            # Each candidate stands at most once on either side, so that adding through an index adds each once.
            total[earlier] += weight * squares[later]
            total[later] += weight * squares[earlier]
    root: Scores = np.sqrt(total)
    return root
