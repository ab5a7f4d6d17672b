"""What the settings say of Redis, in the words of its adapter."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from memory.errors import SettingError

if TYPE_CHECKING:
    from memory.adapters.redis import RedisSettings
    from streams.settings import Settings

_CREDENTIALS = frozenset({"user", "password"})


def redis_settings(settings: Settings) -> RedisSettings:
    """
    The adapter's settings; a user and a password that are set on their own become a part of the address.

    Raises:
        SettingError: the address or a setting cannot be used, or a user or password is there twice; never shows a password.
    """
    from memory.adapters.redis import RedisSettings  # noqa: PLC0415  # an optional extra

    options = settings.redis
    given = {each.name: getattr(options, each.name) for each in fields(options) if each.name not in _CREDENTIALS}
    return RedisSettings(url=_address(settings), **given)


def _address(settings: Settings) -> str:
    user, password = settings.redis.user, settings.redis.password
    if user is None and password is None:
        return settings.store
    if password is None:
        raise SettingError("BANYAN_REDIS_USER is set without BANYAN_REDIS_PASSWORD")
    parts = urlsplit(settings.store)
    if "@" in parts.netloc:
        raise SettingError("BANYAN_REDIS_PASSWORD is set, and the address in BANYAN_STORE has a user too: leave one out")
    shown = f"{quote(user or '', safe='')}:{quote(password.reveal(), safe='')}@{parts.netloc}"
    return settings.store.replace(f"://{parts.netloc}", f"://{shown}", 1)
