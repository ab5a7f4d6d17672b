"""What forgetting makes of rows: leaves taken out from below summaries, and nodes removed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from memory.adapters.embedded.store.codec import CONTRIBUTION, Tally, pack_contributions, unpack_contributions
from memory.adapters.embedded.store.rows import LEAF, SUMMARY, Row
from memory.model import Mark


class Taking:
    """
    Takes nodes out, over working copies of their rows.

    Args:
        tally: the tree's counters; edited.
        base: the tree's number in row keys, already shifted.
        seq: the commit's.
        outside: contributions outside the row of a key, oldest first.
        children: keys of the children of a key, as stored.
    """

    def __init__(
        self,
        tally: Tally,
        *,
        base: int,
        seq: int,
        outside: Callable[[int], list[tuple[int, int]]],
        children: Callable[[int], set[int]],
    ) -> None:
        self._tally = tally
        self._base = base
        self._seq = seq
        self._outside = outside
        self._children = children
        self.gone: set[int] = set()
        """Keys of the nodes that were removed."""
        self.used = False

    def shrink(self, leaf: Row, above: Sequence[Row]) -> None:
        """The leaf no longer lies below these summaries, nor waits there."""
        self.used = True
        number = leaf.key - self._base
        for row in above:
            row.descendants -= 1
            row.counted = True
            if row.oldest is None:
                continue
            if row.runs is None:
                row.runs = self._outside(row.key)
            before = len(row.runs) * CONTRIBUTION.size + len(row.tail)
            row.runs = [one for one in row.runs if one[1] != number]
            tail = [one for one in unpack_contributions(row.tail) if one[1] != number]
            row.tail = pack_contributions(tail)
            taken = (before - len(row.tail)) // CONTRIBUTION.size - len(row.runs)
            row.pending -= taken
            self._tally.pending -= taken
            oldest = next((at for at, _ in (*row.runs[:1], *tail[:1])), None)
            if oldest != row.oldest:
                row.oldest, row.placed = None if oldest is None else Mark(oldest), True
                self._tally.dirty -= oldest is None

    def recall(self, leaf: Row, above: Sequence[Row], at: Mark) -> None:
        """The leaf waits at those of the summaries where nothing does."""
        self.used = True
        for row in above:
            if row.oldest is None:
                row.pending += 1
                row.tail += CONTRIBUTION.pack(at, leaf.key - self._base)
                row.oldest, row.placed = at, True
                self._tally.pending += 1
                self._tally.dirty += 1

    def remove(self, row: Row, parent: Row) -> bool:
        """The node goes; False when it hangs elsewhere or has a child."""
        self.used = True
        if row.kind not in {LEAF, SUMMARY}:
            raise ValueError("the root is never removed")
        if row.parent != parent.key or (row.kind == SUMMARY and self._children(row.key) - self.gone):
            return False
        parent.routing += 1
        parent.counted = True
        row.gone = True
        self.gone.add(row.key)
        tally = self._tally
        tally.pending -= row.pending
        tally.dirty -= row.oldest is not None
        tally.count(row.kind, row.depth, -1)
        if row.kind == LEAF:
            tally.leaves -= 1
        else:
            tally.summaries -= 1
        if tally.floor <= tally.redacted:
            tally.redacted = self._seq - 1
        tally.floor = self._seq
        return True
