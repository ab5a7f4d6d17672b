"""Which search index serves the trees in Redis: called by the composition root alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

import structlog

from memory.errors import SettingError
from streams.redis_options import redis_settings

if TYPE_CHECKING:
    from memory.adapters.redis import Link, RedisSettings
    from memory.ports.index import NodeIndex
    from streams.settings import Settings

_log = structlog.stdlib.get_logger("streams.index")
_OR_REPLICA = "set BANYAN_INDEX=replica, or BANYAN_INDEX_URL to a server that has it (docs/redis.md)"


async def open_index(settings: Settings) -> NodeIndex | None:
    """
    The index that the settings name, for trees in Redis; None for a replica in this process.

    Raises:
        SettingError: RediSearch is asked for, and the server does not have it, or too old a one, or the address names another
            database than 0.
        StoreUnavailableError: the server cannot be reached.
    """
    if settings.index == "replica":
        _log.info("index", kind="replica")
        return None
    from memory.adapters.redis import Link  # noqa: PLC0415  # an optional extra

    link = await Link.open(_where(settings))
    try:
        missing = await _missing(settings, link)
        if missing is None:
            return _redisearch(settings, link)
    except BaseException:
        await link.close()
        raise
    await link.close()
    if settings.index == "redisearch":
        raise SettingError(f"index: {missing}; {_OR_REPLICA}")
    _log.info("index", kind="replica", because=missing)
    return None


def need_redis(settings: Settings) -> None:
    """
    Refuse settings that are for trees in Redis where the trees are in a file.

    Raises:
        SettingError: one of them is set.
    """
    if settings.index == "redisearch" or settings.index_url is not None:
        raise SettingError("index: the trees are in a file, whose index lies beside it; unset BANYAN_INDEX and BANYAN_INDEX_URL")


def _where(settings: Settings) -> RedisSettings:
    # An index is derived: it is not waited for until replicas have it.
    options = replace(redis_settings(settings), wait_replicas=0)
    return options if settings.index_url is None else replace(options, url=settings.index_url)


async def _missing(settings: Settings, link: Link) -> str | None:
    """Why RediSearch cannot be used there; None when it can. What it can do is said in the log."""
    from memory.adapters.redis.search.module import search_module  # noqa: PLC0415

    if link.settings.cluster:
        return "a cluster cannot be searched in one step"
    if _database(link.settings.url) != 0:
        return "RediSearch indexes database 0 only"
    try:
        module = await search_module(link)
    except SettingError as error:
        if settings.index == "redisearch":
            raise
        return str(error)
    if module is None:
        return "the server has no search module"
    lacking = module.missing()
    if not module.usable:
        _log.warning("index", kind="replica", because=lacking[0])
        return lacking[0]
    _log.info("index", kind="redisearch", module=str(module), workers=module.workers or 0, lacking=lacking)
    return None


def _database(url: str) -> int:
    """The number of the database that an address names, as the link understands it."""
    from redis.asyncio.connection import parse_url  # noqa: PLC0415  # an optional extra

    if urlsplit(url).scheme == "redis+sentinel":
        return int(parse_qs(urlsplit(url).query).get("db", ["0"])[-1])
    return int(parse_url(url).get("db", 0))


def _redisearch(settings: Settings, link: Link) -> NodeIndex:
    from memory.adapters.redis.search import RediSearchNodeIndex  # noqa: PLC0415  # brings redisvl
    from memory.retrieval.text import terms  # noqa: PLC0415

    retrieval = settings.memory.retrieval
    index = RediSearchNodeIndex(link, tokenize=terms, k1=retrieval.bm25_k1, b=retrieval.bm25_b, owns_link=True)
    index.tidy()
    return index
