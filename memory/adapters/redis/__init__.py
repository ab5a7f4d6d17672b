"""Trees, leases and claims in Redis 7.0 or newer, or Valkey: one server, replicas with Sentinel, or a cluster."""

from memory.adapters.redis.budget import RedisCallBudget
from memory.adapters.redis.claims import RedisNodeClaims
from memory.adapters.redis.leases import RedisPathLeases
from memory.adapters.redis.link import Link
from memory.adapters.redis.settings import RedisSettings
from memory.adapters.redis.store import RedisTreeStore

__all__ = ["Link", "RedisCallBudget", "RedisNodeClaims", "RedisPathLeases", "RedisSettings", "RedisTreeStore"]
