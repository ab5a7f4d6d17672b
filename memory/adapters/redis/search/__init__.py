"""The node index in RediSearch. Needs a server with the search module (docs/redis.md)."""

from memory.adapters.redis.search.module import SearchModule, search_module
from memory.adapters.redis.search.node_index import RediSearchNodeIndex
from memory.adapters.redis.search.settings import SearchSettings

__all__ = ["RediSearchNodeIndex", "SearchModule", "SearchSettings", "search_module"]
