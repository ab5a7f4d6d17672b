"""Retrieval metrics; pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final

CUTOFFS: Final = (3, 5, 10)
DEPTH: Final = max(CUTOFFS)
"""How many distinct things of an answer are looked at."""
NDCG: Final = f"ndcg@{DEPTH}"
NAMES: Final = (*(f"recall@{k}" for k in CUTOFFS), NDCG)


def recall(ranked: Sequence[str], relevant: Set[str], k: int) -> float:
    """
    The share of what is relevant that is among the first k.

    Args:
        ranked: distinct keys, best first.
        relevant: at least one key; one that can never be found counts all the same.
        k: 1 or more.
    """
    return len(relevant & set(ranked[:k])) / len(relevant)


def ndcg(ranked: Sequence[str], relevant: Set[str], k: int) -> float:
    """
    Normalized discounted cumulative gain with binary relevance, in [0, 1].

    Järvelin & Kekäläinen 2002, with the discount 1 / log2(rank + 1); the ideal ranking has all that is relevant in front.
    """
    gained = sum(1 / math.log2(rank + 1) for rank, key in enumerate(ranked[:k], 1) if key in relevant)
    return gained / sum(1 / math.log2(rank + 1) for rank in range(1, min(k, len(relevant)) + 1))


def score(ranked: Iterable[str], relevant: Set[str], *, one_suffices: bool = False) -> dict[str, float]:
    """
    All metrics of one question, by name; repeated keys count once, where they come first.

    Args:
        ranked: keys, best first.
        relevant: at least one key.
        one_suffices: any of them answers alone, so that they count as one.
    """
    distinct = list(dict.fromkeys(ranked))
    if one_suffices:
        first = min(relevant)
        distinct = list(dict.fromkeys(first if key in relevant else key for key in distinct))
        relevant = {first}
    return {**{f"recall@{k}": recall(distinct, relevant, k) for k in CUTOFFS}, NDCG: ndcg(distinct, relevant, DEPTH)}


def mean(scores: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean over questions, by metric; empty for no question."""
    return {name: math.fsum(each[name] for each in scores) / len(scores) for name in NAMES} if scores else {}


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all values do not exceed; nan for none."""
    if not values:
        return math.nan
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]
