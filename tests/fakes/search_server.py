"""What the search index says to a Redis with the search module, answered without one: keys, indexes, and what becomes of them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from memory.adapters.redis import Link, RedisSettings
from memory.adapters.redis.pipe import Argument
from memory.errors import StoreDamagedError


class FakeSearchServer(Link):
    """Finds nothing; knows which indexes there are, and whether they were made from the documents that were there."""

    def __init__(self, url: str = "redis://localhost:6379/0") -> None:
        self._settings = RedisSettings(url=url)
        self.indexes: dict[str, bool] = {}
        """By name, whether documents were looked for when it was made."""
        self.values: dict[str, Any] = {}
        self.hashes: dict[str, dict[str, str]] = defaultdict(dict)
        self.scripts_run: list[str] = []

    def flush(self) -> None:
        """Lose everything."""
        self.indexes.clear()
        self.values.clear()
        self.hashes.clear()

    async def command(self, *words: Argument) -> Any:
        name, *given = [str(word) for word in words]
        if name == "DEL":
            name = "UNLINK"
        return getattr(self, name.replace(".", "_").lower())(*given)

    async def commands(self, key: str, commands: Sequence[Sequence[Argument]]) -> list[Any]:
        """No document is there."""
        del key
        return [[None] * (len(words) - 2) for words in commands]

    async def script(
        self, name: str, keys: Sequence[str], *arguments: Argument, again: Sequence[Argument] | None = None, replicas: int = 0
    ) -> Any:
        del again, replicas
        self.scripts_run.append(name)
        return getattr(self, name)(keys, *[str(argument) for argument in arguments])

    async def close(self) -> None:
        """There is nothing to close."""

    # ------------------------------------------------------------------------------------------------------------ commands

    def ft__list(self) -> list[bytes]:
        return [name.encode() for name in self.indexes]

    def ft_create(self, name: str, *words: str) -> None:
        if name in self.indexes:
            raise StoreDamagedError("Index already exists")
        self.indexes[name] = "SKIPINITIALSCAN" not in words

    def ft_info(self, name: str) -> list[bytes]:
        self._need(name)
        return [b"indexing", b"0", b"num_docs", b"0"]

    def ft_dropindex(self, name: str) -> None:
        self._need(name)
        del self.indexes[name]

    def _need(self, name: str) -> None:
        if name not in self.indexes:
            raise StoreDamagedError(f"{name}: no such index")

    def set(self, key: str, value: str, *options: str) -> bool | None:
        if "NX" in options and key in self.values:
            return None
        self.values[key] = value
        return True

    def scan(self, _cursor: str, _match: str, pattern: str, *_count: str) -> tuple[bytes, list[str]]:
        return b"0", [key for key in (*self.values, *self.hashes) if key.startswith(pattern.removesuffix("*"))]

    def unlink(self, *keys: str) -> None:
        for key in keys:
            self.values.pop(key, None)
            self.hashes.pop(key, None)

    def hgetall(self, key: str) -> dict[bytes, bytes]:
        return {name.encode(): value.encode() for name, value in self.hashes[key].items()}

    def hdel(self, key: str, name: str) -> None:
        self.hashes[key].pop(name, None)

    def module(self, _list: str) -> list[list[Any]]:
        return [[b"name", b"search", b"ver", 21_005]]

    def config(self, *_words: str) -> list[bytes]:
        return []

    ft_config = config

    # ------------------------------------------------------------------------------------------------------------- scripts

    def search_standing(self, keys: Sequence[str], *_: str) -> list[Any]:
        if keys[0] not in self.hashes:
            return []
        held = self.hashes[keys[0]]
        names = ("generation", "place", "dimension", "nodes", "texts", "length", "seq", "stamp", "writes")
        return [*(held[name].encode() for name in names), []]

    def search_begin(self, keys: Sequence[str], place: str, dimension: str) -> None:
        if keys[0] in self.hashes:
            return
        made = self.values[keys[1]] = int(self.values.get(keys[1], 0)) + 1
        counts = dict.fromkeys(("seq", "nodes", "texts", "length", "writes"), "0")
        self.hashes[keys[0]] = {"generation": str(made), "place": place, "dimension": dimension, "stamp": "", **counts}

    def search_swap(self, keys: Sequence[str], _generation: str) -> int:
        if (held := self.hashes.pop(keys[0], None)) is not None:
            self.hashes[keys[2]][held["generation"]] = f"{held['place']} {held['dimension']}"
        if keys[1]:
            self.hashes[keys[0]] = self.hashes.pop(keys[1])
        return 1

    def search_write(self, _keys: Sequence[str], *_: str) -> int:
        return 1
