"""The search indexes are there, and whole, whatever happened to the server in between."""

from __future__ import annotations

from memory.adapters.redis.search.indexes import Indexes
from memory.adapters.redis.search.keys import SHARED, SearchKeys
from memory.adapters.redis.search.settings import SearchSettings
from memory.adapters.redis.search.standing import Standing
from tests.fakes.search_server import FakeSearchServer

KEYS = SearchKeys("banyan")
STANDING = Standing(generation="1", place=SHARED, dimension=4, nodes=0, texts=0, seq=0, stamp="", writes="0", counts=())
NAME, _ = STANDING.index(KEYS)


def made(server: FakeSearchServer) -> Indexes:
    return Indexes(server, KEYS, SearchSettings())


async def test_after_a_flush_the_next_tree_has_an_index_again() -> None:
    server = FakeSearchServer()
    indexes = made(server)
    await indexes.make(STANDING)
    server.flush()
    await indexes.make(STANDING)
    assert server.indexes == {NAME: False}, "there, and made of nothing: there was no document yet"


async def test_one_that_a_search_does_not_find_is_made_from_the_documents_also_where_it_is_not_known_to_have_been_there() -> None:
    server = FakeSearchServer()
    await made(server).restore(f"{NAME}: no such index", STANDING)
    assert server.indexes == {NAME: True}
    assert KEYS.filling(NAME) not in server.values, "it is full"
