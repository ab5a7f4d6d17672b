"""What a server can do: whether it has the search module, which one, and what is missing."""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.redis.link import Link
from memory.errors import BanyanError

LEAST = (2, 10)
"""The first version with float16 vectors and BM25 as it is used here."""
HYBRID_SINCE = (8, 4, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchModule:
    """The search module of a server."""

    version: tuple[int, int, int]
    workers: int | None
    """Threads that put nodes into graphs beside the server's main thread; None where the server does not say."""
    hybrid: bool
    """Whether it has FT.HYBRID (Redis 8.4). Its answers are scores already fused, so that this project does not use it."""

    @property
    def usable(self) -> bool:
        """Whether it is new enough."""
        return self.version[:2] >= LEAST

    def missing(self) -> list[str]:
        """What is not there, for people."""
        found = []
        if not self.usable:
            found.append(f"search {_dotted(self.version)} is too old: {_dotted(LEAST)} or newer is needed")
        if not self.workers:
            found.append("no WORKERS: while a node is put into a graph the server does nothing else")
        if not self.hybrid:
            found.append("no FT.HYBRID: not needed")
        return found

    def __str__(self) -> str:
        return f"search {_dotted(self.version)}"


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


async def search_module(link: Link) -> SearchModule | None:
    """
    The server's search module; None without one, and on a cluster, where it cannot search within a script.

    Raises:
        StoreUnavailableError: the server is away.
    """
    if link.settings.cluster:
        return None
    loaded = [dict(zip(each[::2], each[1::2], strict=True)) for each in await link.command("MODULE", "LIST")]
    number = next((int(each[b"ver"]) for each in loaded if each[b"name"] in {b"search", b"searchlight"}), None)
    if number is None:
        return None
    version = (number // 10_000, number // 100 % 100, number % 100)
    return SearchModule(version=version, workers=await _workers(link), hybrid=version >= HYBRID_SINCE)


async def _workers(link: Link) -> int | None:
    """The module's WORKERS: a setting of its own, and of the server since Redis 8."""
    for words in (("CONFIG", "GET", "search-workers"), ("FT.CONFIG", "GET", "WORKERS")):
        try:
            answer = await link.command(*words)
        except BanyanError:
            continue
        pair = answer[0] if answer and isinstance(answer[0], list) else answer
        if pair and len(pair) == 2 and pair[1] is not None:
            return int(pair[1])
    return None
