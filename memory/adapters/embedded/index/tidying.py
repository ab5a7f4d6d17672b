"""Which segments of a tree are merged, and into what: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import numpy as np

from memory.adapters.embedded.index.segment import Segment, concatenate, grouped, survivors

SEGMENT_ROWS_MAX = 16_384
"""Segments of this size are merged no more, only compacted."""
SEGMENT_FAN = 8
"""Neighbouring segments of about one size that are merged into one, or fewer when those make one of SEGMENT_ROWS_MAX."""


def due(sizes: Sequence[int]) -> slice | None:
    """
    SEGMENT_FAN or more neighbours of one size class or below, the smallest class first; None when there are none.

    No more of them than make a segment of SEGMENT_ROWS_MAX: a merge holds up whoever works beside it.
    """
    for level in range(tier(SEGMENT_ROWS_MAX - 1) + 1):
        start = 0
        for place, size in enumerate([*sizes, SEGMENT_ROWS_MAX]):
            if size >= SEGMENT_ROWS_MAX or tier(size) > level:
                if place - start >= SEGMENT_FAN:
                    reached = (at for at, rows in enumerate(accumulate(sizes[start:place]), start + 1) if rows >= SEGMENT_ROWS_MAX)
                    return slice(start, next(reached, place))
                start = place + 1
    return None


def tier(size: int) -> int:
    """Size class: SEGMENT_FAN segments of one class make one of the next."""
    return 0 if size < SEGMENT_FAN else (size.bit_length() - 1) // (SEGMENT_FAN.bit_length() - 1)


def compacted(segments: list[Segment]) -> Iterator[Segment]:
    """
    The rows that still count, in segments that are merged no more; removals stay, for readers that stand further back.

    Args:
        segments: oldest first; taken out of the list as they are read, so that they need not all be in memory beside those made.
    """
    masks, removed = survivors(segments)
    for group in grouped([int(np.count_nonzero(mask)) for mask in masks], SEGMENT_ROWS_MAX):
        parts = segments[: group.stop - group.start]
        del segments[: len(parts)]
        yield concatenate(parts, masks[group], removed=[] if segments else list(removed.items()))
