"""The indexes themselves: making them, asking how many nodes they have, and clearing away what is no longer used."""

from __future__ import annotations

import asyncio
from typing import Any

from memory.adapters.redis.link import Link
from memory.adapters.redis.search.keys import OWN, SearchKeys
from memory.adapters.redis.search.schema import create_command, schema
from memory.adapters.redis.search.settings import SearchSettings
from memory.adapters.redis.search.standing import Standing
from memory.errors import BanyanError, StoreDamagedError, StoreUnavailableError

SIZE_KEPT = 30.0  # seconds
"""How long the number of an index's documents is believed; it only moves weights."""
FILLING_MS_MAX = 600_000
"""After which an index that nobody saw filled is taken to be."""
FILLING_PAUSES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)  # seconds
PAGE = 500
"""Keys that are removed at once."""
GONE = ("no such index", "unknown index", "search_index_not_found")
"""What the module says of an index that is not there, in lower case."""
TOO_LONG = "timeout"
"""What it says, likewise, of a search that took longer than it may."""


class Indexes:
    """
    The indexes of one server below one prefix.

    Args:
        link: to it.
        keys: all keys.
        settings: of graphs.
    """

    def __init__(self, link: Link, keys: SearchKeys, settings: SearchSettings) -> None:
        self._link = link
        self._keys = keys
        self._settings = settings
        self._sizes: dict[str, tuple[float, int]] = {}

    async def make(self, standing: Standing) -> None:
        """Make the index that a tree's nodes belong in, unless it is there. One that was lost is filled before it is searched."""
        name, prefix = standing.index(self._keys)
        if not standing.dimension:
            return
        # Asked each time, which is once a tree: whoever flushes the server takes away what was made.
        if name.encode() not in await self._link.command("FT._LIST"):
            first = bool(await self._link.command("SET", self._keys.made(name), "1", "NX"))
            wanted = schema(name=name, prefix=prefix, place=standing.place, dimension=standing.dimension, settings=self._settings)
            if not first:
                await self._link.command("SET", self._keys.filling(name), "1", "PX", FILLING_MS_MAX)
            try:
                await self._link.command(*create_command(wanted, scan=not first))
            except StoreDamagedError as error:
                # Another process may have been faster.
                if "already exists" not in str(error):
                    raise
            if not first:
                await self.filled(name)

    async def filled(self, name: str) -> None:
        """
        Wait for a moment until an index has what it should have.

        Raises:
            StoreUnavailableError: it takes longer.
        """
        for pause in FILLING_PAUSES:
            facts = await self._facts(name)
            if int(facts[b"indexing"]) == 0:
                await self._link.command("DEL", self._keys.filling(name))
                return
            await asyncio.sleep(pause)
        raise StoreUnavailableError("the search index was lost and is being filled; try again", retry_after=1.0)

    async def size(self, name: str) -> int:
        """Documents of an index, as of lately."""
        now = asyncio.get_running_loop().time()
        known = self._sizes.get(name)
        if known is None or now - known[0] > SIZE_KEPT:
            facts = await self._facts(name)
            known = self._sizes[name] = (now, int(float(facts[b"num_docs"])))
        return known[1]

    async def restore(self, said: str, standing: Standing) -> None:
        """
        Make an index again that a search did not find, from the nodes that are there.

        Args:
            said: by the module that refused the search.
            standing: of the tree that was searched.

        Raises:
            StoreUnavailableError: it is being filled, or the search took too long.
            StoreDamagedError: the search was refused for another reason.
        """
        if not _gone(said):
            if TOO_LONG in said.lower():
                raise StoreUnavailableError("the search took too long; try again", retry_after=1.0)
            raise StoreDamagedError(f"RediSearch refused the search: {said[:400]}")
        # The tree has documents, whatever the server knows of the index: it is made from them.
        await self._link.command("SET", self._keys.made(standing.index(self._keys)[0]), "1")
        await self.make(standing)

    async def _facts(self, name: str) -> dict[bytes, Any]:
        """What the module says of an index; of one that is not there, that it has nothing."""
        try:
            said = await self._link.command("FT.INFO", name)
        except BanyanError as error:
            if not _gone(str(error)):
                raise
            return {b"indexing": 0, b"num_docs": 0}
        return dict(zip(said[::2], said[1::2], strict=True))

    async def clear(self) -> None:
        """Remove what indexes that are no longer used have left; also what a process that died was removing."""
        for generation, place in (await self._link.command("HGETALL", self._keys.leftovers)).items():
            number = generation.decode()
            where, dimension = place.decode().split()
            name, _ = self._keys.index(number, where, int(dimension))
            if where == OWN:
                try:
                    await self._link.command("FT.DROPINDEX", name)
                except BanyanError as error:
                    if not _gone(str(error)):
                        raise
                await self._link.command("DEL", self._keys.made(name))
            await self._remove(self._keys.documents(number, where, int(dimension)))
            await self._remove(f"{self._keys.parts}{number}:")
            await self._link.command("HDEL", self._keys.leftovers, number)

    async def wipe(self) -> None:
        """Remove everything below the prefix."""
        mine = f"{self._keys.prefix}:search:".encode()
        for name in await self._link.command("FT._LIST"):
            if name.startswith(mine):
                await self._link.command("FT.DROPINDEX", name)
        await self._remove(self._keys.base)

    async def _remove(self, prefix: str) -> None:
        """Remove all keys that begin so."""
        cursor = b"0"
        while True:
            cursor, found = await self._link.command("SCAN", cursor, "MATCH", f"{prefix}*", "COUNT", PAGE)
            if found:
                await self._link.command("UNLINK", *found)
            if int(cursor) == 0:
                return


def _gone(said: str) -> bool:
    return any(each in said.lower() for each in GONE)
