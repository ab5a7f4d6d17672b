"""Links to real servers."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from memory.adapters.redis import Link, RedisSettings, RedisTreeStore
from tests.fakes.change_sets import tree_info

Connect = Callable[..., Awaitable[Link]]


@pytest.fixture
async def connect(request: pytest.FixtureRequest) -> AsyncIterator[Connect]:
    """Opens links, one prefix a test; closes them."""
    prefix = f"test-{secrets.token_hex(6)}"
    links: list[Link] = []

    async def open_link(url: str | None = None, **settings: Any) -> Link:
        where = url or request.getfixturevalue("redis_url")
        links.append(await Link.open(RedisSettings(**{"prefix": prefix, **settings}, url=where)))
        return links[-1]

    yield open_link
    for link in links:
        await link.close()


@pytest.fixture
async def link(connect: Connect) -> Link:
    return await connect()


@pytest.fixture
async def store(link: Link) -> RedisTreeStore:
    """With a tree."""
    made = RedisTreeStore(link)
    await made.create_tree(tree_info())
    return made
