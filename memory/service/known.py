"""The structures of trees, so that they are looked up once."""

from __future__ import annotations

from collections import OrderedDict

from memory.model import TreeId
from memory.ports.store import TreeStore
from memory.structures import registry
from memory.structures.base import Structure

STRUCTURES_MAX = 1_000
"""Trees whose structure is remembered; that of another one is read again."""


class KnownStructures:
    """
    Structures by tree.

    Args:
        store: where trees say which they were made with.
    """

    def __init__(self, store: TreeStore) -> None:
        self._store = store
        self._known: OrderedDict[TreeId, Structure] = OrderedDict()

    async def of(self, tree: TreeId) -> Structure:
        """
        The tree's structure.

        Raises:
            TreeNotFoundError: there is no such tree.
            TreeMismatchError: it was made with one that this version does not have.
        """
        known = self._known.get(tree)
        if known is None:
            known = self._known[tree] = registry.of(await self._store.tree(tree))
            if len(self._known) > STRUCTURES_MAX:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(tree)
        return known
