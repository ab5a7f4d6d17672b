"""Session- and document-level results from ranked leaves."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

T = TypeVar("T")


def best_of_each(ranked: Sequence[T], key: Callable[[T], Hashable | None], *, limit: int) -> list[T]:
    """
    The first of each group, in order: a group is as good as its best member.

    Args:
        ranked: best first.
        key: what a member belongs to; None leaves it out.
        limit: groups wanted.
    """
    seen: set[Hashable] = set()
    kept: list[T] = []
    for member in ranked:
        group = key(member)
        if group is not None and group not in seen:
            if len(kept) == limit:
                break
            seen.add(group)
            kept.append(member)
    return kept
