"""
Every way to read a memory, by name, and the structures that each works with.

The one list: strategies, the query service, the command line and the evaluation go by it. It imports nothing but errors, so that
the command line can name strategies without loading them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from memory.errors import QueryError

STRUCTURES: Final[Mapping[str, frozenset[str] | None]] = MappingProxyType(
    {
        "hybrid": None,
        "collapsed": None,
        "traversal": None,
        "bm25": None,
        "agent": frozenset({"hat"}),
        "descent": frozenset({"hmem"}),
        "router": frozenset({"memgas"}),
    }
)
"""Strategies, the default first, and the structures that they work with; None for all."""
STRATEGIES: Final = tuple(STRUCTURES)


def works_on(strategy: str, structure: str) -> bool:
    """Whether a strategy that there is works on trees of a structure."""
    structures = STRUCTURES[strategy]
    return structures is None or structure in structures


def strategies_for(structure: str) -> tuple[str, ...]:
    """Names of the strategies that work on trees of a structure."""
    return tuple(strategy for strategy in STRATEGIES if works_on(strategy, structure))


def check_pair(strategy: str, structure: str) -> None:
    """
    Refuse a strategy that there is not, or that does not work on trees of a structure.

    Raises:
        QueryError: with what there is, or what works there.
    """
    if strategy not in STRUCTURES:
        raise QueryError(f"strategy {strategy!r} is not known; there is {', '.join(STRATEGIES)}", field="strategy")
    if not works_on(strategy, structure):
        works = ", ".join(sorted(strategies_for(structure)))
        raise QueryError(f"strategy {strategy!r} does not work on a {structure} tree; there {works} work", field="strategy")
