"""Nested values with bytes in them, packed for a script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memory.adapters.redis.codec import encode, for_lua


def packed(value: Mapping[str, Any]) -> bytes:
    """MessagePack that the server's Lua understands; lists, tuples and mappings may hold bytes anywhere."""
    return encode(_plain(value))


def _plain(value: Any) -> Any:
    match value:
        case bytes():
            return for_lua(value)
        case str():
            return value
        case Mapping():
            return {name: _plain(each) for name, each in value.items()}
        case Sequence():
            return [_plain(each) for each in value]
        case _:
            return value
