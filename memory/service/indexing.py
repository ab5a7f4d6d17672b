"""Keeps the index level with the store: a commit can be found as soon as it is acknowledged, by any process."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from weakref import WeakValueDictionary

from memory.changes import Create, LogEntry, Remove, Rewrite
from memory.errors import StoreBusyError, TreeNotFoundError
from memory.model import Node, NodeId, NodeKind, TreeId, mark
from memory.ports.index import IndexEntry, IndexUpdate, NodeIndex
from memory.ports.store import TreeStore
from memory.retrieval.text import lexical_text

ASIDE = "~new"
"""Added to a tree's name while its index is made anew; no tree's name has a tilde."""
CHANGES_PER_UPDATE = 256
"""Commits that one update of the index takes over: enough to share its fixed cost, few enough to let a query in between."""

TOLD_MAX = 16_000_000
"""Characters and bytes of vectors of commits that were told of and are not indexed yet; of older ones the store is asked."""


TURN = 5.0
"""Seconds that one process has to bring a tree level, before another that waits for it goes to work beside it."""
TURN_PAUSES = (0.002, 0.005, 0.01, *[0.02] * 100)
"""Seconds between two looks at what another process is doing; at their end this one goes to work."""

FOLLOWED_MAX = 100_000
"""Trees that are remembered as followed; with more, all are compared anew."""


class Indexing:
    """
    Brings the index up to the store's last commit, from the change log.

    Args:
        store: the truth.
        index: what is derived from it.
    """

    def __init__(self, *, store: TreeStore, index: NodeIndex) -> None:
        self._store = store
        self._index = index
        self._locks: WeakValueDictionary[TreeId, asyncio.Lock] = WeakValueDictionary()
        self._compared: set[TreeId] = set()
        """Trees whose index was found to be of this store's history."""
        self._told: OrderedDict[tuple[TreeId, int], tuple[LogEntry, int]] = OrderedDict()
        """Commits of this process by tree and number, and their sizes."""
        self._told_size = 0
        self._outgrown: Callable[[TreeId], None] | None = None
        self._standings: dict[TreeId, tuple[int, str]] = {}
        """Of the trees that are followed, the commit that their index was last seen to cover, and its stamp."""

    def committed(self, tree: TreeId, entry: LogEntry) -> None:
        """
        A commit that this process has made, with the texts and items of the nodes that it created.

        The index then takes them from here instead of reading them back: a third of what following ingestion costs.
        """
        made = [step for step in entry.steps if isinstance(step, Create)]
        size = sum(len(step.text) + step.vector.nbytes for step in made)
        self._told[tree, entry.seq] = entry, size
        self._told_size += size
        while self._told_size > TOLD_MAX:
            _, (_, size) = self._told.popitem(last=False)
            self._told_size -= size

    def forget(self, tree: TreeId) -> None:
        """Let go of a tree's commits that were told of: they may speak of what the tree has forgotten."""
        for key in [key for key in self._told if key[0] == tree]:
            self._told_size -= self._told.pop(key)[1]

    async def catch_up(self, tree: TreeId, *, to: int | None = None) -> int:
        """
        Bring the index to commit `to` at least (None: the store's last one, as of now) and return what it covers.

        An index of another history is dropped and made anew: the store was restored from an older copy, say, and has gone on from
        there. That is looked at when a tree is first asked for, and whenever the index does not stand where the store does.
        """
        target = to if to is not None else (await self._store.tree(tree)).seq
        covered = await self._index.covered(tree)
        if covered == target and tree in self._compared:
            return covered
        lock = self._locks.setdefault(tree, asyncio.Lock())
        async with lock:
            covered = await self._standing(tree)
            self._compared.add(tree)
            if covered < target:
                covered = await self._waited(tree, covered, target)
            if covered < target:
                try:
                    covered = await self._brought(tree, covered, target)
                finally:
                    await self._index.end_turn(tree)
                await self._look_at_size(tree)
            return covered

    async def expunge(self, tree: TreeId) -> None:
        """
        Have what is gone from a tree leave the disk too. An index that is being made anew, or was left half made, begins again.

        Raises:
            StoreBusyError: somebody reads what was there before.
        """
        await self._index.drop(aside_of(tree))
        await self._index.expunge(tree)

    def on_outgrown(self, call: Callable[[TreeId], None]) -> None:
        """Have `call` told of each tree that has become too large for how the index keeps it."""
        self._outgrown = call

    async def _look_at_size(self, tree: TreeId) -> None:
        if self._outgrown is not None and await self._index.outgrown(tree):
            self._outgrown(tree)

    async def _waited(self, tree: TreeId, covered: int, target: int) -> int:
        """What the index covers once it is this process's turn to go on, or another has done it all."""
        for pause in TURN_PAUSES:
            if await self._index.take_turn(tree, seconds=TURN):
                break
            await asyncio.sleep(pause)
            covered = await self._index.covered(tree)
            if covered >= target:
                break
        return covered

    async def _brought(self, tree: TreeId, covered: int, target: int) -> int:
        removing = False
        while covered < target:
            told = self._take(tree, covered, target)
            entries = told or await self._store.changes(tree, covered, limit=CHANGES_PER_UPDATE)
            if not entries:
                break
            upserts, removes = (_made(told), []) if told else await self._entries(tree, entries)
            # Another process may have been faster: whatever the index covers now is where we go on.
            await self._index.update(
                tree, after=covered, seq=entries[-1].seq, upserts=upserts, removes=removes, stamp=_stamp(entries[-1])
            )
            removing = removing or bool(removes)
            covered = await self._index.covered(tree)
        if removing:
            await self._expunge(tree)
        return covered

    async def _expunge(self, tree: TreeId) -> None:
        """Have what is gone leave the disk too; whoever forgot it does so again, and is told where it cannot be done."""
        with suppress(StoreBusyError):
            await self.expunge(tree)

    async def catch_up_all(self, trees: Sequence[TreeId]) -> bool:
        """
        Bring the index of several trees level, or by up to `CHANGES_PER_UPDATE` commits each, with a few calls for all together.

        For whoever follows trees that are written elsewhere. Trees that do not exist are passed over; whoever asks for one of them
        meanwhile (`catch_up`) does so without waiting for the others.

        Returns:
            Whether there was anything new.
        """
        await self._stand([tree for tree in trees if tree not in self._standings])
        known = {tree: self._standings[tree] for tree in trees if tree in self._standings}
        news = await self._store.news({tree: covered for tree, (covered, _) in known.items()}, limit=CHANGES_PER_UPDATE)
        updates: list[IndexUpdate] = []
        for tree, (covered, stamp) in known.items():
            found = news.get(tree)
            if found is None or found.seq < covered or (covered and found.at and not _is(stamp, covered, found.since)):
                # The store has another history now, or another process has moved the index on: it is compared the next time.
                del self._standings[tree]
                self._compared.discard(tree)
            elif found.at is not None:
                entries = [index_entry(node) for node in found.nodes]
                updates.append(
                    IndexUpdate(
                        tree=tree,
                        after=covered,
                        seq=found.seq,
                        upserts=entries,
                        removes=found.gone,
                        stamp=_named(found.seq, found.at),
                    )
                )
        for update, done in zip(updates, await self._index.update_all(updates) if updates else (), strict=True):
            if done:
                self._standings[update.tree] = (update.seq, update.stamp)
                await self._look_at_size(update.tree)
                if update.removes:
                    await self._expunge(update.tree)
            else:
                self._standings.pop(update.tree, None)
        return bool(updates)

    async def _stand(self, trees: Sequence[TreeId]) -> None:
        """Find out where the index stands for trees that are followed from now on, once it was compared with the store."""
        if not trees:
            return

        async def stand(tree: TreeId) -> TreeId | None:
            with suppress(TreeNotFoundError):
                await self.catch_up(tree)
                return tree
            return None

        if len(self._standings) > FOLLOWED_MAX:
            self._standings.clear()
        found = [tree for tree in await asyncio.gather(*map(stand, trees)) if tree is not None]
        self._standings.update(await self._index.standing(found))

    def _take(self, tree: TreeId, covered: int, target: int) -> list[LogEntry]:
        """The commits from `covered` to `target`, at most `CHANGES_PER_UPDATE`, when all were told of; they are forgotten."""
        found = [self._told.pop((tree, seq), None) for seq in range(covered + 1, min(target, covered + CHANGES_PER_UPDATE) + 1)]
        self._told_size -= sum(told[1] for told in found if told is not None)
        entries = [told[0] for told in found if told is not None]
        return entries if len(entries) == len(found) else []

    async def _standing(self, tree: TreeId) -> int:
        """The commit that the index covers, 0 when it covered one that this store does not have as the index knew it."""
        covered = await self._index.covered(tree)
        if covered == 0:
            return 0
        # The stamp says itself which commit it is of: another process may have moved the index on since.
        stamp = await self._index.stamp(tree)
        seq = stamp.partition(" ")[0]
        if seq.isdecimal():
            found = await self._store.changes(tree, int(seq) - 1, limit=1)
            if found and _stamp(found[0]) == stamp:
                return covered
        await self._index.drop(tree)
        return 0

    async def _entries(self, tree: TreeId, entries: Iterable[LogEntry]) -> tuple[list[IndexEntry], list[NodeId]]:
        """What commits made or rewrote, as it is now, and what they removed and is not there now."""
        gone: dict[NodeId, None] = {}
        touched: dict[NodeId, None] = {}
        for entry in entries:
            for step in entry.steps:
                match step:
                    case Create():
                        touched[step.id] = None
                    case Rewrite():
                        touched[step.node] = None
                    case Remove():
                        gone[step.node] = None
                    case _:
                        pass
        nodes = await self._store.nodes(tree, list(touched | gone), vectors=True)
        return [index_entry(node) for node in nodes.values()], [node for node in gone if node not in nodes]


