"""Where trees live: one atomic step to change them, and the reads that planning, summarizing, querying and checking need."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence

from memory.changes import (
    Annotate,
    ChangeSet,
    Cost,
    Create,
    EventEntry,
    Expectation,
    Grow,
    Link,
    LogEntry,
    Move,
    Recall,
    Remove,
    Rewrite,
    Shrink,
    Skeleton,
    Step,
    removed,
    written,
)
from memory.errors import TreeNotFoundError
from memory.model import ROOT, EventId, Mark, Node, NodeId, TreeId, TreeInfo
from memory.ports.leases import Lease
from memory.ports.stored import NO_DIGEST, Applied, Contribution, DirtyNode, News, Pending, Receipt, Seen, Stale, TreeStats

__all__ = [
    "NO_DIGEST",
    "Annotate",
    "Applied",
    "ChangeSet",
    "Contribution",
    "Cost",
    "Create",
    "DirtyNode",
    "EventEntry",
    "Expectation",
    "Grow",
    "Link",
    "LogEntry",
    "Move",
    "News",
    "Pending",
    "Recall",
    "Receipt",
    "Remove",
    "Rewrite",
    "Seen",
    "Shrink",
    "Skeleton",
    "Stale",
    "Step",
    "TreeStats",
    "TreeStore",
]


class TreeStore(ABC):
    """
    Trees, their nodes, events, contributions and change log.

    Every tree has a root from its creation on (`ROOT`, depth 0, no vector). Reads see only whole commits. Calls are safe from
    several tasks and, where the adapter says so, from several processes and machines. Every method may raise
    `StoreUnavailableError` or `StoreBusyError` (try again) and `StoreDamagedError`; methods given a tree raise
    `TreeNotFoundError` when it does not exist, unless said otherwise.
    """

    @abstractmethod
    async def create_tree(self, info: TreeInfo) -> TreeInfo:
        """
        Make a tree with its root, or return the one that is there, unchanged. Idempotent, also when two do it at once.

        The caller compares the answer's structure, model and parameters with what it wanted.
        """

    @abstractmethod
    async def tree(self, tree: TreeId) -> TreeInfo:
        """The tree's identity and its present `seq`."""

    @abstractmethod
    async def trees(self) -> list[TreeInfo]:
        """All trees, by name."""

    @abstractmethod
    async def apply(
        self, changes: ChangeSet, *, lease: Lease | None = None, release: bool = False, after: int | None = None
    ) -> Applied | Seen | Stale:
        """
        Compare and apply, atomically and durably.

        In this order: a lease that is given must still be valid; no event of the set may have been applied or forgotten before, but
        one that the set forgets may have been applied; every expectation must hold; every node to be created must be new, and every
        node named otherwise must exist, a moved, rewritten or removed one below the parent that its step names; a removed summary
        has no child by then; every leaf of an event that the set forgets is removed by it. Then all steps
        are written, versions and routings bumped as the steps say, contributions added, the log extended by one entry, events
        remembered with their receipts, under `seq = previous + 1`. The step at index n (from 0, over all steps) has the mark
        `mark(seq, n)`: a `Create` gives it to its node, a `Grow` or `Recall` to the contributions it adds.

        A set that removes nodes moves `TreeInfo.floor` to its number, and `TreeInfo.redacted`, where that had reached the floor, to
        the number before. The id of a removed node may be used again.

        Args:
            changes: the commit.
            lease: under which it is made.
            release: whether a store that can may give the lease back in the same step, if the set is applied.
            after: the commit that the caller's view is of; a store that can then answers with what the view has missed.

        Returns:
            `Applied`, or `Seen` or `Stale` with nothing written at all.

        Raises:
            LeaseLostError: `lease` expired or was taken over; nothing was written.
            ValueError: the set breaks its own contract (a vector of another dimension or not finite, a leaf without an item, an
                event twice or both applied and forgotten (`check_forgets`), a `Grow`, `Shrink`, `Recall` or `Rewrite` of a node
                that is no summary, `above` for what is no summary, attributes or edges that cannot be: `check_attributes`,
                `check_link`; a `Shrink`, `Recall` or `Remove` in a set that creates or moves nodes); nothing was written.
        """

    @abstractmethod
    async def redact(self, tree: TreeId, nodes: Mapping[NodeId, int], *, to: int) -> None:
        """
        Take what was forgotten out of the change log, and out of what lies on disk beside it.

        In entries with a `seq` up to the one given for a node, the node's vectors (where the log keeps them itself) become zeros,
        and its attributes empty. Done in bounded pieces, each atomic; repeating it changes nothing. When it returns, nothing of
        what these nodes held up to then, nor of what commits removed, is left in any file of the store, and `TreeInfo.redacted` is
        at least `to`.

        Args:
            tree: which.
            nodes: those that commits up to `to` removed, or rewrote in removing others, each with the last commit that may speak of
                what was forgotten.
            to: the commit up to which all that was removed is named here, or was before.

        Raises:
            StoreBusyError: somebody reads what was there before, for longer than the store waits; call again.
        """

    @abstractmethod
    async def receipts(self, tree: TreeId, events: Sequence[EventId]) -> dict[EventId, Receipt]:
        """Receipts of those of the events that were applied or forgotten."""

    async def receipts_among(self, events: Mapping[TreeId, Sequence[EventId]]) -> dict[TreeId, dict[EventId, Receipt]]:
        """`receipts` of several trees, each as of some moment of the call; a store that can asks for them together."""
        found = await asyncio.gather(*(self.receipts(tree, wanted) for tree, wanted in events.items()))
        return dict(zip(events, found, strict=True))

    @abstractmethod
    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> dict[NodeId, Node]:
        """Those of the nodes that exist; `Node.vector` only when asked for."""

    @abstractmethod
    async def children(self, tree: TreeId, node: NodeId, *, limit: int = 1000, after: Mark = Mark(0)) -> list[Node]:  # noqa: B008
        """Children of a node in order of creation, those with a mark above `after`, at most `limit`; without vectors."""

    async def lineage(self, tree: TreeId, ids: Sequence[NodeId]) -> dict[NodeId, Node]:
        """
        Those of the nodes that exist and all nodes above them, in no particular order, the root left out; without vectors.

        As of one commit where the adapter overrides it.
        """
        found: dict[NodeId, Node] = {}
        level = [node for node in dict.fromkeys(ids) if node != ROOT]
        while level:
            read = await self.nodes(tree, level)
            found |= read
            above = dict.fromkeys(node.parent for node in read.values())
            level = [node for node in above if node is not None and node != ROOT and node not in found]
        return found

    async def events_below(self, tree: TreeId, ids: Sequence[NodeId], *, limit: int) -> dict[NodeId, tuple[EventId, ...]]:
        """
        For each of the nodes the events whose leaves lie below it: the nearest first, then the oldest, each once.

        As of one commit where the adapter overrides it.

        Args:
            tree: which.
            ids: nodes; of one that does not exist, or is a leaf, nothing lies below.
            limit: events of one node at most, 1 or more; as many children of one node are looked at.
        """
        below: dict[NodeId, tuple[EventId, ...]] = {}
        for node in ids:
            events: dict[EventId, None] = {}
            level = [node]
            while level and len(events) < limit:
                deeper: list[NodeId] = []
                for parent in level:
                    for child in await self.children(tree, parent, limit=limit - len(events)):
                        if child.item is not None:
                            events[child.item.event_id] = None
                        else:
                            deeper.append(child.id)
                    if len(events) >= limit:
                        break
                level = deeper
            below[node] = tuple(events)
        return below

    @abstractmethod
    def all_nodes(self, tree: TreeId, *, vectors: bool = False) -> AsyncIterator[Node]:
        """Every node, the root included, in order of mark, as of one commit."""

    @abstractmethod
    async def skeleton(self, tree: TreeId) -> Skeleton:
        """What a view is loaded from, as of one commit."""

    @abstractmethod
    async def changes(self, tree: TreeId, after: int, *, limit: int = 1000) -> list[LogEntry]:
        """
        Log entries with `seq` above `after`, ascending, at most `limit`.

        Leaves' vectors are filled in; those of leaves that were removed since are zeros.
        """

    async def news(self, after: Mapping[TreeId, int], *, limit: int = 256) -> dict[TreeId, News]:
        """
        What the commits after the given ones made, rewrote and removed, of several trees, each as of some moment of the call.

        A store that can asks for them together. Trees that do not exist, or whose history was lost (`losses`), are left out.

        Args:
            after: of each tree a commit, 0 for none.
            limit: commits of one tree that are looked at at most.
        """

        async def of(tree: TreeId, covered: int) -> News | None:
            try:
                entries = await self.changes(tree, max(covered - 1, 0), limit=limit + 1)
            except TreeNotFoundError:
                return None
            since = entries[0].at if covered and entries and entries[0].seq == covered else None
            entries = [entry for entry in entries if entry.seq > covered][:limit]
            if not entries:
                return News(since=since, seq=min(covered, (await self.tree(tree)).seq), at=None)
            made = [step.node if isinstance(step, Rewrite) else step.id for entry in entries for step in written(entry)]
            gone = [node for entry in entries for node in removed(entry)]
            found = await self.nodes(tree, list(dict.fromkeys([*made, *gone])), vectors=True)
            return News(
                since=since,
                seq=entries[-1].seq,
                at=entries[-1].at,
                nodes=tuple(found.values()),
                gone=tuple(node for node in dict.fromkeys(gone) if node not in found),
            )

        found = await asyncio.gather(*(of(tree, covered) for tree, covered in after.items()))
        return {tree: news for tree, news in zip(after, found, strict=True) if news is not None}

    @abstractmethod
    async def contributions(self, tree: TreeId, node: NodeId, *, limit: int = 10_000) -> list[Contribution]:
        """The node's contributions, oldest first; empty when there are none."""

    @abstractmethod
    async def dirty(self, tree: TreeId, *, limit: int = 1000) -> list[DirtyNode]:
        """Summary nodes with contributions, deepest first, then oldest first."""

    @abstractmethod
    async def events(self, tree: TreeId) -> dict[EventId, tuple[NodeId, ...]]:
        """Every applied event with its leaves, and every forgotten one with none; for `check`."""

    @abstractmethod
    async def links(self, tree: TreeId) -> tuple[Link, ...]:
        """Every `Link` with edges, in the order in which they were made, as of one commit; empty where the structure has none."""

    @abstractmethod
    async def stats(self, tree: TreeId) -> TreeStats:
        """Counts over the tree."""

    async def pending(self) -> Pending:
        """What waits to be summarized in all trees, each as of some moment of the call; takes a look at every tree."""
        trees = contributions = nodes = 0
        for info in await self.trees():
            try:
                stats = await self.stats(info.id)
            except TreeNotFoundError:
                continue
            trees, contributions, nodes = trees + 1, contributions + stats.pending, nodes + stats.dirty
        return Pending(trees=trees, contributions=contributions, nodes=nodes)

    def losses(self, tree: TreeId) -> int:  # noqa: ARG002
        """
        How often this object has found that the store lost commits of the tree which it had seen, as after a failover.

        One caller is told of each by a `StoreUnavailableError`; whoever else keeps what it once read of the log compares this
        number, and starts anew when it has grown. Always 0 where nothing can be lost.
        """
        return 0

    @abstractmethod
    async def close(self) -> None:
        """Release what the store holds; idempotent."""
