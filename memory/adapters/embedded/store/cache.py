"""Rows of nodes that the writing thread remembers from one commit to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from memory.adapters.embedded.store.rows import LEAF, Row
from memory.model import NodeId

ROWS_MAX = 40_000
"""Rows kept at most, over all trees; about 600 bytes each."""


class RowCache:
    """
    Rows as of a tree's last commit: every plan names the summaries on its paths, and most of them were named a commit before.

    A tree's row carries a stamp that each commit draws anew. Rows are used only while it is the one they were kept under, so that
    neither another process's commit nor one that was undone can go unnoticed. Used by one thread.

    Args:
        rows_max: rows kept at most; those named least recently go first, by trees and within one.
    """

    def __init__(self, rows_max: int = ROWS_MAX) -> None:
        self._rows_max = rows_max
        self._trees: OrderedDict[int, tuple[int, dict[NodeId, Row]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, tree: int, stamp: int, names: Iterable[NodeId]) -> dict[NodeId, Row]:
        """Take out those of the rows that are there. They may be edited: unless they are kept again, they are forgotten."""
        kept, rows = self._trees.get(tree, (stamp, {}))
        if kept != stamp:
            self._forget(tree)
            return {}
        taken = {name: row for name in names if (row := rows.pop(name, None)) is not None}
        self._count -= len(taken)
        return taken

    def keep(self, tree: int, before: int, stamp: int, rows: Iterable[Row]) -> None:
        """
        Keep the summaries and the root among the rows.

        Args:
            tree: its number.
            before: the stamp that `take` was given.
            stamp: the stamp of the commit that made the rows what they are.
            rows: all rows that the commit named.
        """
        kept, known = self._trees.pop(tree, (before, {}))
        if kept != before:
            self._count -= len(known)
            known = {}
        size = len(known)
        known.update((row.id, row.settled()) for row in rows if row.kind != LEAF)
        self._count += len(known) - size
        self._trees[tree] = (stamp, known)
        while self._count > self._rows_max:
            oldest, (_, crowd) = next(iter(self._trees.items()))
            if oldest != tree:
                self._forget(oldest)
                continue
            del crowd[next(iter(crowd))]
            self._count -= 1

    def _forget(self, tree: int) -> None:
        _, rows = self._trees.pop(tree)
        self._count -= len(rows)
