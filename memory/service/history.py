"""A tree's past, from its change log: its shape after a commit, and why an event lies where it lies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from weakref import WeakValueDictionary

from memory.changes import Create, Grow, LogEntry, Move, Step
from memory.errors import QueryError
from memory.model import EventId, NodeId, TreeId
from memory.ports.store import TreeStore
from memory.service.outline import Outline, Outlines
from memory.structures import registry
from memory.structures.base import Structure
from memory.tree.routing import Decision
from memory.tree.view import View

LOG_PER_READ = 100
"""Commits that are read together: with 64 items each, their vectors take 10 MB."""
STEPS_AT_ONCE = 1_000
"""Steps that are applied in the event loop's thread, where they take some milliseconds; more in another."""
SHAPES_BYTES_MAX = 64_000_000
VIEW_BYTES_MAX = 512_000_000
"""About 300,000 nodes of 384 dimensions."""
COUNT_AGAIN = 1.05
"""Growth after which a view's bytes are counted again: that takes as long as its branches are many."""
AT_ONCE = 2
"""Questions that are answered at once, each of another tree, and each with a view of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRoute:
    """How one leaf was placed."""

    leaf: NodeId
    decisions: tuple[Decision, ...]
    """A level each, on the tree as it stood then; a batch's earlier items included."""
    parent: NodeId
    """Where it came to lie."""
    expanded: NodeId | None
    """The leaf whose place a new summary took, with both below it; None when it was attached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRoute:
    """How an event was placed."""

    event: EventId
    seq: int
    """The commit that did it."""
    leaves: tuple[LeafRoute, ...]
    """In chunk order."""


class History:
    """
    Reads a tree's past from its change log, a piece at a time and off the event loop.

    Shapes begin from one that was kept, if there is an earlier one; routes need vectors, and begin where the last one ended when
    that was earlier. Memory is bounded whatever is asked for: of a tree one question is answered at a time, and of all trees
    `AT_ONCE`. Whoever is cut off leaves what was replayed so far to the next one who asks.

    Args:
        store: of the trees.
        shapes_bytes_max: memory for shapes to begin from.
        view_bytes_max: memory for the view that a route is replayed on, and for a shape that is too large to begin from.
    """

    def __init__(self, store: TreeStore, *, shapes_bytes_max: int = SHAPES_BYTES_MAX, view_bytes_max: int = VIEW_BYTES_MAX) -> None:
        self._store = store
        self._outlines = Outlines(bytes_max=shapes_bytes_max)
        self._view_bytes_max = view_bytes_max
        self._last: tuple[TreeId, View, datetime | None] | None = None
        """The view that the last route was replayed on, and when its commit was made."""
        self._some = asyncio.Semaphore(AT_ONCE)
        self._trees: WeakValueDictionary[TreeId, asyncio.Lock] = WeakValueDictionary()

    async def as_of(self, tree: TreeId, seq: int) -> Outline:
        """
        The tree's shape as it was after commit `seq`.

        Raises:
            QueryError: there was no such commit, or the tree was too large then.
            TreeNotFoundError: no such tree.
        """
        info = await self._store.tree(tree)
        if not 0 <= seq <= info.seq:
            raise QueryError(f"seq must be between 0 and {info.seq}, the tree's last commit; got {seq}", field="seq")
        async with self._trees.setdefault(tree, asyncio.Lock()), self._some:
            begun = self._outlines.before(tree, seq)
            if not await self._is_of(tree, begun.seq, begun.at):
                self._outlines.drop(tree)
                begun = Outline()
            if begun.seq == seq:
                return begun
            outline, grown = begun.copy(), len(begun)
            while outline.seq < seq:
                entries = await self._read(tree, outline.seq, seq)
                await _aside(outline.catch_up, entries)
                if outline.bytes > max(self._view_bytes_max, self._outlines.bytes_max):
                    raise QueryError(
                        f"tree {tree!r} had more than {len(outline):,} nodes at commit {seq:,}: too many for its past to be shown",
                        field="seq",
                    )
                # On the way as many as there are doublings, so that an earlier question need not begin at the beginning.
                if outline.seq < seq and len(outline) >= 2 * grown and outline.bytes <= self._outlines.bytes_max:
                    grown = len(outline)
                    self._outlines.keep(tree, outline.copy())
            self._outlines.keep(tree, outline)
            return outline

    async def route(self, tree: TreeId, event: EventId) -> EventRoute | None:
        """
        Where an event's leaves went, and what was compared on the way; None when the tree does not have the event.

        Raises:
            QueryError: the tree was too large then to be looked at again, or something was forgotten since.
            TreeNotFoundError: no such tree.
        """
        receipt = (await self._store.receipts(tree, [event])).get(event)
        if receipt is None or receipt.forgotten:
            return None
        info = await self._store.tree(tree)
        structure = registry.of(info)
        if receipt.seq <= info.floor:
            raise QueryError(
                f"event {event!r} came with commit {receipt.seq:,}; what it was compared with is gone since commit {info.floor:,}, "
                "with which something was forgotten",
                field="event",
            )
        async with self._trees.setdefault(tree, asyncio.Lock()), self._some:
            view = await self._view(tree, receipt.seq - 1)
            [entry] = await self._read(tree, view.seq, receipt.seq)
            self._release(tree)
            leaves = _routes(view, structure, entry, frozenset(receipt.leaves))
            self._last = tree, view, entry.at
        return EventRoute(event=event, seq=receipt.seq, leaves=tuple(leaves[leaf] for leaf in receipt.leaves if leaf in leaves))

    async def _view(self, tree: TreeId, seq: int) -> View:
        """The view as it was after a commit; `_last` while nobody changes it."""
        last, self._last = self._last, None
        floor = (await self._store.tree(tree)).floor
        if last is not None and last[0] == tree and floor <= last[1].seq <= seq and await self._is_of(tree, last[1].seq, last[2]):
            view = last[1]
            self._last = last
        else:
            view = View((await self._store.tree(tree)).model.dimension)
        del last
        counted = 0.0
        while view.seq < seq:
            entries = await self._read(tree, view.seq, seq)
            self._release(tree)
            await _aside(view.catch_up, entries)
            if len(view) >= COUNT_AGAIN * counted:
                counted = len(view)
                if view.bytes > self._view_bytes_max:
                    raise QueryError(
                        f"tree {tree!r} had more than {len(view):,} nodes at commit {seq:,}: too many for a route to be shown",
                        field="event",
                    )
            self._last = tree, view, entries[-1].at
        return view

    def _release(self, tree: TreeId) -> None:
        """Keep the tree's view no longer: it changes, maybe in a thread that goes on when whoever asks is cut off."""
        if self._last is not None and self._last[0] == tree:
            self._last = None

    async def _is_of(self, tree: TreeId, seq: int, at: datetime | None) -> bool:
        """Whether the store's commit of that number is the one that was read once: a store may have lost commits since."""
        if seq == 0:
            return True
        found = await self._store.changes(tree, seq - 1, limit=1)
        return bool(found) and found[0].seq == seq and found[0].at == at

    async def _read(self, tree: TreeId, after: int, through: int) -> list[LogEntry]:
        read = await self._store.changes(tree, after, limit=min(LOG_PER_READ, through - after))
        entries = [entry for entry in read if entry.seq <= through]
        if not entries:
            raise QueryError(f"the change log of tree {tree!r} does not reach back to commit {after + 1}", field="seq")
        return entries


