"""Redis's wordings in the domain's errors."""

from __future__ import annotations

import pytest
from redis import exceptions as vendor

from memory.adapters.redis.errors import WORDINGS, translated
from memory.errors import (
    BanyanError,
    PermanentError,
    SettingError,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
    TransientError,
    TreeNotFoundError,
)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (vendor.ConnectionError("Connection refused"), StoreUnavailableError),
        (vendor.TimeoutError("Timeout reading"), StoreUnavailableError),
        (vendor.MaxConnectionsError("Too many connections"), StoreUnavailableError),
        (ConnectionResetError(104, "reset"), StoreUnavailableError),
        (TimeoutError(), StoreUnavailableError),
        (vendor.BusyLoadingError("Redis is loading the dataset in memory"), StoreUnavailableError),
        (vendor.ReadOnlyError("You can't write against a read only replica."), StoreUnavailableError),
        (vendor.ClusterDownError("CLUSTERDOWN The cluster is down"), StoreUnavailableError),
        (vendor.RedisClusterException("Redis Cluster cannot be connected"), StoreUnavailableError),
        (vendor.MovedError("12182 127.0.0.1:7001"), StoreUnavailableError),
        (vendor.OutOfMemoryError("command not allowed when used memory > 'maxmemory'."), StoreUnavailableError),
        (vendor.ResponseError("OOM command not allowed when used memory > 'maxmemory'."), StoreUnavailableError),
        (vendor.ResponseError("MISCONF Redis is configured to save RDB snapshots"), StoreUnavailableError),
        (vendor.ResponseError("NOREPLICAS Not enough good replicas to write."), StoreUnavailableError),
        (vendor.ResponseError("BUSY Redis is busy running a script."), StoreBusyError),
        (vendor.ResponseError("WRONGTYPE Operation against a key"), StoreDamagedError),
        (vendor.ResponseError("user_script:3: attempt to index a nil value"), StoreDamagedError),
        (vendor.AuthenticationError("invalid username-password pair"), SettingError),
        (vendor.ResponseError("NOAUTH Authentication required."), SettingError),
        (vendor.NoPermissionError("this user has no permissions"), SettingError),
        (vendor.ResponseError("unknown command 'FCALL'"), SettingError),
        (vendor.ResponseError("NOTREE there is no such tree"), TreeNotFoundError),
    ],
)
def test_what_redis_says_in_our_words(error: Exception, kind: type[BanyanError]) -> None:
    found = translated(error, "Redis, apply")
    assert type(found) is kind
    assert "Redis, apply" in str(found)


def test_every_wording_has_a_kind_that_says_what_to_do() -> None:
    assert all(issubclass(kind, TransientError | PermanentError) for _, kind, _ in WORDINGS)


def test_a_password_in_an_address_is_not_repeated() -> None:
    assert "secret" not in str(translated(vendor.AuthenticationError("WRONGPASS"), "Redis, SET"))
