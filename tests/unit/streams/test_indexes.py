"""Which search index serves a store in Redis."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from memory.adapters.redis import Link, RedisSettings
from memory.adapters.redis.search import RediSearchNodeIndex
from memory.adapters.redis.search.keys import SHARED, SearchKeys
from memory.errors import SettingError
from streams.indexes import open_index
from streams.settings import Settings, load
from tests.fakes.search_server import FakeSearchServer

OTHERS = [
    "redis://host/2",
    "redis://host?db=2",
    "rediss://host:1/3",
    "unix:///run/redis.sock?db=1",
    "redis+sentinel://host:1/name?db=4",
]
FIRST = ["redis://host", "redis://host/0", "redis://host/2?db=0", "unix:///run/redis.sock", "redis+sentinel://host:1/name"]


def given(store: str, **variables: str) -> Settings:
    return load({"BANYAN_STORE": store, **variables}, folder=Path("/nowhere")).settings


@pytest.fixture(autouse=True)
def servers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every address is of a server with the search module."""

    async def connect(settings: RedisSettings) -> FakeSearchServer:
        return FakeSearchServer(settings.url)

    monkeypatch.setattr(Link, "open", connect)


@pytest.mark.parametrize("store", FIRST)
async def test_a_server_with_the_module_searches_its_first_database(store: str) -> None:
    index = await open_index(given(store))
    assert isinstance(index, RediSearchNodeIndex)
    await index.close()


@pytest.mark.parametrize("store", OTHERS)
async def test_in_another_database_a_replica_searches(store: str) -> None:
    assert await open_index(given(store)) is None


@pytest.mark.parametrize("store", OTHERS)
async def test_in_another_database_the_module_is_refused_where_it_is_asked_for(store: str) -> None:
    with pytest.raises(SettingError, match="database 0 only"):
        await open_index(given(store, BANYAN_INDEX="redisearch"))


async def test_an_index_of_its_own_is_what_counts() -> None:
    index = await open_index(given("redis://host/2", BANYAN_INDEX_URL="redis://other"))
    assert isinstance(index, RediSearchNodeIndex)
    await index.close()
    assert await open_index(given("redis://host", BANYAN_INDEX_URL="redis://other/2")) is None


async def test_what_others_have_left_is_cleared_away_where_an_index_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    server, leftovers = FakeSearchServer(), SearchKeys("banyan").leftovers
    server.hashes[leftovers]["7"] = f"{SHARED} 4"

    async def connect(_: RedisSettings) -> FakeSearchServer:
        return server

    monkeypatch.setattr(Link, "open", connect)
    index = await open_index(given("redis://host"))
    assert index is not None
    async with asyncio.timeout(60):
        while server.hashes[leftovers]:  # noqa: ASYNC110  # a task's doing
            await asyncio.sleep(0)
    await index.close()
