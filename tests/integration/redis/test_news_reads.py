"""What looking for news reads of a log that is long."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from memory.adapters.redis import RedisTreeStore
from tests.fakes.change_sets import TREE, insert

ENDED = "no more is to be seen"


async def test_no_more_of_a_long_log_is_read_at_once_than_a_few_commits(
    store: RedisTreeStore, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server keeps what one command answers in memory, however little of it is wanted."""
    monkeypatch.setattr("memory.adapters.redis.news.BYTES_PER_READ", 1)
    for number in range(60):
        await store.apply(insert(f"n{number}"))
    log = store._link.keys(TREE).log
    asked: list[list[str]] = []
    async with Redis.from_url(redis_url) as client, client.monitor() as watched:
        [news] = (await store.news({TREE: 0})).values()
        await client.echo(ENDED)
        async for seen in watched.listen():
            if ENDED in seen["command"]:
                break
            words = seen["command"].split()
            if words[0].upper() == "XRANGE" and log in words:
                asked.append(words)
    assert news.seq == 1, "one is always given"
    assert [int(words[-1]) for words in asked] == [16]
