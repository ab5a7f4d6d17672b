"""
The HTTP contract as Pydantic models: what answers look like.

Answers are made by `streams.answers`, so that they are those of the command line; these models describe them in the OpenAPI
document, and tests hold the one to the other.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class EventOut(BaseModel):
    """What became of one record."""

    id: str
    status: Literal["accepted", "duplicate", "conflict", "rejected", "forgotten"]
    seq: int | None = Field(description="The commit that holds it; null when that is not known yet (Kafka), or it was rejected.")
    reason: str | None = Field(description="Why it was not accepted.")


class IngestAnswer(BaseModel):
    """What became of the records, in their order."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"events": [{"id": "t-981", "status": "accepted", "seq": 17, "reason": None}], "seq": 17}]}
    )
    events: list[EventOut]
    seq: int | None = Field(description="The last commit that holds one of them; null when that is not known yet.")


class ForgetOut(BaseModel):
    """What forgetting took out of a tree."""

    tree: str
    seq: int = Field(description="The commit with which all of it was gone.")
    forgotten: int = Field(description="Events that were in the tree.")
    unknown: int = Field(description="Events that had not come; they are not taken when they come.")
    already: int = Field(description="Events that had been forgotten before.")
    leaves: int
    summaries_gone: int = Field(description="Summaries that nothing was left below.")
    summaries_remade: int = Field(description="Summaries that stay, and are made anew of what is left below them.")


class ForgetSent(BaseModel):
    """What Kafka has."""

    tree: str
    forgets: list[str] = Field(description="Ids of the messages on the topic.")


class SpeakerOut(BaseModel):
    """Somebody who speaks in a tree."""

    speaker: str
    turns: int
    last_at: datetime | None = Field(description="Of the latest turn that says its time.")


class SpeakersOut(BaseModel):
    """Who speaks in a tree."""

    speakers: list[SpeakerOut]


class FactOut(BaseModel):
    """What somebody said of themselves, word for word."""

    event_id: str
    text: str
    at: datetime | None
    weight: float = Field(description="Of the turn; 1 where the structure keeps no weights.")


class ProfileOut(BaseModel):
    """Who somebody is, by what they said."""

    tree: str
    speaker: str
    turns: int
    conversations: int
    first_at: datetime | None
    last_at: datetime | None
    phrases: list[str] = Field(description="What they speak about, most telling first.")
    facts: list[FactOut] = Field(description="Those that say most and weigh most first.")
    seq: int = Field(description="The commit that it covers.")


class CrumbOut(BaseModel):
    """A summary above a hit."""

    id: str
    text: str


class HitOut(BaseModel):
    """One hit. A leaf has the members of the record it came from; a summary has null there."""

    id: str
    event_id: str | None
    chunk: int
    kind: Literal["leaf", "summary"]
    score: float
    text: str
    conversation: str | None
    speaker: str | None
    at: datetime | None
    title: str | None
    source: str | None
    url: str | None
    metadata: dict[str, Any]
    sources: list[str] = Field(description="Event ids that the text was made from, 20 at most.")
    depth: int
    path: list[CrumbOut] = Field(description="The summaries above it, the uppermost first.")
    descendants: int
    pending: int = Field(description="Leaves below it that its text does not cover yet.")
    provisional: bool
    parts: dict[str, float] | None = None


class SearchOut(BaseModel):
    """Hits, best first."""

    hits: list[HitOut]
    seq: int = Field(description="The commit that the answer covers.")
    strategy: str
    degraded: str | None = Field(description="What the answer is short of; null when nothing was.")
    trace: list[str] | None = None


class ContextOut(BaseModel):
    """Text for a prompt."""

    text: str
    tokens: int
    hits: list[HitOut]
    filtered: bool = Field(description="Whether a model left out what does not matter to the question.")
    note: str = Field(description="Why it was not filtered although it should have been; else empty.")
    seq: int
    degraded: str | None


class DecisionOut(BaseModel):
    """What was compared at one node on the way down."""

    node: str
    depth: int
    best: str | None = Field(description="The most similar child.")
    similarity: float
    threshold: float
    decision: Literal["enter", "attach", "expand", "stay"] = Field(
        description="`enter` the best child; `attach` here; `expand` the best child, a leaf, into a summary of both; `stay`: "
        "placed otherwise, see `note`."
    )
    note: str


class ExplainOut(SearchOut):
    """A search with its reasons, and how a text like the question would be placed in the tree."""

    route: list[DecisionOut]


class LeafRouteOut(BaseModel):
    """How one leaf was placed."""

    leaf: str
    parent: str
    expanded: str | None
    decisions: list[DecisionOut]


