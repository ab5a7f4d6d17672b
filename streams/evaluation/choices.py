"""What can be measured, by name. Light to import: the command line lists it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memory.errors import SettingError
from memory.retrieval import catalogue

FORMATS: Final = ("locomo", "multihoprag", "passages", "quality", "nq", "msc")
"""Formats of data sets; the last has no questions, its summaries are measured."""
BASELINES: Final = ("dense", "bm25", "dense+bm25")
"""What strategies have to beat: the nearest leaves, those that share the question's words, and both scores added."""
GRANULARITIES: Final = {"session-units": 1, "summary-units": 2, "keyword-units": 3}
"""What a `memgas` finds by the nearest units of one granularity alone, and their depth; what its router has to beat."""
STRATEGIES: Final = (*(each for each in catalogue.STRATEGIES if each not in BASELINES), *BASELINES, *GRANULARITIES)
"""What is measured when no strategy is named: the memory's own, then the baselines."""


def strategies_for(structure: str) -> tuple[str, ...]:
    """Those of `STRATEGIES` that work on trees of a structure; the baselines do on all."""
    return tuple(each for each in STRATEGIES if each in BASELINES or structure in _particular(each, structure))


def _particular(strategy: str, structure: str) -> frozenset[str]:
    """Structures that a strategy works on; one that works on all works on the one that is asked about."""
    if strategy in GRANULARITIES:
        return frozenset({"memgas"})
    found = catalogue.STRUCTURES[strategy]
    return frozenset({structure}) if found is None else found


def chosen_for(structure: str, named: Sequence[str]) -> tuple[str, ...]:
    """
    What to measure on a structure, in the order of `STRATEGIES`.

    Args:
        structure: how the trees grow.
        named: strategies that were asked for; none means all that work.

    Raises:
        SettingError: one of them does not work there; the message says which do, and where it would.
    """
    works = strategies_for(structure)
    for each in named:
        if each not in works:
            structures = ", ".join(sorted(_particular(each, "")))
            raise SettingError(
                f"strategy {each!r} does not work on a {structure} tree: it reads {structures}; there {', '.join(works)} work"
            )
    return tuple(each for each in works if not named or each in named)
