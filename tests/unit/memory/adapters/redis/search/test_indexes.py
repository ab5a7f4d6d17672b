"""The search indexes are there, and whole, whatever happened to the server in between."""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.adapters.redis import RedisSettings
from memory.adapters.redis.search.indexes import Indexes
from memory.adapters.redis.search.keys import SHARED, SearchKeys
from memory.adapters.redis.search.settings import SearchSettings
from memory.adapters.redis.search.standing import Standing
from memory.errors import StoreDamagedError, StoreUnavailableError
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


@pytest.mark.parametrize("said", ["Timeout limit was reached", "SEARCH_TIMEOUT: Timeout limit was reached"])
async def test_a_search_that_took_too_long_may_be_tried_again(said: str) -> None:
    with pytest.raises(StoreUnavailableError, match="took too long; try again") as caught:
        await made(FakeSearchServer()).restore(said, STANDING)
    assert caught.value.retry_after == 1.0


async def test_any_other_refusal_is_damage() -> None:
    with pytest.raises(StoreDamagedError, match="Syntax error"):
        await made(FakeSearchServer()).restore("Syntax error at offset 3", STANDING)


def test_both_searches_of_a_question_end_before_the_client_gives_up() -> None:
    assert 2 * timedelta(milliseconds=SearchSettings().timeout_ms) < RedisSettings().timeout
