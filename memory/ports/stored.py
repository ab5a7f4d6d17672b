"""What a store answers: outcomes of commits, receipts, what waits, what is new."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from memory.changes import Cost, LogEntry
from memory.model import EventId, Mark, Node, NodeId

NO_DIGEST = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What an event became, and when; of one that was forgotten, only that and when."""

    event_id: EventId
    seq: int
    digest: bytes
    """Of a forgotten event `NO_DIGEST`: a digest could be compared with what somebody guesses."""
    leaves: tuple[NodeId, ...]
    forgotten: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The change set is durable under `seq`."""

    seq: int
    missed: tuple[LogEntry, ...] = ()
    """The commits between the one asked `after` and this one, from the first on, as many as were cheap to give; may be none."""
    released: bool = False
    """The lease was given back in the same step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Nothing was written: these events of the change set had been applied or forgotten before."""

    receipts: Mapping[EventId, Receipt]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stale:
    """Nothing was written: these nodes are not as expected (changed, missing, or there already)."""

    nodes: tuple[NodeId, ...]
    seq: int
    """The tree's present sequence number."""
    missed: tuple[LogEntry, ...] = ()
    """The commits after the one asked `after`, from the first on, as many as were cheap to give; may be none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contribution:
    """A leaf that has reached a summary node but is not in its text yet."""

    mark: Mark
    leaf: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class DirtyNode:
    """A summary node with contributions."""

    node: NodeId
    depth: int
    pending: int
    oldest: Mark


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeStats:
    """Counts over a tree."""

    seq: int
    nodes: int
    """All, the root included."""
    leaves: int
    summaries: int
    events: int
    """Applied and not forgotten."""
    pending: int
    """Contributions waiting, over all nodes."""
    dirty: int
    """Summary nodes with contributions."""
    depths: Mapping[int, int]
    """Nodes by depth, the root left out."""
    leaf_depths: Mapping[int, int]
    rewrites: int
    cost: Cost
    bytes: int
    """What the tree takes in the store, or the store's whole size where it cannot be told apart."""
    oldest: Mark | None = None
    """The oldest contribution that waits, where the adapter knows it without reading all that are dirty; else None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """What waits to be summarized, over all trees."""

    trees: int
    """That there are."""
    contributions: int
    """Waiting, over all their nodes."""
    nodes: int
    """Summary nodes that have any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """What an index needs to know of the commits after one."""

    since: datetime | None
    """When the commit was made that was asked `after`; None for 0, or where the store does not have it."""
    seq: int
    """The last of the commits that were looked at; the one asked `after`, or the tree's last where that is lower, if there are
    none."""
    at: datetime | None
    """When that one was made; None where none was looked at."""
    nodes: tuple[Node, ...] = ()
    """Those that the commits made or rewrote, as they are now, with vectors."""
    gone: tuple[NodeId, ...] = ()
    """Those that the commits removed and that are not there now."""
