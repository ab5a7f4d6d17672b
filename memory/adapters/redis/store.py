"""Trees in Redis."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from memory.adapters.codec import STORED
from memory.adapters.redis import news, pending, redacting, snapshot, statistics
from memory.adapters.redis.codec import (
    NUMBER,
    ROW,
    decode_node,
    decode_receipt,
    decode_tree,
    encode,
    encode_content,
    encode_tree,
    root_row,
)
from memory.adapters.redis.folding import fold
from memory.adapters.redis.history import History
from memory.adapters.redis.keys import TreeKeys, trees_key
from memory.adapters.redis.link import Link
from memory.adapters.redis.log_codec import decode_entry
from memory.adapters.redis.pipe import Argument
from memory.changes import Link as Edges
from memory.errors import LeaseLostError, TreeNotFoundError
from memory.model import EventId, Mark, Node, NodeId, TreeId, TreeInfo
from memory.ports.leases import Lease
from memory.ports.store import (
    Applied,
    ChangeSet,
    Contribution,
    DirtyNode,
    LogEntry,
    News,
    Pending,
    Receipt,
    Seen,
    Skeleton,
    Stale,
    TreeStats,
    TreeStore,
)

IDS_PER_READ = 1000
"""Nodes or receipts that one script looks up at most."""
TREES_PER_READ = 1000
EVENTS_PER_READ = 1000
LOG_BYTES_PER_READ = 4 << 20
MISSED_MAX = 64
MISSED_BYTES = 256 << 10
"""Log entries that a commit's answer brings at most; a view that lacks more reads the log."""
CHILDREN_PER_READ = 1000


