"""Working copies of nodes' rows: what a commit makes of them before anything is written, and what is remembered of them after."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from memory.adapters.codec import KIND_NUMBER
from memory.adapters.embedded.store.codec import CONTRIBUTION
from memory.model import Attributes, Item, Mark, NodeId, NodeKind

TAIL_MAX = 40
"""Contributions kept in a node's own row at most; more go out as one run."""

SUMMARY, LEAF = KIND_NUMBER[NodeKind.SUMMARY], KIND_NUMBER[NodeKind.LEAF]


class Run(NamedTuple):
    """Contributions that are kept together outside their node's row."""

    first: int
    last: int
    size: int
    data: bytes


class Row(msgspec.Struct, gc=False):
    """
    Working copy of a node's row; the first fields are the table's columns, in its order.

    Tens of thousands are kept from commit to commit (`cache.RowCache`): nothing that they hold leads back to them, so that Python's
    collector need not go through them.
    """

    key: int
    tree: int
    id: NodeId
    parent: int | None
    kind: int
    depth: int
    mark: Mark
    version: int
    routing: int
    descendants: int
    pending: int
    oldest: Mark | None
    cohesion: float
    provisional: bool
    tail: bytes
    """Its latest contributions, packed, those of this commit included."""
    new: bool = False
    counted: bool = False
    """Only the numbers that no index holds have changed."""
    placed: bool = False
    """Any other column has changed."""
    text: str | None = None
    """New text, when it has one."""
    vector: int = -1
    """Index of its new vector among the set's, or -1."""
    item: Item | None = None
    through: int = 0
    """Runs of contributions are trimmed up to here."""
    run: Run | None = None
    """Contributions that leave the row."""
    attributes: Attributes | None = None
    """Those that are set."""
    over: int | None = None
    """Of a new node, the key of the one whose runs it takes over."""
    runs: list[tuple[int, int]] | None = None
    """What is left of the contributions outside the row, oldest first, where some were taken out of the middle; None: as stored."""
    gone: bool = False
    """Removed."""

    def settled(self) -> Row:
        """The row as it is after the commit, ready for the next one."""
        if self.new or self.placed or self.run is not None or self.attributes is not None or self.runs is not None:
            self.new = self.placed = False
            self.text = self.item = self.run = self.attributes = self.over = self.runs = None
            self.vector, self.through = -1, 0
        self.counted = False
        return self

    def overflow(self) -> None:
        """Let contributions go that are too many for the row."""
        tail = self.tail
        if len(tail) > TAIL_MAX * CONTRIBUTION.size:
            first, _ = CONTRIBUTION.unpack_from(tail)
            last, _ = CONTRIBUTION.unpack_from(tail, len(tail) - CONTRIBUTION.size)
            self.run = Run(first=first, last=last, size=len(tail) // CONTRIBUTION.size, data=tail)
            self.tail = b""


def by_size(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Rows by what is to be written of them."""
    sorted_rows: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        sorted_rows["gone" if row.gone else "new" if row.new else "placed" if row.placed else "counted"].append(row)
    return sorted_rows