class EventRouteOut(BaseModel):
    """How an event was placed, on the tree as it stood then."""

    event_id: str
    seq: int
    leaves: list[LeafRouteOut]


class TreeOut(BaseModel):
    """What a tree is."""

    model_config = ConfigDict(extra="allow")
    tree: str
    structure: str
    strategies: list[str] = Field(description="Ways to search it, the default first.")
    embedder: str
    dimension: int
    created_at: datetime
    seq: int


class TreesOut(BaseModel):
    """A page of trees, by name."""

    trees: list[TreeOut]
    next: str | None = Field(description="Give as `after` for the next page; null at the end.")


class StatsOut(TreeOut):
    """What a tree is and holds."""

    events: int
    nodes: int
    leaves: int
    summaries: int
    depth_max: int
    depth_median: float
    branching: float
    pending: int = Field(description="Summaries that are not up to date.")
    contributions: int
    depths: dict[str, int]
    llm_calls: int
    llm_calls_per_item: float
    bytes: int


class NodeBelow(BaseModel):
    """What is said of every node that is shown below another."""

    id: str
    kind: str
    depth: int
    text: str
    descendants: int
    pending: int
    provisional: bool
    event_id: str | None
    speaker: str | None
    at: datetime | None


class ChildOut(NodeBelow):
    """A node below another."""

    kind: Literal["leaf", "summary"]


class NodeOut(BaseModel):
    """One node, and a page of its children."""

    id: str
    parent: str | None
    kind: Literal["root", "leaf", "summary"]
    depth: int
    version: int
    text: str
    descendants: int
    pending: int
    provisional: bool
    event_id: str | None
    chunk: int | None
    chunks: int | None
    conversation: str | None
    speaker: str | None
    at: datetime | None
    title: str | None
    source: str | None
    url: str | None
    metadata: dict[str, Any]
    attributes: dict[str, str | float]
    sources: list[str]
    created_seq: int = Field(description="The commit that made it.")
    path: list[CrumbOut] = Field(description="The summaries above it, the uppermost first.")
    children: list[ChildOut] = Field(description="In the order asked for.")
    next: int | None = Field(description="Give as `after` for the next page of children; null at the end.")


class DrawnNode(NodeBelow):
    """One node of a drawn tree."""

    kind: Literal["root", "leaf", "summary"]
    children: list[DrawnNode]
    hidden: int


class PastNode(BaseModel):
    """One node as it lay then. A summary's text of that time is not kept."""

    id: str
    kind: Literal["root", "leaf", "summary"]
    depth: int
    leaves: int
    event_id: str | None
    text: str | None
    children: list[PastNode]
    hidden: int


class PastOut(BaseModel):
    """The tree's shape after a commit."""

    tree: str
    seq: int
    nodes: int
    leaves: int
    root: PastNode


class EventRead(BaseModel):
    """An event that the tree has."""

    event_id: str
    seq: int
    leaves: list[ChildOut]


class MadeOut(BaseModel):
    """A node that a commit made or moved."""

    id: str
    parent: str
    kind: str | None
    depth: int


class CommitOut(BaseModel):
    """One commit."""

    seq: int
    at: datetime
    events: list[str]
    created: list[MadeOut]
    moved: list[MadeOut]
    rewritten: list[str] = Field(description="Summaries that got a new text.")
    removed: list[str] = Field(description="Nodes that went.")
    forgotten: list[str] = Field(description="Events that were forgotten, by their ids.")


class CommitsOut(BaseModel):
    """A page of commits."""

    commits: list[CommitOut]
    seq: int = Field(description="The tree's last commit.")
    next: int | None = Field(description="Give as `after` for the next page; null at the end.")


class AliveOut(BaseModel):
    """The process answers."""

    status: Literal["ok"]


class ReadyOut(BaseModel):
    """Whether questions can be answered, and what is missing."""

    status: Literal["ready", "degraded", "not ready"]
    missing: dict[str, str] = Field(description="By the dependency's name, the kind of error.")


class Wrong(BaseModel):
    """One thing that cannot be taken."""

    model_config = ConfigDict(extra="allow")
    field: str
    reason: str


class ProblemOut(BaseModel):
    """An error, as RFC 9457 has it."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(examples=["urn:banyan:problem:tree-not-found"])
    title: str = Field(examples=["No such tree"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no tree 'user-42'"])
    instance: str = Field(description="Has the request's id, which the service's log has too.")
    errors: list[Wrong] | None = None
    missing: str | None = None
