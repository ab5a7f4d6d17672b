"""Views of trees, kept fresh from the change log and bounded in bytes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

from memory.model import NodeId, TreeId
from memory.ports.store import TreeStore
from memory.tree.view import View

CHANGES_PER_READ = 1_000
LOADED_AT_ONCE = 50_000
"""Nodes of a tree that are loaded in the event loop's thread; more in another."""
COUNT_AGAIN = 8
"""A view is counted again when it has grown by one part in so many: counting a large one takes longer than a commit."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """A view that nobody holds, and its bytes when it had so many nodes."""

    view: View
    nodes: int
    bytes: int
    losses: int
    """Of the store, when the view was taken."""


class Views:
    """
    One view a tree in this process.

    Args:
        store: where trees are read from.
        bytes_max: memory over all views; the least recently used that nobody holds are dropped. One view may exceed it alone.
    """

    def __init__(self, store: TreeStore, *, bytes_max: int) -> None:
        self._store = store
        self._bytes_max = bytes_max
        self._kept: OrderedDict[TreeId, _Kept] = OrderedDict()
        self._bytes = 0
        self._locks: WeakValueDictionary[TreeId, asyncio.Lock] = WeakValueDictionary()
        self._listeners: list[Callable[[TreeId, Sequence[NodeId]], None]] = []

    def on_gone(self, call: Callable[[TreeId, Sequence[NodeId]], None]) -> None:
        """Have `call` told of nodes that a view has lost, whoever removed them: what is kept of them is to go."""
        self._listeners.append(call)

    def __len__(self) -> int:
        """Views kept that nobody holds."""
        return len(self._kept)

    @property
    def bytes(self) -> int:
        """What they take."""
        return self._bytes

    @asynccontextmanager
    async def hold(self, tree: TreeId, *, fresh: bool = True) -> AsyncIterator[View]:
        """
        The tree's view, exclusively, brought up to date; or, unless `fresh`, as the last one left it, if there was one.

        Whoever holds it may plan on it and must leave it as of a commit: either its plan was committed, or it was undone.
        """
        lock = self._locks.setdefault(tree, asyncio.Lock())
        async with lock:
            # Taken out while it is held: if the holder fails, the view may be half changed, and the next one loads it anew.
            kept = self._kept.pop(tree, None)
            self._bytes -= kept.bytes if kept is not None else 0
            losses = self._store.losses(tree)
            if kept is not None and kept.losses != losses:
                kept = None  # it holds commits that are no more, which somebody else was told of
            view = kept.view if kept is not None else await self._load(tree)
            if fresh and kept is not None:
                await self.catch_up(tree, view)
            yield view
            self._keep(tree, view, kept, losses)

    async def _load(self, tree: TreeId) -> View:
        skeleton = await self._store.skeleton(tree)
        if len(skeleton.ids) <= LOADED_AT_ONCE:
            return View.load(skeleton)
        # Seconds for a million nodes, in which a worker's group would take it for dead.
        return await asyncio.to_thread(View.load, skeleton)

    def begin(self, tree: TreeId, dimension: int) -> None:
        """A tree that has just been made: its view is empty, and need not be read."""
        if tree not in self._kept and tree not in self._locks:
            self._keep(tree, View(dimension), None, self._store.losses(tree))

    async def catch_up(self, tree: TreeId, view: View) -> None:
        """Apply to the view what was committed since."""
        while entries := await self._store.changes(tree, view.seq, limit=CHANGES_PER_READ):
            view.catch_up(entries)
            if len(entries) < CHANGES_PER_READ:
                break

    def _keep(self, tree: TreeId, view: View, before: _Kept | None, losses: int) -> None:
        if view.gone:
            gone, view.gone = view.gone, []
            for listener in self._listeners:
                listener(tree, gone)
        nodes = len(view)
        if before is not None and before.nodes <= nodes <= before.nodes + before.nodes // COUNT_AGAIN:
            kept = before
        else:
            kept = _Kept(view, nodes, view.bytes, losses)
        self._kept[tree] = kept
        self._bytes += kept.bytes
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.bytes
