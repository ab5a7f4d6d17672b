"""What the use cases answer with; plain values, ready to be shown or sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from memory.model import EventId, NodeId, NodeKind, TreeId


class EventStatus(StrEnum):
    """What became of an event."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    """The same event had been applied before; nothing changed."""
    CONFLICT = "conflict"
    """Its id had been applied with another content; the first stands."""
    REJECTED = "rejected"
    """It is no valid record."""
    FORGOTTEN = "forgotten"
    """It was forgotten, before it came or after: it is not taken in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventResult:
    """What became of one record."""

    tree: TreeId
    id: EventId
    status: EventStatus
    seq: int
    """Commit that holds it, or forgot it; 0 when rejected."""
    reason: str = ""
    """Why it was not accepted; empty when it was."""


def rejected(record: object, tree: str | None, reason: str) -> EventResult:
    """The answer to something that is no record, with what it says of itself; `tree`: for one that names none."""
    named = record if isinstance(record, Mapping) else {}
    return EventResult(
        tree=TreeId(str(named.get("tree", tree or ""))[:128]),
        id=EventId(str(named.get("id", ""))[:256]),
        status=EventStatus.REJECTED,
        seq=0,
        reason=reason,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where a hit comes from."""

    event_id: EventId
    chunk: int
    conversation: str | None
    speaker: str | None
    source: str | None
    title: str | None
    url: str | None
    at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crumb:
    """One ancestor summary of a hit, the uppermost first."""

    id: NodeId
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One answer to a query."""

    id: NodeId
    kind: NodeKind
    score: float
    """Comparable within one answer only; higher is better."""
    text: str
    depth: int
    event_id: EventId | None
    """Of a leaf: the caller's id (a document's chunk: the document's)."""
    chunk: int
    source: Source | None
    """Of a leaf."""
    sources: tuple[EventId, ...]
    """Event ids this text was made from: one for a leaf, up to 20 of those below a summary."""
    path: tuple[Crumb, ...]
    descendants: int
    pending: int
    """Leaves below it that its text does not cover yet."""
    provisional: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    """What the score is made of, by name; for `--explain`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchAnswer:
    """The hits of one query, best first."""

    hits: tuple[Hit, ...]
    seq: int
    """The commit that the answer covers."""
    strategy: str
    trace: tuple[str, ...] = ()
    """How the strategy went about it, a line a step; for `--explain`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speaker:
    """Somebody who speaks in a tree."""

    name: str
    turns: int
    last_at: datetime | None
    """Of the latest turn that says its time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What somebody said of themselves, word for word."""

    event_id: EventId
    text: str
    at: datetime | None
    weight: float
    """Of the turn, at the time of the latest one; 1 where the structure keeps no weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Who somebody is, by what they said in a tree."""

    tree: TreeId
    speaker: str
    turns: int
    conversations: int
    first_at: datetime | None
    last_at: datetime | None
    phrases: tuple[str, ...]
    """What they speak about, most telling first."""
    facts: tuple[Fact, ...]
    """Those that say most and weigh most first."""
    seq: int
    """The commit that it covers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailingNode:
    """A summary that could not be made the last time it was tried, or several times in a row."""

    id: NodeId
    failures: int
    """Attempts in a row, at least 1."""
    reason: str
    at: datetime
    """Of the last one, UTC."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeReport:
    """`banyan stats` (design section 9)."""

    tree: TreeId
    structure: str
    embedder: str
    dimension: int
    parameters: Mapping[str, float]
    seq: int
    events: int
    nodes: int
    """All but the root."""
    leaves: int
    summaries: int
    depth_max: int
    depth_median: float
    """Of the leaves."""
    branching: float
    """Mean number of children of the nodes that have any, the root included."""
    pending: int
    """Summary nodes that are not up to date."""
    contributions: int
    """Contributions waiting, over all nodes."""
    oldest_pending_at: datetime | None = None
    """Commit of the oldest contribution that waits, UTC; None when none does."""
    failing: tuple[FailingNode, ...] = ()
    """Summaries that fail, as far as this process can see, those with most failures first; at most 20."""
    depths: Mapping[int, int]
    """Nodes by depth."""
    llm_calls: int
    llm_calls_per_item: float
    tokens_in: int
    tokens_out: int
    rewrites: int
    rewrites_per_item: float
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeNode:
    """One node of a drawn tree."""

    id: NodeId
    kind: NodeKind
    depth: int
    text: str
    descendants: int
    pending: int
    provisional: bool
    event_id: EventId | None
    speaker: str | None
    at: datetime | None
    children: tuple[TreeNode, ...]
    hidden: int
    """Children that are not shown, because of the depth or the number asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """Something that must not be, found by `banyan check`."""

    invariant: str
    """Its name, e.g. `single-parent`."""
    node: NodeId | None
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetReport:
    """What forgetting took out of a tree."""

    tree: TreeId
    seq: int
    """The tree's commit with which all of it was gone."""
    forgotten: int
    """Events that were in the tree."""
    unknown: int
    """Events that had not come: if they do, they are not taken in."""
    already: int
    """Events that had been forgotten before."""
    leaves: int
    summaries_gone: int
    """Summaries that nothing was left below."""
    summaries_remade: int
    """Summaries that stay, with a text and a vector of what is left below them; made properly by and by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReport:
    """What `banyan check` found."""

    tree: TreeId
    seq: int
    nodes: int
    """Leaves and summaries."""
    replayed: int
    """Placements that were replayed serially."""
    violations: tuple[Violation, ...]
    unverifiable: int = 0
    """Placements that were not replayed: what they were compared with was forgotten since."""

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not self.violations
