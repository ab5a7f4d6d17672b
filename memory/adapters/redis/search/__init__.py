"""The node index in RediSearch. Needs a server with the search module (docs/redis.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.adapters.redis.search.module import SearchModule, search_module
from memory.adapters.redis.search.settings import SearchSettings

if TYPE_CHECKING:
    from memory.adapters.redis.search.node_index import RediSearchNodeIndex

__all__ = ["RediSearchNodeIndex", "SearchModule", "SearchSettings", "search_module"]


def __getattr__(name: str) -> Any:
    """The index itself, imported when it is asked for: it brings redisvl, which takes longer than looking for the module."""
    if name == "RediSearchNodeIndex":
        from memory.adapters.redis.search.node_index import RediSearchNodeIndex  # noqa: PLC0415

        return RediSearchNodeIndex
    raise AttributeError(name)
