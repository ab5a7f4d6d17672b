"""
All nodes of a tree as of one commit, read in pages.

Redis has no snapshots, so pages that are read while others commit are of several commits. What was committed since the first page
is in the log: the nodes it names are read again, until one script finds in one step that nothing more was committed, and gives the
last of them. Everything is then as of that commit, and no script had more to do than a page.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, NamedTuple

import msgspec
import numpy as np

from memory.adapters.codec import KINDS, STORED
from memory.adapters.redis.codec import ROW, decode_link, decode_node, decode_tail, encode
from memory.adapters.redis.keys import TreeKeys
from memory.adapters.redis.link import Link
from memory.changes import Link as Edges
from memory.errors import StoreBusyError
from memory.model import MARK_BITS, ROOT, Attributes, Mark, Node, NodeId, TreeId
from memory.ports.store import Skeleton

PAGE = 500
"""Nodes a script reads at most: half a millisecond of the server."""
LINKS_PER_READ = 1_000
COMMITS = 200
"""Commits a script looks through at most."""
ROUNDS_MAX = 200
MEMORY_MAX = 32 << 20
"""Bytes of a tree that are read into memory; more go to a temporary file."""


class Raw(NamedTuple):
    """A node as stored."""

    id: bytes
    row: bytes | None
    """None for a node that was removed."""
    content: bytes

    @property
    def mark(self) -> float:
        """When it was made; below all others for one that was removed."""
        return -1.0 if self.row is None else float(ROW.unpack_from(self.row)[7])


class Spool:
    """Nodes in order, of any number: in memory, then in a file; a later one of the same id takes the place of an earlier."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.SpooledTemporaryFile(MEMORY_MAX)  # noqa: SIM115  # closed by close()
        self._again: dict[bytes, Raw] = {}
        self._count = 0
        self._decode = msgspec.msgpack.Decoder(Raw).decode

    def add(self, page: list[Raw]) -> None:
        """Add nodes that were not read before."""
        for raw in page:
            data = encode(raw)
            self._file.write(len(data).to_bytes(4, "big") + data)
        self._count += len(page)

    def replace(self, page: list[Raw]) -> None:
        """Add nodes that may have been read before."""
        self._again.update((raw.id, raw) for raw in page)

    def __iter__(self) -> Iterator[Raw]:
        """All nodes in order of mark."""
        self._file.seek(0)
        again = dict(self._again)
        for _ in range(self._count):
            raw = self._decode(self._file.read(int.from_bytes(self._file.read(4), "big")))
            later = again.get(raw.id, raw)
            if later.mark == raw.mark:
                again.pop(raw.id, None)
                yield later
        # Those made meanwhile; a removed one's id may be another's by then.
        yield from sorted((raw for raw in again.values() if raw.row is not None), key=lambda raw: raw.mark)

    def close(self) -> None:
        """Give the memory or the file back."""
        self._file.close()


class Snapshot:
    """
    One reading of a tree.

    Args:
        link: to Redis.
        tree: whose nodes.
        parts: "v" vectors, "c" texts and items, "b" both.
    """

    def __init__(self, link: Link, tree: TreeId, parts: str) -> None:
        self._link = link
        self._keys: TreeKeys = link.keys(tree)
        self._tree = tree
        self._parts = parts
        self._spool = Spool()
        self._first: int | None = None
        """Commit that the oldest of the pages is of."""
        self.seq = 0
        self.dimension = 0

    async def read(self) -> Iterator[Raw]:
        """
        All nodes in order of mark.

        Raises:
            StoreBusyError: commits kept coming faster than they could be read.
        """
        start, wanted = 0, 1
        while start < wanted:
            answer: list[Any] = await self._script(
                "page", [self._keys.state, self._keys.nodes, self._keys.content, self._keys.order], start, PAGE, self._parts
            )
            seq, count, self.dimension, *flat = answer
            self.seq = int(seq)
            if self._first is None:
                self._first, wanted = self.seq, int(count)  # nodes made later are in the log
            page = _raws(flat)
            self._spool.add(page)
            start += PAGE
        if self._first != self.seq or start > PAGE:
            await self._repair()
        return iter(self._spool)

    def close(self) -> None:
        """Give up what was read."""
        self._spool.close()

    async def _repair(self) -> None:
        """Read again what commits since the first page touched."""
        assert self._first is not None
        after, touched = self._first, dict[bytes, None]()
        for _ in range(ROUNDS_MAX):
            asked = list(touched) if len(touched) <= PAGE else []
            seq, whole, *rest = await self._script(
                "touched",
                [self._keys.state, self._keys.nodes, self._keys.content, self._keys.log],
                after,
                COMMITS,
                PAGE,
                self._parts,
                encode([name.decode() for name in asked]),
            )
            if whole and len(asked) == len(touched):
                self.seq = int(seq)
                self._spool.replace(_raws(rest[1:]))
                return
            if whole:
                # Too many for one step: read them in pages, then see what was committed meanwhile.
                after = int(seq)
                touched.update(dict.fromkeys(rest[1::3]))
                names = list(touched)
                for start in range(0, len(names), PAGE):
                    await self._again(names[start : start + PAGE])
                touched = {}
            else:
                after = int(seq)
                touched.update(dict.fromkeys(rest))
        raise StoreBusyError(f"tree {self._tree}: commits kept coming faster than the tree could be read", retry_after=1.0)

    async def _again(self, names: list[bytes]) -> None:
        _, *flat = await self._script(
            "nodes",
            [self._keys.state, self._keys.nodes, self._keys.content],
            encode([name.decode() for name in names]),
            self._parts,
        )
        self._spool.replace([Raw(name, flat[2 * at], flat[2 * at + 1]) for at, name in enumerate(names)])

    async def _script(self, name: str, keys: list[str], *arguments: str | bytes | int) -> list[bytes]:
        answer: list[bytes] = await self._link.script(name, keys, *arguments)
        return answer