def aside_of(tree: TreeId) -> TreeId:
    """Under which name a tree's index is made anew."""
    return TreeId(tree + ASIDE)


def _made(entries: Iterable[LogEntry]) -> list[IndexEntry]:
    """The nodes that commits of ingestion made. No such commit rewrites one."""
    return [
        index_entry(
            Node(
                id=step.id,
                parent=step.parent,
                kind=step.kind,
                depth=step.depth,
                mark=mark(entry.seq, position),
                text=step.text,
                vector=step.vector,
                item=step.item,
            )
        )
        for entry in entries
        for position, step in enumerate(entry.steps)
        if isinstance(step, Create)
    ]


def _stamp(entry: LogEntry) -> str:
    """Tells a commit from one of the same number in another history."""
    return _named(entry.seq, entry.at)


def _is(stamp: str, seq: int, at: datetime | None) -> bool:
    return at is not None and stamp == _named(seq, at)


def _named(seq: int, at: datetime) -> str:
    return f"{seq} {at.isoformat()}"


def index_entry(node: Node) -> IndexEntry:
    """What the index keeps of a node."""
    assert node.vector is not None
    item = node.item
    if item is None:
        return IndexEntry(node=node.id, kind=NodeKind.SUMMARY, mark=node.mark, vector=node.vector, text=node.text)
    return IndexEntry(
        node=node.id,
        kind=NodeKind.LEAF,
        mark=node.mark,
        vector=node.vector,
        text=lexical_text(item),
        event_id=item.event_id,
        sequence=item.sequence,
        chunk=item.chunk,
        conversation=item.conversation,
        speaker=item.speaker,
        source=item.source,
        at=item.at,
        metadata={name: _scalar(value) for name, value in item.metadata.items() if isinstance(value, str | int | float | bool)},
    )


def _scalar(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
