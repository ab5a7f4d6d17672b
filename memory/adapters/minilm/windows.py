"""Texts longer than the window, and batches that waste little on padding. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

WINDOW_TOKENS = 256
"""Longest input the model was trained on, its two special tokens included; the position table would allow 512."""

_CLS, _SEP, _PAD = 101, 102, 0


def split_windows(ids: Sequence[int]) -> list[list[int]]:
    """
    Cut a text's word pieces (without special tokens) into windows of nearly equal length, special tokens added.

    Equal lengths make the plain mean of the windows' vectors weigh every token alike. A text without word pieces is one window.
    """
    room = WINDOW_TOKENS - 2
    count = max(1, -(-len(ids) // room))
    bounds = [len(ids) * k // count for k in range(count + 1)]
    return [[_CLS, *ids[start:end], _SEP] for start, end in pairwise(bounds)]


def plan_batches(lengths: Sequence[int], *, rows_max: int, tokens_max: int) -> Iterator[list[int]]:
    """
    Group windows by length, longest first, so that a batch's rows need little padding.

    Args:
        lengths: tokens of each window.
        rows_max: bound on a batch's rows.
        tokens_max: bound on rows times the longest row; a single row may exceed it.

    Yields:
        Positions into `lengths`; every position once.
    """
    order = sorted(range(len(lengths)), key=lambda position: -lengths[position])
    start = 0
    while start < len(order):
        rows = max(1, min(rows_max, tokens_max // max(1, lengths[order[start]])))
        yield order[start : start + rows]
        start += rows


def pad_batch(windows: Sequence[Sequence[int]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Ids and mask of a batch, both (rows, longest) int64."""
    longest = max(map(len, windows))
    ids = np.full((len(windows), longest), _PAD, np.int64)
    mask = np.zeros((len(windows), longest), np.int64)
    for row, window in enumerate(windows):
        ids[row, : len(window)] = window
        mask[row, : len(window)] = 1
    return ids, mask
