"""What happens to a tree, as values: the steps of a commit, the change log, and the skeleton a view is loaded from."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np
from numpy.typing import NDArray

from memory.model import EventId, Item, Mark, NodeId, NodeKind, TreeId, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """
    A new node below `parent`. Bumps `parent`'s routing.

    A summary starts with no descendants; `Grow` steps give it those. In a change set `text` and, for a leaf, `item` are given;
    in a change log they are left out (text "", item None).
    """

    id: NodeId
    parent: NodeId
    kind: NodeKind
    depth: int
    vector: Vector
    cohesion: float = 1.0
    provisional: bool = False
    text: str = ""
    item: Item | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A node gets another parent and depth. Bumps the routing of both parents. Its own descendants are not touched."""

    node: NodeId
    old_parent: NodeId
    parent: NodeId
    depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grow:
    """
    A leaf has come to lie below `nodes`: one more descendant and one more contribution for each.

    Commutes with other `Grow`s: needs no expectation.
    """

    leaf: NodeId
    nodes: tuple[NodeId, ...]
    """Summary nodes, the root left out; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What summaries cost."""

    calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """
    A summary's new text and vector. Bumps its version and its parent's routing.

    Contributions of the node up to and including `through` are trimmed, later ones stay pending. With `through` 0 nothing is
    trimmed (a provisional refresh).
    """

    node: NodeId
    parent: NodeId
    vector: Vector
    cohesion: float
    through: Mark
    provisional: bool = False
    text: str = ""
    """Left out ("") in a change log."""
    cost: Cost = field(default_factory=Cost)


Step = Create | Move | Grow | Rewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a change set relies on; None means it does not rely on that."""

    node: NodeId
    version: int | None = None
    routing: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EventEntry:
    """An event that a change set applies; remembered with its receipt in the same atomic step."""

    id: EventId
    digest: bytes
    """16 bytes that identify the event's content, to tell a repetition from a conflict."""
    leaves: tuple[NodeId, ...]
    """The leaves it became, in chunk order; created by the same change set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeSet:
    """One commit: all of it or nothing. `steps` are applied in order."""

    tree: TreeId
    steps: tuple[Step, ...]
    expects: tuple[Expectation, ...] = ()
    events: tuple[EventEntry, ...] = ()
    at: datetime
    """Wall-clock time of the commit, UTC; kept in the log for people, never used in decisions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One commit as the change log keeps it: enough to bring a view up to date and to replay the placements."""

    seq: int
    at: datetime
    steps: tuple[Step, ...]
    events: tuple[EventId, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Skeleton:
    """
    What routing needs of a whole tree, in columns, as of commit `seq`.

    Rows are ordered by mark; row 0 is the root. A node can come before its parent (an expanded leaf is older than the summary
    that took its place).
    """

    seq: int
    ids: list[NodeId]
    parents: list[NodeId | None]
    kinds: list[NodeKind]
    depths: NDArray[np.int32]
    """(n,)"""
    versions: NDArray[np.int64]
    """(n,)"""
    routings: NDArray[np.int64]
    """(n,)"""
    descendants: NDArray[np.int64]
    """(n,)"""
    vectors: NDArray[np.float16]
    """(n, d); row 0, the root's, is zeros."""
