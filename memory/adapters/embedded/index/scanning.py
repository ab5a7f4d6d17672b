"""Vectors compared with all rows of a tree, coarsely and by several threads; what is asked at the same time shares one pass."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.index import vectors
from memory.adapters.embedded.index.ranking import Block, Mask, Slots, by_block

GATHER_SHARE = 8
"""Below one row in so many, allowed rows are gathered; above, all are scanned and the others masked."""
SCAN_ROWS = 16_384
"""Rows that one thread scans at a time."""
SCAN_ROWS_ASIDE = 8_192
"""A searching thread gets a helper for so many rows, and alone scans fewer."""
FLOOR_SAMPLE = 2_048
"""Least number of scores that a bound of the best is estimated from."""


class Pass:
    """
    A pass over all rows, which helpers begin at once.

    Args:
        blocks: all rows; at least one.
        asked: the vectors, each (d,) float32; at least one.
        scanner: where helpers run.
        helpers: so many at most.
    """

    def __init__(self, blocks: Sequence[Block], asked: Sequence[NDArray[np.float32]], *, scanner: Executor, helpers: int) -> None:
        total = blocks[-1].base + blocks[-1].size
        self._queries = [vectors.coarse_query(vector) for vector in asked]
        self._scores = np.empty((len(asked), total), np.float32)
        self._parts = deque((block, start) for block in blocks for start in range(0, block.size, SCAN_ROWS))
        self._blocks = blocks
        helpers = min(helpers, total * len(asked) // SCAN_ROWS_ASIDE, len(self._parts))
        self._helping = [scanner.submit(self._work) for _ in range(helpers)]

    def error(self, number: int) -> float:
        """Standard error of the scores of one of the vectors."""
        return max(vectors.coarse_error(block.vectors, self._queries[number]) for block in self._blocks)

    def scores(self, number: int) -> NDArray[np.float32]:
        """Those of one of the vectors, (n,), the caller's to change; once this thread has helped."""
        self._work()
        for helper in self._helping:
            # One that had not begun has nothing left to do.
            if not helper.cancel():
                helper.result()
        own: NDArray[np.float32] = self._scores[number]
        return own

    def _work(self) -> None:
        """Scan parts until none is left."""
        with suppress(IndexError):
            while True:
                block, start = self._parts.popleft()
                rows = slice(start, start + SCAN_ROWS)
                out = self._scores[:, block.base : block.base + block.size][:, rows]
                if len(self._queries) == 1:
                    out[0] = vectors.coarse_scores(block.vectors, self._queries[0], rows)
                else:
                    vectors.coarse_scores_of_many(block.vectors, self._queries, rows, out)


@dataclass(frozen=True, slots=True)
class Scan:
    """A comparison of one vector with `slots`, or with all when that is None; it may still run."""

    slots: Slots | None
    allowed: Mask | None
    """(n,) slots that count, when all are compared; None when all do."""
    finished: Callable[[], NDArray[np.float32]]
    """Coarse scores, this query's own, once this thread has helped to make them."""
    error: float
    """Standard error of a score."""


def scans(
    blocks: Sequence[Block], asked: Sequence[tuple[NDArray[np.float32], Mask | None]], *, scanner: Executor, helpers: int
) -> list[Scan]:
    """
    Compare vectors with the rows that each may find: with few of them by themselves, else with all rows in one pass.

    Args:
        blocks: all rows; at least one.
        asked: vectors, each with (n,) the slots that count, or None when all do.
        scanner: where helpers run.
        helpers: so many at most.
    """
    few = [_few(blocks, vector, allowed) for vector, allowed in asked]
    shared = [vector for (vector, _), alone in zip(asked, few, strict=True) if alone is None]
    one = Pass(blocks, shared, scanner=scanner, helpers=helpers) if shared else None
    numbers = count()
    return [alone or _of(one, next(numbers), allowed) for (_, allowed), alone in zip(asked, few, strict=True)]


def _of(one: Pass | None, number: int, allowed: Mask | None) -> Scan:
    assert one is not None
    return Scan(None, allowed, partial(one.scores, number), one.error(number))


def _few(blocks: Sequence[Block], vector: NDArray[np.float32], allowed: Mask | None) -> Scan | None:
    if allowed is None or int(np.count_nonzero(allowed)) >= len(allowed) // GATHER_SHARE:
        return None
    query, slots = vectors.coarse_query(vector), np.flatnonzero(allowed)
    scores = np.empty(len(slots), np.float32)
    for block, rows, part in by_block(blocks, slots):
        scores[part] = vectors.coarse_scores(block.vectors, query, rows)
    return Scan(slots, None, lambda: scores, max(vectors.coarse_error(block.vectors, query) for block in blocks))


def floor(scores: NDArray[np.float32], k: int) -> float:
    """A bound that at least k scores lie above, few more where there are many; found on a sample of them."""
    step = len(scores) // (FLOOR_SAMPLE * 2)
    if step < 2:
        return -np.inf
    sample = scores[::step]
    place = len(sample) - 1 - (2 * k // step + 32)
    if place <= 0:
        return -np.inf
    least = float(np.partition(sample, place)[place])
    return least if np.count_nonzero(scores > least) >= k else -np.inf
