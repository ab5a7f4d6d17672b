"""Vectors twice: float16, from which scores are computed, and int8, a quarter of float32, which a full scan reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numkong
import numpy as np
from numpy.typing import NDArray

LEVELS = 127
"""Largest magnitude of an int8 component."""


@dataclass(frozen=True, slots=True)
class Vectors:
    """Rows of one segment."""

    exact: NDArray[np.float16]
    """(n, d). The port promises components that float16 can represent, so nothing is lost."""
    coarse: NDArray[np.int8]
    """(n, d), `exact` divided by the row's scale and rounded."""
    scales: NDArray[np.float32]
    """(n,)"""

    def select(self, rows: NDArray[np.intp]) -> Vectors:
        """Copy of the given rows."""
        return Vectors(self.exact[rows], self.coarse[rows], self.scales[rows])


def of_rows(rows: NDArray[np.float32]) -> Vectors:
    """Quantise (n, d) float32."""
    scales = np.maximum(np.abs(rows).max(axis=1, initial=0.0), np.float32(1e-12)) / np.float32(LEVELS)
    coarse = np.rint(rows / scales[:, None]).astype(np.int8)
    return Vectors(rows.astype(np.float16), coarse, scales.astype(np.float32))


def concatenate(parts: Sequence[Vectors]) -> Vectors:
    """All rows of the parts, in order; those with rows have one dimension."""
    parts = [part for part in parts if len(part.scales)] or parts[:1]
    return Vectors(
        np.concatenate([part.exact for part in parts]),
        np.concatenate([part.coarse for part in parts]),
        np.concatenate([part.scales for part in parts]),
    )


@dataclass(frozen=True, slots=True)
class CoarseQuery:
    """A query for the int8 scan."""

    row: NDArray[np.int8]
    """(1, d)"""
    scale: np.float32


def coarse_query(vector: NDArray[np.float32]) -> CoarseQuery:
    """Quantise a query."""
    scale = np.float32(max(float(np.abs(vector).max(initial=0.0)), 1e-12) / LEVELS)
    quantised: NDArray[np.int8] = np.rint(vector / scale).astype(np.int8)
    return CoarseQuery(quantised[None, :], scale)


def coarse_scores(vectors: Vectors, query: CoarseQuery, rows: NDArray[np.intp] | slice) -> NDArray[np.float32]:
    """(len(rows),) float32 inner products, with the error of eight bits."""
    coarse, scales = vectors.coarse[rows], vectors.scales[rows]
    if not len(scales):
        return np.zeros(0, np.float32)
    products = np.asarray(numkong.cdist(query.row, coarse, "dot", out_dtype="float32"))[0]
    scaled: NDArray[np.float32] = np.multiply(products, scales * query.scale, dtype=np.float32)
    return scaled


def coarse_scores_of_many(
    vectors: Vectors, queries: Sequence[CoarseQuery], rows: slice, out: NDArray[np.float32]
) -> None:  # fmt: skip
    """
    Put the same for several queries into `out` (len(queries), rows).

    The rows are read from memory once, which is what most of a scan's time goes into: eight queries take a third of eight scans.
    """
    coarse, scales = vectors.coarse[rows], vectors.scales[rows]
    packed = numkong.dots_pack(np.concatenate([query.row for query in queries]))
    # A row a query, as float32, takes half the time to be scaled; up to 1,040 dimensions it holds every product exactly.
    products = np.asarray(numkong.dots_packed(coarse, packed)).T.astype(np.float32)
    for number, query in enumerate(queries):
        np.multiply(products[number], scales * query.scale, out=out[number])


def coarse_error(vectors: Vectors, query: CoarseQuery) -> float:
    """
    Standard deviation of a coarse score of unit vectors.

    Rounding errors of components are taken as independent and uniform over one step, so that the row's and the query's each add
    (step² / 12) to the variance of an inner product of unit vectors.
    """
    step = float(vectors.scales.max(initial=0.0))
    return math.sqrt((step**2 + float(query.scale) ** 2) / 12)


def exact_scores(vectors: Vectors, query: NDArray[np.float32], rows: NDArray[np.intp]) -> NDArray[np.float32]:
    """(len(rows),) float32: inner products with the float16 rows, computed in float32."""
    scores: NDArray[np.float32] = vectors.exact[rows].astype(np.float32) @ query
    return scores