def _raws(flat: list[bytes]) -> list[Raw]:
    return [Raw(*flat[at : at + 3]) for at in range(0, len(flat), 3)]


async def all_nodes(link: Link, tree: TreeId, *, vectors: bool) -> AsyncIterator[Node]:
    """Every node in order of mark, as of one commit."""
    snapshot = Snapshot(link, tree, "b" if vectors else "c")
    try:
        for raw in await snapshot.read():
            assert raw.row is not None
            yield decode_node(NodeId(raw.id.decode()), raw.row, raw.content, dimension=snapshot.dimension, vector=vectors)
    finally:
        with suppress(OSError):
            snapshot.close()


async def skeleton(link: Link, tree: TreeId) -> Skeleton:
    """The tree in columns."""
    snapshot = Snapshot(link, tree, "v")
    ids: list[NodeId] = []
    parents: list[NodeId | None] = []
    counters: list[tuple[int, ...]] = []
    attributes: dict[NodeId, Attributes] = {}
    marks: dict[NodeId, int] = {}
    vectors = bytearray()
    try:
        for raw in await snapshot.read():
            assert raw.row is not None
            name = NodeId(raw.id.decode())
            ids.append(name)
            parent, own = decode_tail(raw.row)
            parents.append(None if name == ROOT else parent)
            if own:
                attributes[name] = own
            kind, _, depth, version, routing, descendants, _, mark, _ = ROW.unpack_from(raw.row)
            marks[name] = int(mark)
            counters.append((kind, depth, version, routing, descendants))
            vectors += raw.content
    finally:
        snapshot.close()
    kinds, *columns = np.array(counters, np.int64).T
    depths, versions, routings, descendants = columns
    return Skeleton(
        seq=snapshot.seq,
        ids=ids,
        parents=parents,
        kinds=[KINDS[kind] for kind in kinds],
        depths=depths.astype(np.int32),
        versions=versions.copy(),
        routings=routings.copy(),
        descendants=descendants.copy(),
        vectors=np.frombuffer(bytes(vectors), STORED).reshape(len(ids), snapshot.dimension).astype(np.float16, copy=False),
        attributes=attributes,
        links=standing(await made_links(link, tree, through=snapshot.seq), marks),
    )


async def links(link: Link, tree: TreeId) -> tuple[Edges, ...]:
    """Edges between nodes that are there, in the order of their making, as of one commit."""
    keys = link.keys(tree)
    for _ in range(ROUNDS_MAX):
        _, seq, floor, _ = await link.script("info", [keys.identity, keys.state])
        made = await made_links(link, tree, through=int(seq or 0))
        if not floor:
            return tuple(edges for _, edges in made)
        marks: dict[NodeId, int] = {}
        names = list({name for _, edges in made for name in (edges.node, *edges.others)})
        for start in range(0, len(names), PAGE):
            some = names[start : start + PAGE]
            _, *flat = await link.script("nodes", [keys.state, keys.nodes, keys.content], encode(some), "n")
            rows = zip(some, flat[::2], strict=True)
            marks |= {name: int(ROW.unpack_from(row)[7]) for name, row in rows if row is not None}
        if (await link.script("info", [keys.identity, keys.state]))[2] == floor:
            return standing(made, marks)
    raise StoreBusyError(f"tree {tree}: nodes were removed again and again while its edges were read", retry_after=1.0)


async def made_links(link: Link, tree: TreeId, *, through: int) -> list[tuple[Mark, Edges]]:
    """Edges as they were made, up to a commit, each with its mark; the list only grows, so that pages fit together."""
    key = link.keys(tree).links
    found: list[tuple[Mark, Edges]] = []
    start = 0
    while page := await link.command("LRANGE", key, start, start + LINKS_PER_READ - 1):
        found += [(at, edges) for at, edges in map(decode_link, page) if at >> MARK_BITS <= through]
        if len(page) < LINKS_PER_READ:
            break
        start += len(page)
    return found


def standing(made: Sequence[tuple[Mark, Edges]], marks: Mapping[NodeId, int]) -> tuple[Edges, ...]:
    """
    Edges whose ends are there.

    Args:
        made: edges, each with its mark.
        marks: of the nodes that are there; one made after an edge has the id of one that was removed.
    """
    found = []
    for at, edges in made:
        if marks.get(edges.node, at) >= at:
            continue
        kept = [place for place, other in enumerate(edges.others) if marks.get(other, at) < at]
        if len(kept) == len(edges.others):
            found.append(edges)
        elif kept:
            weights = tuple(edges.weights[place] for place in kept) if edges.weights else ()
            found.append(Edges(node=edges.node, others=tuple(edges.others[place] for place in kept), weights=weights))
    return tuple(found)
