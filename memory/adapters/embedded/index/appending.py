"""What the index's file knows of a tree, and what moves that on, inside a transaction."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from memory.adapters.embedded.index.segment import Segment, encode
from memory.errors import TreeMismatchError
from memory.model import MARK_BITS


@dataclass(frozen=True, slots=True)
class Reach:
    """Where the file stands for a tree."""

    seq: int
    incarnation: int
    """0 for a tree that it does not know."""


NOWHERE = Reach(0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """A segment that brings a tree from one commit to another."""

    tree: str
    after: int
    """Where it must stand."""
    seq: int
    """Where it stands afterwards."""
    dimension: int
    """Of the segment's vectors; 0 when it has none."""
    segment: Callable[[], Segment | None]
    """Makes it; not called when the tree is seen to stand elsewhere. None when nothing is to be kept."""
    stamp: str = ""
    """Kept with where it stands."""


def size_of(segment: Segment) -> int:
    """Rows of a segment, removed ones included."""
    return len(segment.nodes) + len(segment.removed)


@dataclass(frozen=True, slots=True)
class Row:
    """An append as it is written: made outside the transaction."""

    wanted: Append
    size: int
    data: bytes | None
    alive: int
    """Rows that are there more than before."""

    @classmethod
    def of(cls, wanted: Append) -> Row:
        """Makes the segment."""
        made = wanted.segment()
        if made is None:
            return cls(wanted, 0, None, 0)
        fresh = int(np.count_nonzero(made.marks >> MARK_BITS > wanted.after))
        return cls(wanted, size_of(made), encode(made), fresh - len(made.removed))


def write_row(connection: sqlite3.Connection, row: Row) -> bool:
    """One append, inside a transaction; False when the tree does not stand where it must."""
    one = row.wanted
    if reach_of(connection, one.tree).seq != one.after:
        return False
    connection.execute(
        "INSERT INTO trees (tree, incarnation, seq, dimension, stamp, alive) VALUES (?1, ?2, ?3, ?4, ?5, max(?6, 0))"
        " ON CONFLICT (tree) DO UPDATE SET seq = ?3, dimension = CASE dimension WHEN 0 THEN ?4 ELSE dimension END,"
        " stamp = ?5, alive = max(alive + ?6, 0)",
        (one.tree, int.from_bytes(os.urandom(7)) + 1, one.seq, one.dimension, one.stamp, row.alive),
    )
    (known,) = connection.execute("SELECT dimension FROM trees WHERE tree = ?", (one.tree,)).fetchone()
    if one.dimension and known != one.dimension:
        raise TreeMismatchError(f"tree {one.tree} is indexed with {known} dimensions, an update has {one.dimension}")
    if row.data is not None:
        connection.execute(
            "INSERT INTO segments (tree, last, size, data) VALUES (?, ?, ?, ?)", (one.tree, one.seq, row.size, row.data)
        )
    return True


def reach_of(connection: sqlite3.Connection, tree: str) -> Reach:
    """Where the file stands."""
    row = connection.execute("SELECT seq, incarnation FROM trees WHERE tree = ?", (tree,)).fetchone()
    return Reach(*row) if row else NOWHERE


def rename(connection: sqlite3.Connection, tree: str, made: str) -> bool:
    """What is kept under the name `made` becomes the tree's; False when it covers less than the tree's own, or is not there."""
    if reach_of(connection, made) == NOWHERE or reach_of(connection, made).seq < reach_of(connection, tree).seq:
        return False
    for table in ("segments", "trees"):
        connection.execute(f"DELETE FROM {table} WHERE tree = ?", (tree,))  # noqa: S608  # one of two names
        connection.execute(f"UPDATE {table} SET tree = ? WHERE tree = ?", (tree, made))  # noqa: S608  # likewise
    return True
