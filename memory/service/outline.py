"""The shape of a tree as it was: who lies below whom, without vectors and texts, and a few of them kept to begin from."""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Self

from memory.changes import Create, LogEntry, Move, Remove
from memory.model import ROOT, NodeId, NodeKind, TreeId

NODE_BYTES = 120
"""Memory of one node, roughly: its places in the tables. Ids are shared by all outlines of a tree."""


class Outline:
    """The shape of one tree after commit `seq`."""

    __slots__ = ("at", "parents", "seq", "summaries")

    def __init__(self) -> None:
        self.seq = 0
        self.at: datetime | None = None
        """When that commit was made; tells it from one of the same number in another history."""
        self.parents: dict[NodeId, NodeId] = {}
        """Of every node but the root."""
        self.summaries: set[NodeId] = set()

    def __len__(self) -> int:
        """Nodes, the root included."""
        return len(self.parents) + 1

    @property
    def bytes(self) -> int:
        """Memory it takes, roughly."""
        return NODE_BYTES * len(self)

    def copy(self) -> Self:
        """One that changes by itself."""
        made = type(self)()
        made.seq, made.at = self.seq, self.at
        made.parents, made.summaries = self.parents.copy(), self.summaries.copy()
        return made

    def catch_up(self, entries: Iterable[LogEntry]) -> None:
        """Apply log entries that follow `seq` without a gap."""
        for entry in entries:
            for step in entry.steps:
                if isinstance(step, Create):
                    self.parents[step.id] = step.parent
                    if step.kind is not NodeKind.LEAF:
                        self.summaries.add(step.id)
                elif isinstance(step, Move):
                    self.parents[step.node] = step.parent
                elif isinstance(step, Remove):
                    del self.parents[step.node]
                    self.summaries.discard(step.node)
            self.seq, self.at = entry.seq, entry.at

    def children(self) -> dict[NodeId, list[NodeId]]:
        """Of the root and every summary, those below it, in no particular order."""
        below: dict[NodeId, list[NodeId]] = {ROOT: [], **{node: [] for node in self.summaries}}
        for node, parent in self.parents.items():
            below[parent].append(node)
        return below


class Outlines:
    """
    Outlines of the past to begin from, the least recently used leaving first.

    Args:
        bytes_max: memory of all together, roughly; what alone takes more is not kept.
    """

    def __init__(self, *, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self._kept: OrderedDict[tuple[TreeId, int], Outline] = OrderedDict()
        self.bytes = 0

    def before(self, tree: TreeId, seq: int) -> Outline:
        """The latest that is kept of a commit not after `seq`, or that of the empty tree; not to be changed."""
        seqs = self._seqs(tree)
        place = bisect_right(seqs, seq)
        if place == 0:
            return Outline()
        key = tree, seqs[place - 1]
        self._kept.move_to_end(key)
        return self._kept[key]

    def keep(self, tree: TreeId, outline: Outline) -> None:
        """Begin from this one too; it must not change any more."""
        key = tree, outline.seq
        if outline.bytes > self.bytes_max or key in self._kept:
            return
        self._kept[key] = outline
        self.bytes += outline.bytes
        while self.bytes > self.bytes_max:
            _, dropped = self._kept.popitem(last=False)
            self.bytes -= dropped.bytes

    def drop(self, tree: TreeId) -> None:
        """Forget a tree: its history is another one now."""
        for seq in self._seqs(tree):
            self.bytes -= self._kept.pop((tree, seq)).bytes

    def _seqs(self, tree: TreeId) -> Sequence[int]:
        return sorted(seq for name, seq in self._kept if name == tree)
