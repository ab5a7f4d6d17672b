"""A tree's past, from its change log: its shape after a commit, and why an event lies where it lies."""

from __future__ import annotations

from dataclasses import dataclass

from memory.changes import Create, Grow, LogEntry, Move, Step
from memory.errors import QueryError
from memory.model import EventId, NodeId, TreeId
from memory.ports.store import TreeStore
from memory.structures import registry
from memory.tree.routing import Decision
from memory.tree.view import View

LOG_PER_READ = 500


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
    Reads a tree's past. Replays the change log up to the commit asked for: time and memory grow with it.

    Args:
        store: of the trees.
    """

    def __init__(self, store: TreeStore) -> None:
        self._store = store

    async def as_of(self, tree: TreeId, seq: int) -> View:
        """
        The tree's view as it was after commit `seq`.

        Raises:
            QueryError: there was no such commit.
            TreeNotFoundError: no such tree.
        """
        info = await self._store.tree(tree)
        if not 0 <= seq <= info.seq:
            raise QueryError(f"seq must be between 0 and {info.seq}, the tree's last commit; got {seq}")
        view = View(info.model.dimension)
        while view.seq < seq:
            view.catch_up(await self._read(tree, view.seq, seq))
        return view

    async def route(self, tree: TreeId, event: EventId) -> EventRoute | None:
        """
        Where an event's leaves went, and what was compared on the way; None when the tree does not have the event.

        Raises:
            TreeNotFoundError: no such tree.
        """
        receipt = (await self._store.receipts(tree, [event])).get(event)
        if receipt is None:
            return None
        structure = registry.of(await self._store.tree(tree))
        view = await self.as_of(tree, receipt.seq - 1)
        [entry] = await self._read(tree, view.seq, receipt.seq)
        wanted = set(receipt.leaves)
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
        return EventRoute(event=event, seq=receipt.seq, leaves=tuple(found[leaf] for leaf in receipt.leaves if leaf in found))

    async def _read(self, tree: TreeId, after: int, through: int) -> list[LogEntry]:
        read = await self._store.changes(tree, after, limit=min(LOG_PER_READ, through - after))
        entries = [entry for entry in read if entry.seq <= through]
        if not entries:
            raise QueryError(f"the change log of tree {tree!r} does not reach back to commit {after + 1}")
        return entries
