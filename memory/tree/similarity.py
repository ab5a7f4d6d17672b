"""Vectors and how alike they are: rounding, calibrated cosine, the choice among children, running means."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.model import NodeId, Vector

TIE = 1e-5
"""Similarities closer than this count as equal in a replay: float sums differ in their last bits between machines and between
matrix-vector and matrix-matrix products (1e-7 was seen; the figure leaves room for two orders of magnitude)."""

NORM_MIN = 1e-6

FEW = 64
"""Children up to which a list is faster searched than an array: an array's four calls cost more than the comparisons."""


def quantize(vector: NDArray[np.floating]) -> Vector:
    """
    Unit length, then the nearest float16, as float32.

    What is stored (float16) and what is computed with (float32) are then the same numbers, so that a replay from the store sees
    exactly what the planner saw. The rounding changes a cosine by less than 5e-5.

    Args:
        vector: (d,) any float type, finite, not zero.

    Returns:
        (d,) float32.

    Raises:
        ValueError: a component is not finite, or the length is (nearly) zero.
    """
    exact = np.asarray(vector, dtype=np.float32)
    length = math.sqrt(float(exact @ exact))
    if not math.isfinite(length) or length < NORM_MIN:
        raise ValueError("a vector must be finite and not zero")
    return (exact / np.float32(length)).astype(np.float16).astype(np.float32)


def calibrate(cosine: float, unrelated: float) -> float:
    """
    Calibrated cosine: 0 for texts as unlike as unrelated ones, 1 for equal ones.

    Args:
        cosine: in [-1, 1].
        unrelated: `EmbeddingModel.unrelated_cosine`, in [-1, 1).
    """
    return (cosine - unrelated) / (1.0 - unrelated)


def decalibrate(similarity: float, unrelated: float) -> float:
    """The cosine whose calibrated value is `similarity`: one threshold is converted instead of thousands of cosines."""
    return similarity * (1.0 - unrelated) + unrelated


def best(cosines: NDArray[np.float32], ids: Sequence[NodeId]) -> tuple[int, float]:
    """
    Index and cosine of the most similar child; exact ties go to the least node id.

    Args:
        cosines: (k,) float32, k ≥ 1.
        ids: k node ids.
    """
    if len(ids) <= FEW:
        values: list[float] = cosines.tolist()
        most = max(values)
        index = values.index(most)
        if values.count(most) > 1:
            index = min((tie for tie, value in enumerate(values) if value == most), key=lambda tie: ids[tie])
        return index, most
    index = int(cosines.argmax())
    top = cosines[index]
    equal = cosines == top
    if np.count_nonzero(equal) > 1:
        index = min((int(tie) for tie in np.flatnonzero(equal)), key=lambda tie: ids[tie])
    return index, float(top)


def merge_means(parts: Sequence[tuple[Vector, float, int]]) -> tuple[Vector, float]:
    """
    Direction and length of the mean of all leaves behind some means.

    Args:
        parts: (unit direction (d,) float32, length of that mean in (0, 1], number of leaves behind it ≥ 1), at least one.

    Returns:
        The quantized direction of the joint mean and its length (`Node.cohesion`). When the leaves cancel out, the direction of
        the first part and the smallest length.
    """
    total = np.zeros_like(parts[0][0], dtype=np.float32)
    count = 0
    for direction, length, leaves in parts:
        total += direction * np.float32(length * leaves)
        count += leaves
    total /= np.float32(count)
    length = math.sqrt(float(total @ total))
    if length < NORM_MIN:
        return parts[0][0], NORM_MIN
    return quantize(total), min(length, 1.0)
