"""Views of trees, kept fresh from the change log and bounded in bytes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memory.model import TreeId
from memory.ports.store import TreeStore
from memory.tree.view import View

CHANGES_PER_READ = 1_000


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
        self._views: OrderedDict[TreeId, View] = OrderedDict()
        self._locks: dict[TreeId, asyncio.Lock] = {}

    @asynccontextmanager
    async def hold(self, tree: TreeId) -> AsyncIterator[View]:
        """
        The tree's view, exclusively, brought up to date.

        Whoever holds it may plan on it and must leave it as of a commit: either its plan was committed, or it was undone.
        """
        lock = self._locks.setdefault(tree, asyncio.Lock())
        async with lock:
            # Taken out while it is held: if the holder fails, the view may be half changed, and the next one loads it anew.
            view = self._views.pop(tree, None) or View.load(await self._store.skeleton(tree))
            await self.catch_up(tree, view)
            yield view
            self._views[tree] = view
            self._evict()

    async def catch_up(self, tree: TreeId, view: View) -> None:
        """Apply to the view what was committed since."""
        while entries := await self._store.changes(tree, view.seq, limit=CHANGES_PER_READ):
            view.catch_up(entries)
            if len(entries) < CHANGES_PER_READ:
                break

    def _evict(self) -> None:
        if len(self._views) == 1:
            return  # counting the bytes of a large view takes milliseconds, and the only one is never dropped
        total = sum(view.bytes for view in self._views.values())
        while total > self._bytes_max and len(self._views) > 1:
            _, dropped = self._views.popitem(last=False)
            total -= dropped.bytes
