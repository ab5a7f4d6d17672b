"""What Redis says when it refuses, in the domain's errors; the only place that knows its wordings."""

from __future__ import annotations

import asyncio

from redis import exceptions as vendor

from memory.errors import (
    BanyanError,
    SettingError,
    StoreBusyError,
    StoreDamagedError,
    StoreUnavailableError,
    TreeNotFoundError,
)

WORDINGS: tuple[tuple[str, type[BanyanError], str], ...] = (
    # What an answer begins with, what it means to the caller, what to do.
    ("NOTREE", TreeNotFoundError, ""),
    ("LOADING", StoreUnavailableError, "it is reading its data set"),
    ("READONLY", StoreUnavailableError, "it is a replica now; a failover may be under way"),
    ("MASTERDOWN", StoreUnavailableError, "its master is away"),
    ("CLUSTERDOWN", StoreUnavailableError, "a part of the cluster is away"),
    ("TRYAGAIN", StoreUnavailableError, "the tree's slot is being moved to another node"),
    ("MOVED", StoreUnavailableError, "the tree's slot has moved; for a cluster the address begins with redis+cluster://"),
    ("ASK", StoreUnavailableError, "the tree's slot is being moved to another node"),
    ("OOM", StoreUnavailableError, "its memory is full: raise maxmemory or free some"),
    ("MISCONF", StoreUnavailableError, "it cannot save to disk and refuses writes"),
    ("NOREPLICAS", StoreUnavailableError, "it has fewer replicas than min-replicas-to-write"),
    ("UNBLOCKED", StoreUnavailableError, "a failover ended the call"),
    ("BUSY", StoreBusyError, "it is running a long script"),
    ("max number of clients", StoreUnavailableError, "it takes no more connections: raise maxclients"),
    ("WRONGTYPE", StoreDamagedError, "a key holds something that Banyan did not write; use another prefix"),
    ("NOAUTH", SettingError, "it wants a password: put it into the address"),
    ("WRONGPASS", SettingError, "the user name or the password is wrong"),
    ("NOPERM", SettingError, "the user may not do this: docs/redis.md lists the commands"),
    ("unknown command", SettingError, "Redis 7.0 or newer, or Valkey, is needed"),
    ("Could not create server TCP", StoreUnavailableError, ""),
)

STRIPPED: tuple[tuple[type[Exception], str], ...] = (
    # Errors that the client makes classes of, taking the first word away.
    (vendor.BusyLoadingError, "LOADING"),
    (vendor.ReadOnlyError, "READONLY"),
    (vendor.OutOfMemoryError, "OOM"),
    (vendor.NoPermissionError, "NOPERM"),
    (vendor.MovedError, "MOVED"),
    (vendor.AskError, "ASK"),
    (vendor.TryAgainError, "TRYAGAIN"),
    (vendor.ClusterDownError, "CLUSTERDOWN"),
    (vendor.MasterDownError, "MASTERDOWN"),
)


def translated(error: Exception, where: str) -> BanyanError:
    """
    The domain's error for one of the client's.

    Args:
        error: a `RedisError`, `OSError` or time-out.
        where: what was being done, for people.
    """
    said = str(error)
    if isinstance(error, vendor.AuthenticationError | vendor.AuthorizationError):
        return SettingError(f"{where}: Redis refused the user or the password ({said})")
    said = next((f"{word} {said}" for kind, word in STRIPPED if isinstance(error, kind)), said)
    for beginning, kind, meaning in WORDINGS:
        if said.startswith(beginning) or (" " in beginning and beginning in said):
            return kind(f"{where}: {meaning} ({said[:200]})" if meaning else f"{where}: {said[:200]}")
    if isinstance(error, vendor.ConnectionError | vendor.TimeoutError | vendor.ClusterError | OSError | asyncio.TimeoutError):
        return StoreUnavailableError(f"{where}: Redis cannot be reached ({said[:200] or type(error).__name__})")
    if isinstance(error, vendor.RedisClusterException):
        return StoreUnavailableError(f"{where}: the cluster cannot be reached ({said[:200]})")
    return StoreDamagedError(f"{where}: Redis refused the call ({said[:400]})")
