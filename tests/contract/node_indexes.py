"""
The `NodeIndex` adapters that the contract suite runs over. Another one is one more line in `OPENERS`.

Those in RediSearch need a server with the search module, which `BANYAN_TEST_SEARCH_URL` names; without it they are left out, and
the run says so on its last lines.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from hashlib import blake2b
from pathlib import Path

from memory.adapters.embedded.index.lexical import words
from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.adapters.redis import Link, RedisSettings
from memory.ports.index import NodeIndex

Opener = Callable[[], Awaitable[NodeIndex]]
SEARCH_URL = "BANYAN_TEST_SEARCH_URL"


async def _memory(_: Path) -> NodeIndex:
    return await EmbeddedNodeIndex.open(None)


async def _file(folder: Path) -> NodeIndex:
    return await EmbeddedNodeIndex.open(folder / "index.db")


async def redisearch(folder: Path, *, own_from: int = 1_000_000) -> NodeIndex:
    """An index in RediSearch; those of one folder share what they hold."""
    from memory.adapters.redis.search import RediSearchNodeIndex, SearchSettings  # noqa: PLC0415  # brings redisvl

    prefix = f"test-{blake2b(bytes(folder), digest_size=8).hexdigest()}"
    link = await Link.open(RedisSettings(url=os.environ[SEARCH_URL], prefix=prefix))
    return RediSearchNodeIndex(link, tokenize=words, settings=SearchSettings(own_from=own_from), owns_link=True)


async def _redisearch_own(folder: Path) -> NodeIndex:
    return await redisearch(folder, own_from=1)


OPENERS: dict[str, Callable[[Path], Awaitable[NodeIndex]]] = {
    "embedded-memory": _memory,
    "embedded-file": _file,
    "redisearch-shared": redisearch,
    "redisearch-own": _redisearch_own,
}
SHARED = ("embedded-file", "redisearch-shared", "redisearch-own")
"""Adapters whose instances see one another's updates."""
ON_SEARCH = frozenset({"redisearch-shared", "redisearch-own"})


async def clear_away(index: NodeIndex) -> None:
    """Leave no index of a test on a server."""
    from memory.adapters.redis.search import RediSearchNodeIndex  # noqa: PLC0415  # brings redisvl

    if isinstance(index, RediSearchNodeIndex):
        await index.wipe()


def search_url() -> str | None:
    """The server with the search module that tests may use."""
    return os.environ.get(SEARCH_URL) or None


def available(names: tuple[str, ...]) -> list[str]:
    """Those of the adapters that can be had in this run."""
    return [name for name in names if name not in ON_SEARCH or search_url() is not None]