async def _aside(catch_up: Callable[[Sequence[LogEntry]], None], entries: Sequence[LogEntry]) -> None:
    """Have many steps applied by another thread: this one answers others."""
    if sum(len(entry.steps) for entry in entries) <= STEPS_AT_ONCE:
        catch_up(entries)
    else:
        await asyncio.to_thread(catch_up, entries)


def _routes(view: View, structure: Structure, entry: LogEntry, wanted: frozenset[NodeId]) -> dict[NodeId, LeafRoute]:
    """How a commit placed the wanted leaves, on the view of the commit before; the view is that of the commit afterwards."""
    found: dict[NodeId, LeafRoute] = {}
    held: list[Step] = []
    for step in entry.steps:
        held.append(step)
        if not isinstance(step, Grow):
            continue
        # An item's steps end with the `Grow` of the leaf that they make; others come in between.
        made = next((each for each in held if isinstance(each, Create) and each.id == step.leaf), None)
        if made is None:
            continue
        if step.leaf in wanted:
            moved = next((each for each in held if isinstance(each, Move)), None)
            found[step.leaf] = LeafRoute(
                leaf=step.leaf,
                decisions=structure.route(view, made.vector),
                parent=made.parent,
                expanded=moved.node if moved is not None and moved.parent == made.parent else None,
            )
        for each in held:
            view.apply(each)
        held = []
    for each in held:
        view.apply(each)
    view.seq = entry.seq
    return found
