"""Groups are as good as their best member."""

from __future__ import annotations

from memory.retrieval.grouping import best_of_each


def test_the_first_of_each_group_stands_for_it() -> None:
    ranked = [("a", 1), ("b", 2), ("a", 3), ("", 4), ("c", 5), ("d", 6)]
    assert best_of_each(ranked, lambda pair: pair[0] or None, limit=3) == [("a", 1), ("b", 2), ("c", 5)]
    assert best_of_each(ranked, lambda pair: pair[0], limit=0) == []
