"""Settings that cannot work are refused; addresses of every kind are understood."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from redis.asyncio import Redis, RedisCluster
from redis.asyncio.sentinel import SentinelConnectionPool

from memory.adapters.redis import link
from memory.adapters.redis.settings import RedisSettings
from memory.errors import SettingError


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": "http://localhost"},
        {"url": "localhost:6379"},
        {"url": "redis+sentinel://localhost:26379"},
        {"prefix": ""},
        {"prefix": "with{brace}"},
        {"prefix": "x" * 33},
        {"connections_max": 0},
        {"timeout": timedelta(0)},
    ],
)
def test_what_cannot_work_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=r"Redis|redis"):
        RedisSettings(**wrong)


async def test_an_address_chooses_the_client() -> None:
    single = link._client(RedisSettings(url="redis://user:secret@example.org:7000/3"))
    assert isinstance(single, Redis)
    wanted = single.connection_pool.connection_kwargs
    assert (wanted["host"], wanted["port"], wanted["db"], wanted["username"]) == ("example.org", 7000, 3, "user")
    assert isinstance(link._client(RedisSettings(url="redis+cluster://example.org:7000")), RedisCluster)
    behind = link._client(RedisSettings(url="redis+sentinel://:secret@a:1,b:2/mymaster?db=5"))
    assert isinstance(behind, Redis)
    pool = behind.connection_pool
    assert isinstance(pool, SentinelConnectionPool)
    assert pool.service_name == "mymaster"
    assert (pool.connection_kwargs["db"], pool.connection_kwargs["password"]) == (5, "secret")
    asked = [one.connection_pool.connection_kwargs for one in pool.sentinel_manager.sentinels]
    assert [(one["host"], one["port"]) for one in asked] == [("a", 1), ("b", 2)]
