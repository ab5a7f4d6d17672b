"""
Keys of the service: who is let in, to what.

A key is shown once, when it is made. The file has SHA-256 of it: the secret half has 256 random bits, which no slow hash could
protect better. Services read the file again when it has changed, so that a key that is revoked is refused within a second.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from memory.errors import SettingError

LOOK_EVERY = 1.0  # seconds
NAME_CHARACTERS_MAX = 100
KEYS_MAX = 10_000
_TOKEN = re.compile(r"^banyan_(?P<id>[0-9a-f]{12})_(?P<secret>[A-Za-z0-9_-]{43})$")
_PREFIX = re.compile(r"^[A-Za-z0-9._:-]{0,128}$")
_NOBODY = hashlib.sha256(b"").hexdigest()


class Right(StrEnum):
    """What a key allows; each includes nothing of the others but `admin`, which is all."""

    READ = "read"
    WRITE = "write"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key as the file has it."""

    id: str
    """12 hexadecimal digits; no secret."""
    name: str
    """For people."""
    hash: str
    """SHA-256 of the whole key, in hexadecimal."""
    rights: tuple[Right, ...]
    prefixes: tuple[str, ...]
    """What the names of the trees that it reaches begin with; an empty one reaches all."""
    created_at: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None
    rate: float | None = None
    """Requests a second; None for the service's setting."""

    def allows(self, right: Right) -> bool:
        """Whether it has a right."""
        return right in self.rights or Right.ADMIN in self.rights

    def reaches(self, tree: str) -> bool:
        """Whether it may know of a tree of that name."""
        return tree.startswith(self.prefixes)

    def valid(self, now: datetime) -> bool:
        """Whether it lets anybody in."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


ANYBODY = Key(
    id="",
    name="anybody",
    hash=_NOBODY,
    rights=(Right.READ, Right.WRITE, Right.ADMIN),
    prefixes=("",),
    created_at=datetime.fromtimestamp(0, UTC),
)
"""Whoever calls where no keys are asked for."""


class KeyFile:
    """
    The file of keys, for those who change it.

    Args:
        path: made when the first key is.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> list[Key]:
        """
        All keys, revoked ones too; none when there is no file yet.

        Raises:
            SettingError: the file cannot be read as one of keys.
        """
        try:
            content = self.path.read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise SettingError(f"the keys in {self.path} cannot be read: {error.strerror} (BANYAN_SERVE_KEYS_FILE)") from error
        try:
            value = json.loads(content)
            return [_key(each) for each in value["keys"]]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SettingError(
                f"{self.path} is no file of keys ({type(error).__name__}); `banyan keys create` makes one (BANYAN_SERVE_KEYS_FILE)"
            ) from error

    def create(
        self,
        name: str,
        *,
        rights: Sequence[Right],
        prefixes: Sequence[str],
        now: datetime,
        expires_at: datetime | None = None,
        rate: float | None = None,
    ) -> tuple[Key, str]:
        """
        A new key, and its text, which is not to be had again.

        Raises:
            SettingError: the file cannot be changed, or a name or prefix cannot be.
        """
        if not name.strip() or len(name) > NAME_CHARACTERS_MAX or not name.isprintable():
            raise SettingError(f"a key's name has 1 to {NAME_CHARACTERS_MAX} printable characters")
        for prefix in prefixes:
            if not _PREFIX.match(prefix) or prefix.endswith("\n"):
                raise SettingError(f"a prefix has at most 128 of the characters A-Z a-z 0-9 . _ : -, got {prefix[:60]!r}")
        identity = secrets.token_hex(6)
        token = f"banyan_{identity}_{secrets.token_urlsafe(32)}"
        key = Key(
            id=identity,
            name=name.strip(),
            hash=_hash(token),
            rights=tuple(dict.fromkeys(rights)),
            prefixes=tuple(dict.fromkeys(prefixes)),
            created_at=now,
            expires_at=expires_at,
            rate=rate,
        )
        with self._changing() as keys:
            if len(keys) >= KEYS_MAX:
                raise SettingError(f"{self.path} has {len(keys):,} keys, at most {KEYS_MAX:,} are kept; take revoked ones out")
            keys.append(key)
        return key, token

    def revoke(self, identity: str, *, now: datetime) -> Key | None:
        """Let nobody in with this key any more; None when there is no such key."""
        with self._changing() as keys:
            for place, key in enumerate(keys):
                if key.id == identity:
                    keys[place] = key if key.revoked_at is not None else replace(key, revoked_at=now)
                    return keys[place]
        return None

    @contextmanager
    def _changing(self) -> Iterator[list[Key]]:
        """The keys, written back at the end in one step; one process at a time."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.with_name(self.path.name + ".lock").open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                keys = self.read()
                yield keys
                fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.new")
                descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                with os.fdopen(descriptor, "w") as stream:
                    json.dump({"version": 1, "keys": [_plain(key) for key in keys]}, stream, indent=1)
                    stream.flush()
                    os.fsync(stream.fileno())
                fresh.replace(self.path)
        except OSError as error:
            raise SettingError(f"the keys in {self.path} cannot be changed: {error.strerror} (BANYAN_SERVE_KEYS_FILE)") from error


class KeyRing:
    """
    The keys that are let in, as a service asks for them.

    Args:
        file: looked at again every second at most; one that cannot be read leaves the keys as they were.
    """

    def __init__(self, file: KeyFile) -> None:
        self._file = file
        self._keys: dict[str, Key] = {}
        self._stamp: tuple[int, int, int] | None = None
        self._looked = -LOOK_EVERY
        self.problem: str | None = None
        """Why the file could not be read when it was last looked at."""

    def __len__(self) -> int:
        """Keys known, revoked ones too."""
        self._look()
        return len(self._keys)

    def find(self, token: str, now: datetime) -> Key | None:
        """Whose this key is; None when it lets nobody in. Takes as long for a wrong secret as for an unknown key."""
        self._look()
        found = _TOKEN.match(token)
        key = self._keys.get(found["id"]) if found else None
        same = hmac.compare_digest(_hash(token), key.hash if key is not None else _NOBODY)
        return key if same and key is not None and key.valid(now) else None

    def still(self, key: Key, now: datetime) -> bool:
        """Whether a key that was let in earlier would be now."""
        self._look()
        found = self._keys.get(key.id)
        return found is not None and found.valid(now)

    def _look(self) -> None:
        now = time.monotonic()
        if now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        try:
            status = self._file.path.stat()
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        except OSError:
            stamp = (0, 0, 0)
        if stamp == self._stamp:
            return
        try:
            self._keys = {key.id: key for key in self._file.read()}
            self._stamp = stamp
            self.problem = None
        except SettingError as error:
            self.problem = str(error)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(key: Key) -> dict[str, Any]:
    value = asdict(key)
    for name in ("created_at", "expires_at", "revoked_at"):
        value[name] = value[name].isoformat() if value[name] is not None else None
    return value


def _key(value: dict[str, Any]) -> Key:
    times = {name: datetime.fromisoformat(value[name]) for name in ("expires_at", "revoked_at") if value.get(name)}
    return Key(
        id=str(value["id"]),
        name=str(value["name"]),
        hash=str(value["hash"]),
        rights=tuple(Right(each) for each in value["rights"]),
        prefixes=tuple(str(each) for each in value["prefixes"]),
        created_at=datetime.fromisoformat(value["created_at"]),
        rate=None if value.get("rate") is None else float(value["rate"]),
        **times,
    )