class RedisTreeStore(TreeStore):
    """
    Trees in Redis; used by any number of processes and machines at once.

    A commit is one script. It is acknowledged when the server has it in memory; what that outlives is the server's `appendfsync`
    and the setting `wait_replicas` (docs/redis.md). A call during an outage is tried again for `patience`; a commit whose answer
    was lost is recognised by its name in the log. A commit without a lease, or beyond its lease, is refused as `Stale` when it adds
    or moves children of a node that another's lease has; one that only rewrites is not: its text is paid for, and its expectation
    suffices.

    More than 1,000 nodes or receipts asked for at once are read in parts, each of one commit. `TreeStats.bytes` is estimated by
    `MEMORY USAGE` of the tree's large keys and a sample of its small ones.

    Args:
        link: to Redis; closed with the store.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._history = History()

    def _keys(self, tree: TreeId) -> TreeKeys:
        return self._link.keys(tree)

    async def create_tree(self, info: TreeInfo) -> TreeInfo:
        """Make a tree, or return the one that is there."""
        keys = self._keys(info.id)
        # The list of trees may lie on another node of a cluster. Naming the tree there first means that one that exists is listed.
        await self._link.command("ZADD", trees_key(self._link.settings.prefix), 0, info.id)
        identity, *state = await self._link.script(
            "create",
            [keys.identity, keys.state, keys.nodes, keys.content, keys.order],
            encode_tree(info),
            info.model.dimension,
            root_row(),
            bytes(info.model.dimension * STORED.itemsize) + encode_content("", None),
        )
        return decode_tree(info.id, identity, *state)

    async def tree(self, tree: TreeId) -> TreeInfo:
        """One tree."""
        found = await self._tree(tree)
        if found is None:
            raise _no_tree(tree)
        return found

    async def _tree(self, tree: TreeId) -> TreeInfo | None:
        keys = self._keys(tree)
        identity, *state = await self._link.script("info", [keys.identity, keys.state])
        return None if identity is None else decode_tree(tree, identity, *state)

    async def trees(self) -> list[TreeInfo]:
        """All trees, by name."""
        key = trees_key(self._link.settings.prefix)
        found: list[TreeInfo] = []
        after = "-"
        while names := await self._link.command("ZRANGE", key, after, "+", "BYLEX", "LIMIT", 0, TREES_PER_READ):
            for name in names:
                info = await self._tree(TreeId(name.decode()))
                if info is not None:
                    found.append(info)
            after = f"({names[-1].decode()}"
        return found

    async def apply(
        self, changes: ChangeSet, *, lease: Lease | None = None, release: bool = False, after: int | None = None
    ) -> Applied | Seen | Stale:
        """Compare and apply."""
        keys = self._keys(changes.tree)
        folded = fold(changes, keys)
        name = secrets.token_bytes(8)
        settings = self._link.settings
        given: tuple[Argument, ...] = (folded.request, folded.names, folded.body, name)
        token = "" if lease is None else str(lease.token)
        covered = int(settings.wait_replicas > 0)
        script_keys = [
            keys.state,
            keys.nodes,
            keys.content,
            keys.events,
            keys.order,
            keys.log,
            keys.bodies,
            keys.dirty,
            keys.strays,
            *keys.leases,
            *folded.keys,
        ]
        rest = (
            covered,
            int(settings.leases_bind),
            *self._history.seen(changes.tree),
            -1 if after is None else after,
            MISSED_MAX,
            MISSED_BYTES,
            int(release and lease is not None),
            keys.wake,
        )
        first, again = (*given, token, 0, *rest), (*given, token, 1, *rest)
        answer = await self._run("apply", changes.tree, script_keys, *first, again=again, replicas=settings.wait_replicas)
        match answer:
            case [1, seq, dimension, released, missed]:
                self._history.add(changes.tree, int(seq), name)
                return Applied(seq=int(seq), missed=_entries(missed, dimension), released=released == b"1")
            case [2, *flat]:
                receipts = [decode_receipt(flat[at].decode(), flat[at + 1]) for at in range(0, len(flat), 2)]
                return Seen(receipts={receipt.event_id: receipt for receipt in receipts})
            case [3, seq, dimension, head, nodes, missed]:
                self._history.add(changes.tree, int(seq), head)
                return Stale(nodes=tuple(NodeId(node.decode()) for node in nodes), seq=int(seq), missed=_entries(missed, dimension))
            case [4, node]:
                raise ValueError(
                    f"node {node.decode()}: only summaries grow, shrink and are rewritten, and only leaves make them so"
                )
            case [5, dimension]:
                raise ValueError(f"vectors must have the shape ({dimension},)")
            case [7]:
                raise self._history.lost(changes.tree)
            case _:
                raise LeaseLostError(f"the lease on {changes.tree} has ended; nothing was written")

    async def receipts(self, tree: TreeId, events: Sequence[EventId]) -> dict[EventId, Receipt]:
        """Receipts of applied events."""
        keys = self._keys(tree)
        found: dict[EventId, Receipt] = {}
        for start in range(0, max(len(events), 1), IDS_PER_READ):
            some = events[start : start + IDS_PER_READ]
            answers = await self._run("receipts", tree, [keys.state, keys.events], encode(some))
            found |= {event: decode_receipt(event, data) for event, data in zip(some, answers, strict=True) if data is not None}
        return found

    async def receipts_among(self, events: Mapping[TreeId, Sequence[EventId]]) -> dict[TreeId, dict[EventId, Receipt]]:
        """Receipts of several trees, asked for together."""
        if any(len(wanted) > IDS_PER_READ for wanted in events.values()):
            return await super().receipts_among(events)
        calls = []
        for tree, wanted in events.items():
            keys = self._keys(tree)
            calls.append(((keys.state, keys.events), (encode(wanted),)))
        answers = await self._link.scripts("receipts", calls)
        found: dict[TreeId, dict[EventId, Receipt]] = {}
        for (tree, wanted), answer in zip(events.items(), answers, strict=True):
            if isinstance(answer, TreeNotFoundError):
                raise _no_tree(tree) from answer
            if isinstance(answer, BaseException):
                raise answer
            pairs = zip(wanted, answer, strict=True)
            found[tree] = {event: decode_receipt(event, data) for event, data in pairs if data is not None}
        return found

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> dict[NodeId, Node]:
        """Nodes by id."""
        keys = self._keys(tree)
        found: dict[NodeId, Node] = {}
        for start in range(0, max(len(ids), 1), IDS_PER_READ):
            some = ids[start : start + IDS_PER_READ]
            dimension, *flat = await self._run(
                "nodes", tree, [keys.state, keys.nodes, keys.content], encode(some), "b" if vectors else "c"
            )
            for at, node in enumerate(some):
                if flat[2 * at] is not None:
                    found[node] = decode_node(node, flat[2 * at], flat[2 * at + 1], dimension=dimension, vector=vectors)
        return found

    async def lineage(self, tree: TreeId, ids: Sequence[NodeId]) -> dict[NodeId, Node]:
        """Nodes and all above them, in one read for every 1,000 nodes that are asked for."""
        keys = self._keys(tree)
        found: dict[NodeId, Node] = {}
        for start in range(0, max(len(ids), 1), IDS_PER_READ):
            flat = await self._run(
                "lineage", tree, [keys.state, keys.nodes, keys.content], encode(ids[start : start + IDS_PER_READ])
            )
            for at in range(0, len(flat), 3):
                node = NodeId(flat[at].decode())
                found[node] = decode_node(node, flat[at + 1], flat[at + 2], dimension=0, vector=False)
        return found

    async def children(self, tree: TreeId, node: NodeId, *, limit: int = 1000, after: Mark = Mark(0)) -> list[Node]:  # noqa: B008
        """Children in order of creation."""
        keys = self._keys(tree)
        found: list[Node] = []
        while len(found) < limit or not found:
            wanted = max(min(limit - len(found), CHILDREN_PER_READ), 0)
            flat = await self._run(
                "children", tree, [keys.state, keys.nodes, keys.content, keys.children(node)], int(after), wanted
            )
            found += [
                decode_node(NodeId(flat[at].decode()), flat[at + 1], flat[at + 2], dimension=0, vector=False)
                for at in range(0, len(flat), 3)
            ]
            if len(flat) < 3 * CHILDREN_PER_READ:
                break
            after = found[-1].mark
        return found

    async def all_nodes(self, tree: TreeId, *, vectors: bool = False) -> AsyncIterator[Node]:
        """
        Every node in order of mark, as of one commit.

        The tree is read before the first node is given, into memory up to 32 MB and into a temporary file beyond.
        """
        try:
            async for node in snapshot.all_nodes(self._link, tree, vectors=vectors):
                yield node
        except TreeNotFoundError as error:
            raise _no_tree(tree) from error

    async def skeleton(self, tree: TreeId) -> Skeleton:
        """The tree in columns."""
        try:
            return await snapshot.skeleton(self._link, tree)
        except TreeNotFoundError as error:
            raise _no_tree(tree) from error

    async def changes(self, tree: TreeId, after: int, *, limit: int = 1000) -> list[LogEntry]:
        """Log entries."""
        keys = self._keys(tree)
        entries: list[LogEntry] = []
        while True:
            answer = await self._run(
                "log",
                tree,
                [keys.state, keys.nodes, keys.content, keys.log, keys.bodies],
                max(after, 0),
                limit - len(entries),
                LOG_BYTES_PER_READ,
                *self._history.seen(tree),
            )
            if not answer:
                raise self._history.lost(tree)
            dimension, more, last, name, *found = answer
            self._history.add(tree, int(last), name)
            entries += _entries(found, dimension)
            if not more or len(entries) >= limit:
                return entries
            after = entries[-1].seq

    async def redact(self, tree: TreeId, nodes: Mapping[NodeId, int], *, to: int) -> None:
        """
        Redact the log, some entries a script.

        An append-only file has what was there until it is rewritten, and so have copies of it (docs/redis.md).
        """
        try:
            await redacting.redact(self._link, tree, nodes, to=to)
        except TreeNotFoundError as error:
            raise _no_tree(tree) from error

    async def news(self, after: Mapping[TreeId, int], *, limit: int = 256) -> dict[TreeId, News]:
        """What commits made, rewrote and removed, in two rounds for all trees."""
        return await news.news(self._link, self._history, after, limit=limit)

    async def contributions(self, tree: TreeId, node: NodeId, *, limit: int = 10_000) -> list[Contribution]:
        """Contributions of a node."""
        keys = self._keys(tree)
        found = await self._run("contributions", tree, [keys.state, keys.contributions(node)], limit)
        return [Contribution(mark=Mark(int(NUMBER.unpack_from(one)[0])), leaf=NodeId(one[NUMBER.size :].decode())) for one in found]

    async def dirty(self, tree: TreeId, *, limit: int = 1000) -> list[DirtyNode]:
        """Nodes with contributions."""
        keys = self._keys(tree)
        flat = await self._run("dirty", tree, [keys.state, keys.nodes, keys.dirty], limit)
        found: list[DirtyNode] = []
        for at in range(0, len(flat), 2):
            row = ROW.unpack_from(flat[at + 1])
            oldest = Mark(int(NUMBER.unpack_from(flat[at])[0]))
            found.append(DirtyNode(node=NodeId(flat[at][2 * NUMBER.size :].decode()), depth=row[2], pending=row[6], oldest=oldest))
        return found

    async def events(self, tree: TreeId) -> dict[EventId, tuple[NodeId, ...]]:
        """Every applied event, as of when the reading began."""
        seq = (await self.tree(tree)).seq
        found: list[Receipt] = []
        cursor: int | bytes = 0
        while True:
            cursor, some = await self._link.command("HSCAN", self._keys(tree).events, cursor, "COUNT", EVENTS_PER_READ)
            found += [decode_receipt(event.decode(), data) for event, data in some.items()]
            if int(cursor) == 0:
                break
        found.sort(key=lambda receipt: receipt.seq)
        return {receipt.event_id: receipt.leaves for receipt in found if receipt.seq <= seq}

    async def links(self, tree: TreeId) -> tuple[Edges, ...]:
        """Edges of the association graph."""
        await self.tree(tree)
        return await snapshot.links(self._link, tree)

    async def stats(self, tree: TreeId) -> TreeStats:
        """Counts over the tree."""
        try:
            return await statistics.stats(self._link, tree)
        except TreeNotFoundError as error:
            raise _no_tree(tree) from error

    async def pending(self) -> Pending:
        """What waits to be summarized, of many trees in one round."""
        return await pending.pending(self._link)

    def losses(self, tree: TreeId) -> int:
        """Histories of the tree that this process saw and the server lost."""
        return self._history.losses[tree]

    async def close(self) -> None:
        """Close the link; idempotent."""
        await self._link.close()

    async def _run(
        self,
        name: str,
        tree: TreeId,
        keys: Sequence[str],
        *arguments: Argument,
        again: Sequence[Argument] | None = None,
        replicas: int = 0,
    ) -> list[Any]:
        try:
            answer: list[Any] = await self._link.script(name, keys, *arguments, again=again, replicas=replicas)
        except TreeNotFoundError as error:
            raise _no_tree(tree) from error
        return answer


def _entries(found: Sequence[Sequence[bytes]], dimension: int) -> tuple[LogEntry, ...]:
    return tuple([decode_entry(seq, names, body, leaves, dimension) for seq, names, body, leaves in found])


def _no_tree(tree: TreeId) -> TreeNotFoundError:
    return TreeNotFoundError(f"there is no tree {tree!r} in this store")
