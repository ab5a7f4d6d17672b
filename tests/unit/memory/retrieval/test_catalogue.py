"""The one list of strategies, and what goes by it."""

from __future__ import annotations

import pytest

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import QueryError
from memory.local import open_local
from memory.retrieval import catalogue
from memory.structures import registry
from streams.evaluation import choices


async def test_the_list_is_what_a_memory_has() -> None:
    async with await open_local(embedder=HashingEmbedder()) as memory:
        assert set(memory._parts.query.strategies) == set(catalogue.STRATEGIES)


def test_strategies_name_structures_that_there_are() -> None:
    named = frozenset[str]().union(*(each for each in catalogue.STRUCTURES.values() if each is not None))
    assert named <= set(registry.NAMES)


@pytest.mark.parametrize("structure", registry.NAMES)
def test_the_evaluation_measures_all_that_works_and_the_baselines(structure: str) -> None:
    baselines = {*choices.BASELINES, *(choices.GRANULARITIES if structure == "memgas" else ())}
    assert {*catalogue.strategies_for(structure), *baselines} == set(choices.strategies_for(structure))


def test_a_wrong_pair_is_refused_with_what_would_work() -> None:
    with pytest.raises(QueryError, match="does not work on a hat tree; there agent, bm25, collapsed, hybrid, traversal work"):
        catalogue.check_pair("router", "hat")
    with pytest.raises(QueryError, match="'best' is not known; there is hybrid"):
        catalogue.check_pair("best", "hat")
    catalogue.check_pair("router", "memgas")
