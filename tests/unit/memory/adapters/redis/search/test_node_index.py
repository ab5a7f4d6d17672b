"""What the index does beside searching, where other processes use the server too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory.adapters.redis.search import RediSearchNodeIndex, SearchSettings
from memory.adapters.redis.search.keys import ASIDE, OWN, SearchKeys
from memory.model import TreeId
from memory.retrieval.text import terms
from memory.service import indexing
from tests.fakes.index_entries import TREE, leaf
from tests.fakes.search_server import FakeSearchServer


class Overtaken(FakeSearchServer):
    """Another process begins each tree's index, and writes, just before this one does."""

    def search_begin(self, keys: Sequence[str], place: str, dimension: str) -> None:
        super().search_begin(keys, place, dimension)
        self.hashes[keys[0]] |= {"seq": "5", "writes": "1"}


def opened(server: FakeSearchServer) -> RediSearchNodeIndex:
    return RediSearchNodeIndex(server, tokenize=terms, settings=SearchSettings(), owns_link=True)


async def test_an_update_of_an_index_that_another_has_begun_meanwhile_is_refused() -> None:
    server = Overtaken()
    index = opened(server)
    assert not await index.update(TREE, after=0, seq=3, upserts=[leaf(1)])
    assert "search_write" not in server.scripts_run, "commits 4 and 5 would be lost from it"
    assert await index.covered(TREE) == 5


KEYS = SearchKeys("banyan")


def left_by_one_that_died(server: FakeSearchServer) -> str:
    """An index of its own that was to be cleared away; gives the key of a document in it."""
    name, prefix = KEYS.index("7", OWN, 4)
    server.indexes[name] = False
    server.values |= {KEYS.made(name): "1", f"{prefix}n1": "a document"}
    server.hashes[KEYS.leftovers]["7"] = f"{OWN} 4"
    return f"{prefix}n1"


async def test_what_a_process_that_died_has_left_is_cleared_away_by_the_next() -> None:
    server = FakeSearchServer()
    document = left_by_one_that_died(server)
    index = opened(server)
    index.tidy()
    async with asyncio.timeout(60):
        while server.hashes[KEYS.leftovers]:  # noqa: ASYNC110  # a task's doing
            await asyncio.sleep(0)
    await index.close()
    assert (server.indexes, document in server.values) == ({}, False)


async def test_closing_does_not_wait_for_it() -> None:
    server = FakeSearchServer()
    left_by_one_that_died(server)
    index = opened(server)
    index.tidy()
    await index.close()
    assert server.hashes[KEYS.leftovers], "the next one has it"


async def test_what_was_being_made_anew_goes_with_its_tree() -> None:
    server = FakeSearchServer()
    index = opened(server)
    for tree in (TREE, TreeId(TREE + ASIDE)):
        await index.prepare(tree, nodes=100_000, dimension=4)
    assert len(server.indexes) == 2
    await index.drop(TREE)
    assert server.indexes == {}
    assert not server.hashes[KEYS.leftovers]


def test_it_is_known_by_the_name_that_it_is_made_under() -> None:
    assert ASIDE == indexing.ASIDE
