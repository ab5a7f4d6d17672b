"""How to reach Redis, and how much a commit must have been written there before it is acknowledged."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from urllib.parse import urlsplit

from memory.errors import SettingError

SCHEMES = ("redis", "rediss", "redis+cluster", "rediss+cluster", "redis+sentinel", "unix")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisSettings:
    """Settings of the Redis adapters."""

    url: str = "redis://localhost:6379/0"
    """
    `redis://[user:password@]host:port/db`, `rediss://` for TLS, `unix://path`; `redis+cluster://host:port` for a cluster (any
    of its nodes); `redis+sentinel://host:port,host:port/name?db=0` for the master called `name` of those sentinels.
    """
    prefix: str = "banyan"
    """What every key begins with, so that others can use the same server. `[A-Za-z0-9._-]{1,32}`."""
    connections_max: int = 64
    """Connections of this process to one server; more calls wait. Every lease that is waited for takes one as well."""
    timeout: timedelta = timedelta(seconds=5)
    """How long one answer may take before its connection is given up. Below a second, a server that forks or saves looks dead."""
    patience: timedelta = timedelta(seconds=5)
    """How long a call is tried again, with growing pauses, while Redis is away, before `StoreUnavailableError`. Zero: once."""
    wait_replicas: int = 0
    """Replicas that must have received a commit before it is acknowledged (`WAIT`). With 0 a failover can lose the last commits."""
    wait: timedelta = timedelta(seconds=1)
    """How long to wait for those replicas; then the commit is not acknowledged, though it may stand."""
    leases_bind: bool = True
    """Whether a commit that adds or moves children of a node is refused while another's lease has that node."""

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        parts = urlsplit(self.url)
        if parts.scheme not in SCHEMES:
            raise SettingError(f"the Redis address must begin with one of {', '.join(f'{one}://' for one in SCHEMES)}")
        if parts.scheme == "redis+sentinel" and not parts.path.strip("/"):
            raise SettingError("a redis+sentinel:// address ends in the master's name: redis+sentinel://host:26379/mymaster")
        if not re.fullmatch(r"[A-Za-z0-9._-]{1,32}", self.prefix):
            raise SettingError("the Redis prefix is 1 to 32 of letters, digits, '.', '_' and '-'")
        if self.connections_max < 1 or self.timeout <= timedelta(0):
            raise SettingError("the Redis connections and timeout must be above zero")

    @property
    def cluster(self) -> bool:
        """Whether the address is a cluster's."""
        return urlsplit(self.url).scheme.endswith("+cluster")
