"""The index of all processes that share a Redis with the search module."""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from memory.adapters.redis.link import Link
from memory.adapters.redis.pipe import Argument
from memory.adapters.redis.search.answering import Reply, Statistics, best
from memory.adapters.redis.search.documents import term_code
from memory.adapters.redis.search.indexes import Indexes
from memory.adapters.redis.search.keys import ASIDE, OWN, SHARED, SearchKeys
from memory.adapters.redis.search.packing import packed
from memory.adapters.redis.search.querying import nearest, overfetched, weighed, wordiest
from memory.adapters.redis.search.settings import SearchSettings
from memory.adapters.redis.search.standing import Standing
from memory.adapters.redis.search.writing import Writer
from memory.errors import BanyanError, StoreUnavailableError, TreeMismatchError
from memory.model import NodeId, TreeId, Vector
from memory.ports import index as ports
from memory.ports.index import Candidates, IndexAnswer, IndexEntry, IndexQuery

NONE = Candidates.of(())
REFUSED, FILLING = -1, -2
"""What the script answers when the module refuses, and while the index is being filled."""
READS_MAX = 8
"""Times that a tree which is made anew under a search is looked for again."""


class RediSearchNodeIndex(ports.NodeIndex):
    """
    Vectors, words and fields in RediSearch: a tree's nodes among those of other small trees, or in an index of its own.

    What is found comes from the server; both scores are made here, from what the nodes hold and from the tree's own statistics, so
    that they are the same wherever a tree is, and the same as the embedded index gives. A small tree is compared with exactly; of a
    large one the nearest are found by a graph. What is found is of one moment of the tree; its neighbours may be of a later one.

    One difference from the contract: an update of more than `update_nodes_max` nodes is written in parts, so that others may use
    the server in between, and can be found in parts; the tree covers its commit when all are written.

    Args:
        link: to one server (no cluster) that has the module; closed with the index when `owns_link`.
        tokenize: a text's terms.
        k1: BM25's saturation of repeated terms, 0 or more.
        b: BM25's share of length normalisation, in [0, 1].
        settings: see there.
        owns_link: whether closing the index closes the link.
    """

    def __init__(
        self,
        link: Link,
        *,
        tokenize: Callable[[str], list[str]],
        k1: float = 0.9,
        b: float = 0.4,
        settings: SearchSettings | None = None,
        owns_link: bool = False,
    ) -> None:
        self._link = link
        self._tokenize = tokenize
        self._k1, self._b = k1, b
        self._settings = settings or SearchSettings()
        self._owns_link = owns_link
        self._token = secrets.token_hex(8)
        self._keys = SearchKeys(link.settings.prefix)
        self._indexes = Indexes(link, self._keys, self._settings)
        self._tidying: asyncio.Task[None] | None = None
        self._writer = Writer(link, self._keys, tokenize=tokenize, nodes_max=self._settings.update_nodes_max)

    async def covered(self, tree: TreeId) -> int:  # noqa: D102
        standing = await self._standing(tree)
        return 0 if standing is None else standing.seq

    async def stamp(self, tree: TreeId) -> str:  # noqa: D102
        standing = await self._standing(tree)
        return "" if standing is None else standing.stamp

    async def size(self, tree: TreeId) -> int:  # noqa: D102
        standing = await self._standing(tree)
        return 0 if standing is None else standing.nodes

    async def outgrown(self, tree: TreeId) -> bool:  # noqa: D102
        standing = await self._standing(tree)
        return standing is not None and standing.place == SHARED and standing.nodes >= self._settings.own_from

    async def update(  # noqa: D102
        self,
        tree: TreeId,
        *,
        after: int,
        seq: int,
        upserts: Sequence[IndexEntry],
        removes: Sequence[NodeId] = (),
        stamp: str = "",
    ) -> bool:
        standing = await self._standing(tree)
        if (0 if standing is None else standing.seq) != after:
            return False
        if standing is None or not standing.dimension:
            standing = await self._begin(tree, self._place(len(upserts)), len(upserts[0].vector) if upserts else 0)
            if standing.seq != after:
                return False  # another process began it, and has written
        for entry in upserts:
            if len(entry.vector) != standing.dimension:
                raise TreeMismatchError(
                    f"the index of tree {tree!r} has vectors of dimension {standing.dimension}, and is given one of dimension "
                    f"{len(entry.vector)}"
                )
        return await self._writer.write(tree, standing, seq=seq, upserts=upserts, removes=removes, stamp=stamp)

    async def search(self, tree: TreeId, query: IndexQuery) -> IndexAnswer:  # noqa: D102
        terms = self._terms(query.terms) if query.lexical_k else []
        for _ in range(READS_MAX):
            standing = await self._standing(tree, terms)
            if standing is None:
                return IndexAnswer(seq=0, found=NONE, around=NONE)
            self._check(tree, standing, query.vector)
            searches = await self._searches(standing, query, terms)
            if not searches:
                return IndexAnswer(seq=standing.seq, found=NONE, around=NONE)
            found = await self._read(tree, standing, query, searches=searches)
            if found is None:
                continue
            statistics, rows = found.statistics, found.rows
            chosen = best(rows, standing.generation, statistics, dense=bool(query.dense_k), lexical_k=query.lexical_k)
            read = await self._read(tree, standing, query, nodes=chosen)
            if read is None:
                continue
            candidates = read.candidates(standing.generation, query.vector)
            wanted = set(chosen)
            chosen_rows = [row for row, node in enumerate(candidates.nodes) if node in wanted]
            other_rows = [row for row, node in enumerate(candidates.nodes) if node not in wanted]
            return IndexAnswer(seq=found.seq, found=candidates.take(chosen_rows), around=candidates.take(other_rows))
        raise StoreUnavailableError(f"the index of tree {tree!r} is made anew again and again; try again", retry_after=1.0)

    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Sequence[ports.Candidate]:  # noqa: D102
        for _ in range(READS_MAX):
            standing = await self._standing(tree)
            if standing is None:
                return []
            self._check(tree, standing, query.vector)
            read = await self._read(tree, standing, replace(query, spread=0), nodes=nodes)
            if read is not None:
                return read.candidates(standing.generation, query.vector)
        raise StoreUnavailableError(f"the index of tree {tree!r} is made anew again and again; try again", retry_after=1.0)

    async def speakers(self, tree: TreeId, *, limit: int) -> frozenset[str]:  # noqa: D102
        standing = await self._standing(tree)
        if standing is None or limit < 1:
            return frozenset()
        names = await self._link.command("HRANDFIELD", self._keys.speakers(standing.generation), limit)
        return frozenset(name.decode("utf-8", "surrogatepass") for name in names)

    async def prepare(self, tree: TreeId, *, nodes: int, dimension: int) -> None:  # noqa: D102
        if await self._standing(tree) is None:
            await self._begin(tree, self._place(nodes), dimension)

    async def adopt(self, tree: TreeId, made: TreeId) -> bool:  # noqa: D102
        keys = [self._keys.standing(tree), self._keys.standing(made), self._keys.leftovers]
        if not await self._link.script("search_swap", keys, ""):
            return False
        await self._indexes.clear()
        return True

    async def take_turn(self, tree: TreeId, *, seconds: float) -> bool:  # noqa: D102
        key, ms = self._keys.turn(tree), math.ceil(seconds * 1000)
        if await self._link.command("SET", key, self._token, "NX", "PX", ms):
            return True
        if await self._link.command("GET", key) != self._token.encode():
            return False
        return bool(await self._link.command("PEXPIRE", key, ms))

    async def end_turn(self, tree: TreeId) -> None:  # noqa: D102
        key = self._keys.turn(tree)
        # Between the two another may get the turn, and lose it: some work is then done twice.
        if await self._link.command("GET", key) == self._token.encode():
            await self._link.command("DEL", key)

    async def drop(self, tree: TreeId) -> None:  # noqa: D102
        # With what a process that died was making anew: nobody would ask for it again.
        for each in (tree, TreeId(tree + ASIDE)):
            await self._link.script("search_swap", [self._keys.standing(each), "", self._keys.leftovers], "")
        await self._indexes.clear()

    def tidy(self) -> None:
        """Begin to clear away, beside everything else, what processes that died have left; needs a running loop."""
        if self._tidying is None:
            self._tidying = asyncio.create_task(self._tidy(), name="banyan-index-tidy")

    async def _tidy(self) -> None:
        with suppress(BanyanError):  # it is tried again where the next index is opened
            await self._indexes.clear()

    async def wipe(self) -> None:
        """Remove the whole index, of all trees, and every key of it."""
        await self._indexes.wipe()

    async def close(self) -> None:  # noqa: D102
        if self._tidying is not None:
            self._tidying.cancel()
            await asyncio.gather(self._tidying, return_exceptions=True)
        if self._owns_link:
            await self._link.close()

    # -------------------------------------------------------------------------------------------------------------- making

    def _place(self, nodes: int) -> str:
        """Where a tree of so many nodes belongs."""
        return OWN if nodes >= self._settings.own_from else SHARED

    async def _begin(self, tree: TreeId, place: str, dimension: int) -> Standing:
        """An empty index for the tree, or the one that another process has given it."""
        keys = [self._keys.standing(tree), self._keys.generations]
        await self._link.script("search_begin", keys, place, dimension)
        standing = await self._standing(tree)
        if standing is None:
            raise StoreUnavailableError(f"the index of tree {tree!r} was dropped as it was begun; try again", retry_after=1.0)
        await self._indexes.make(standing)
        return standing

    # ------------------------------------------------------------------------------------------------------------- reading

    def _terms(self, text: str) -> list[str]:
        """The distinct terms of a question, encoded."""
        return list(dict.fromkeys(map(term_code, self._tokenize(text))))

    async def _standing(self, tree: TreeId, terms: Sequence[str] = ()) -> Standing | None:
        answer = await self._link.script("search_standing", [self._keys.standing(tree)], self._keys.parts, *terms)
        return Standing.of(answer)

    def _check(self, tree: TreeId, standing: Standing, vector: Vector) -> None:
        if standing.dimension and len(vector) != standing.dimension:
            raise TreeMismatchError(
                f"the index of tree {tree!r} has vectors of dimension {standing.dimension}, and is asked with one of dimension "
                f"{len(vector)}"
            )

    async def _searches(self, standing: Standing, query: IndexQuery, terms: Sequence[str]) -> list[list[Argument]]:
        """What the server is asked: for the nearest, then for the words."""
        where = standing.where(self._keys)
        condition = where.condition(query.scope)
        if condition is None or not standing.dimension:
            return []
        limit = self._settings.timeout_ms
        asked = []
        if query.dense_k:
            ef = self._settings.ef_runtime
            asked.append(nearest(where, condition, query.vector, query.dense_k, ef_runtime=ef, timeout_ms=limit))
        counts = [(term, count) for term, count in zip(terms, standing.counts, strict=True) if count]
        if counts:
            indexed = standing.nodes if where.place == OWN else await self._indexes.size(where.name)
            weights = weighed(counts, texts=standing.texts, indexed=indexed)
            asked.append(wordiest(where, condition, weights, overfetched(query.lexical_k), timeout_ms=limit))
        return asked

    async def _read(
        self,
        tree: TreeId,
        standing: Standing,
        query: IndexQuery,
        *,
        searches: Sequence[Sequence[Argument]] = (),
        nodes: Sequence[NodeId] = (),
    ) -> Reply | None:
        """What was found, or the named nodes with their neighbours; None when that has to be tried again."""
        keys, generation = self._keys, standing.generation
        terms = self._terms(query.terms)
        answer = await self._link.script(
            "search_read",
            [keys.standing(tree), keys.filling(standing.index(keys)[0])],
            generation,
            standing.documents(keys),
            keys.lines(generation),
            keys.terms(generation),
            query.spread,
            packed({"searches": searches, "nodes": nodes, "terms": terms}),
        )
        if answer[0] < 1:
            if answer[0] == FILLING:
                await self._indexes.filled(standing.index(keys)[0])
            elif answer[0] == REFUSED:
                await self._indexes.restore(answer[1].decode("utf-8", "replace"), standing)
            return None
        _, seq, texts, length, counts, rows = answer
        known = {term.encode(): int(count or 0) for term, count in zip(terms, [*counts, *[None] * len(terms)], strict=False)}
        statistics = Statistics(texts=int(texts), length=int(length), counts=known, k1=self._k1, b=self._b)
        return Reply(int(seq), statistics, rows)
