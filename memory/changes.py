"""What happens to a tree, as values: the steps of a commit, the change log, and the skeleton a view is loaded from."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.model import ATTRIBUTE_CHARACTERS_MAX, ATTRIBUTES_MAX, Attributes, EventId, Item, Mark, NodeId, NodeKind, TreeId, Vector


@dataclass(frozen=True, slots=True, kw_only=True)
class Create:
    """
    A new node below `parent`. Bumps `parent`'s routing.

    A summary starts with no descendants; `Grow` steps give it those. One that is put above a node that is there (`above`, followed
    by the `Move` of that node) starts with that node's descendants and contributions instead: it covers what the other covers.
    In a change set `text` and, for a leaf, `item` are given; in a change log they are left out (text "", item None).
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
    attributes: Attributes = field(default_factory=dict)
    above: NodeId | None = None
    """A summary whose descendants and contributions the new summary takes over, as they stand at this step."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Annotate:
    """
    Attributes of a node are set: those named, the others stay.

    Bumps the node's version, and no routing: plans do not read what changes here. Values are absolute; whoever computes them from
    earlier ones expects the `version` that it read.
    """

    node: NodeId
    attributes: Attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """
    Edges of the association graph, without direction, between `node` and each of `others`. Bumps nothing.

    An edge that is there gets the new weight.
    """

    node: NodeId
    others: tuple[NodeId, ...]
    """Each once, not `node` itself; may be empty."""
    weights: tuple[float, ...] = ()
    """One an edge, above 0; none at all means 1.0 each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shrink:
    """
    A leaf no longer lies below `nodes`, because it is going to be removed: one descendant less for each.

    Its contribution goes wherever it waits, the others stay. Comes before the leaf's `Remove`.
    """

    leaf: NodeId
    nodes: tuple[NodeId, ...]
    """Summary nodes, the root left out, each once; may be empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """
    A leaf goes, or a summary that has no child by this step: text, item, vector, attributes, contributions and edges.

    Bumps `parent`'s routing. Of a subtree the deepest goes first.
    """

    node: NodeId
    parent: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Recall:
    """
    A leaf waits again, with this step's mark, at those of `nodes` where nothing waits: they are to be made anew.

    Their descendants do not change, so that what they cover is one less.
    """

    leaf: NodeId
    nodes: tuple[NodeId, ...]
    """Summary nodes above the leaf, each once; may be empty."""


Step = Create | Move | Grow | Rewrite | Annotate | Link | Shrink | Remove | Recall


def check_attributes(attributes: Attributes) -> None:
    """Raise ValueError unless the attributes are within `memory.model.Attributes`."""
    if len(attributes) > ATTRIBUTES_MAX:
        raise ValueError(f"a node has at most {ATTRIBUTES_MAX} attributes, got {len(attributes)}")
    for name, value in attributes.items():
        fits = len(value) <= ATTRIBUTE_CHARACTERS_MAX if isinstance(value, str) else math.isfinite(value)
        if not 0 < len(name) <= 32 or not fits:
            raise ValueError(
                f"attribute {name[:40]!r}: a name has 1 to 32 characters, a value is a text of at most "
                f"{ATTRIBUTE_CHARACTERS_MAX:,} characters or a finite number"
            )


def check_link(link: Link) -> None:
    """Raise ValueError unless the edges are as `Link` says."""
    if link.node in link.others or len(set(link.others)) != len(link.others):
        raise ValueError(f"links of {link.node}: the others must be other nodes, each named once")
    if link.weights and (len(link.weights) != len(link.others) or not all(0 < weight < math.inf for weight in link.weights)):
        raise ValueError(f"links of {link.node}: one weight above 0 for each edge, or none at all")


class Expectation(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """
    What a change set relies on; None means it does not rely on that.

    A batch has hundreds in a deep tree: a dataclass takes ten times as long to make.
    """

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
    forgets: tuple[EventId, ...] = ()
    """
    Events that are forgotten, applied before or not, each once and none of `events`. Of one that was applied the same set removes
    every leaf. What is remembered of it afterwards is that it was forgotten: if it comes again it is not applied.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """One commit as the change log keeps it: enough to bring a view up to date and to replay the placements."""

    seq: int
    at: datetime
    steps: tuple[Step, ...]
    events: tuple[EventId, ...]
    forgets: tuple[EventId, ...] = ()
    """With notes (`NOTE`)."""


def check_forgets(changes: ChangeSet) -> None:
    """Raise ValueError unless the events that a set forgets are named as `ChangeSet.forgets` says."""
    forgets = set(changes.forgets)
    if len(forgets) != len(changes.forgets):
        raise ValueError("a change set forgets each event once")
    if both := forgets & {event.id for event in changes.events}:
        raise ValueError(f"a change set applies or forgets an event, not both: {min(both)!r}")


NOTE = "\x1f"
"""
What the name of a note begins with: a forget of something that events share is noted beside the events that it names, as if it were
one of them, so that it is known when it was first dealt with. No event's id has a control character.
"""


def forgotten(entry: LogEntry) -> list[EventId]:
    """The events that a commit forgot, without notes."""
    return [event for event in entry.forgets if not event.startswith(NOTE)]


def removed(entry: LogEntry) -> list[NodeId]:
    """The nodes that a commit took out."""
    return [step.node for step in entry.steps if isinstance(step, Remove)]


def written(entry: LogEntry) -> list[Create | Rewrite]:
    """The steps of a commit that give a node a text and a vector."""
    return [step for step in entry.steps if isinstance(step, Create | Rewrite)]


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
    attributes: Mapping[NodeId, Attributes] = field(default_factory=dict)
    """Of the nodes that have any."""
    links: tuple[Link, ...] = ()
    """In the order in which they were made."""
