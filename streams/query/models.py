"""
The HTTP contract as Pydantic models: what answers look like.

Answers are made by `streams.answers`, so that they are those of the command line; these models describe them in the OpenAPI
document, and tests hold the one to the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import ConfigDict, Field

from streams.query.shown import (
    LEAF,
    OTHER_LEAF,
    TURNS,
    Answer,
    EventName,
    FirstSeq,
    LastSeq,
    LeafName,
    No,
    NoMetadata,
    One,
    Said,
    SaidAt,
    SaidBy,
    SaidIn,
    SummaryName,
    Summed,
    TreeName,
    Two,
    Zero,
)


class EventOut(Answer):
    """What became of one record."""

    id: EventName
    status: Literal["accepted", "duplicate", "conflict", "rejected", "forgotten"]
    seq: FirstSeq | None = Field(
        description="The commit that holds it; null when that is not known yet (Kafka), or it was rejected."
    )
    reason: str | None = Field(description="Why it was not accepted.")


class IngestAnswer(Answer):
    """What became of the records, in their order."""

    events: list[EventOut]
    seq: FirstSeq | None = Field(description="The last commit that holds one of them; null when that is not known yet.")


class ForgetOut(Answer):
    """What forgetting took out of a tree."""

    tree: TreeName
    seq: int = Field(description="The commit with which all of it was gone.", examples=[5])
    forgotten: One = Field(description="Events that were in the tree.")
    unknown: Zero = Field(description="Events that had not come; they are not taken when they come.")
    already: Zero = Field(description="Events that had been forgotten before.")
    leaves: One
    summaries_gone: Zero = Field(description="Summaries that nothing was left below.")
    summaries_remade: One = Field(description="Summaries that stay, and are made anew of what is left below them.")


class ForgetSent(Answer):
    """What Kafka has."""

    tree: TreeName
    forgets: list[str] = Field(description="Ids of the messages on the topic.", examples=[["forget-5f0c1d9a"]])


class SpeakerOut(Answer):
    """Somebody who speaks in a tree."""

    speaker: SaidBy
    turns: One
    last_at: SaidAt | None = Field(description="Of the latest turn that says its time.")


class SpeakersOut(Answer):
    """Who speaks in a tree."""

    speakers: list[SpeakerOut]


class FactOut(Answer):
    """What somebody said of themselves, word for word."""

    event_id: EventName
    text: Said
    at: SaidAt | None
    weight: float = Field(description="Of the turn; 1 where the structure keeps no weights.", examples=[1.0])


class ProfileOut(Answer):
    """Who somebody is, by what they said."""

    tree: TreeName
    speaker: SaidBy
    turns: One
    conversations: One
    first_at: SaidAt | None
    last_at: SaidAt | None
    phrases: list[str] = Field(description="What they speak about, most telling first.", examples=[["Porto", "flat"]])
    facts: list[FactOut] = Field(description="Those that say most and weigh most first.")
    seq: LastSeq = Field(description="The commit that it covers.")


class CrumbOut(Answer):
    """A summary above a hit."""

    id: SummaryName
    text: Summed


class HitOut(Answer):
    """One hit. A leaf has the members of the record it came from; a summary has null there."""

    id: LeafName
    event_id: EventName | None
    chunk: Zero
    kind: Literal["leaf", "summary"]
    score: float = Field(examples=[1.1])
    text: Said
    conversation: SaidIn | None
    speaker: SaidBy | None
    at: SaidAt | None
    title: str | None
    source: str | None
    url: str | None
    metadata: NoMetadata
    sources: list[EventName] = Field(description="Event ids that the text was made from, 20 at most.")
    depth: Two
    path: list[CrumbOut] = Field(description="The summaries above it, the uppermost first.")
    descendants: Zero
    pending: Zero = Field(description="Leaves below it that its text does not cover yet.")
    provisional: No
    parts: dict[str, float] | None = None


class SearchOut(Answer):
    """Hits, best first."""

    hits: list[HitOut]
    seq: LastSeq = Field(description="The commit that the answer covers.")
    strategy: str = Field(examples=["hybrid"])
    degraded: str | None = Field(description="What the answer is short of; null when nothing was.")
    trace: list[str] | None = None


class ContextOut(Answer):
    """Text for a prompt."""

    text: str = Field(examples=["[2026-05-08 13:56] Ana: We took the flat in Porto."])
    tokens: int = Field(examples=[12])
    hits: list[HitOut]
    filtered: No = Field(description="Whether a model left out what does not matter to the question.")
    note: str = Field(description="Why it was not filtered although it should have been; else empty.", examples=[""])
    seq: LastSeq
    degraded: str | None


class DecisionOut(Answer):
    """What was compared at one node on the way down."""

    node: str = Field(examples=["root"])
    depth: Zero
    best: SummaryName | None = Field(description="The most similar child.")
    similarity: float = Field(examples=[0.3725])
    threshold: float = Field(examples=[0.4])
    decision: Literal["enter", "attach", "expand", "stay"] = Field(
        description="`enter` the best child; `attach` here; `expand` the best child, a leaf, into a summary of both; `stay`: "
        "placed otherwise, see `note`.",
        examples=["attach"],
    )
    note: str = Field(examples=[""])


class ExplainOut(SearchOut):
    """A search with its reasons, and how a text like the question would be placed in the tree."""

    shown: ClassVar[Mapping[str, Any]] = {
        "hits": [
            HitOut.example(
                parts={
                    "cosine": 0.3313,
                    "bm25": 0.4847,
                    "dense": 0.4,
                    "lexical": 0.6,
                    "neighbours": 0.0,
                    "kind": 1.0,
                    "speaker": 1.1,
                    "date": 1.0,
                    "title": 0.0,
                }
            )
        ],
        "trace": ["named: Ana; also asked as 'Where does live now?'", "3 candidates, 0 turns around them"],
    }
    route: list[DecisionOut]


class LeafRouteOut(Answer):
    """How one leaf was placed."""

    leaf: str = Field(examples=[OTHER_LEAF])
    parent: SummaryName
    expanded: LeafName | None
    decisions: list[DecisionOut] = Field(examples=[[DecisionOut.example(best=LEAF, similarity=0.5941, decision="expand")]])


class EventRouteOut(Answer):
    """How an event was placed, on the tree as it stood then."""

    event_id: str = Field(examples=[TURNS[1]])
    seq: Two
    leaves: list[LeafRouteOut]


class AliveOut(Answer):
    """The process answers."""

    status: Literal["ok"]


class ReadyOut(Answer):
    """Whether questions can be answered, and what is missing."""

    status: Literal["ready", "degraded", "not ready"]
    missing: dict[str, str] = Field(description="By the dependency's name, the kind of error.", examples=[{}])


class Wrong(Answer):
    """One thing that cannot be taken."""

    model_config = ConfigDict(extra="allow")
    field: str = Field(examples=["k"])
    reason: str = Field(examples=["is less than 1"])


class ProblemOut(Answer):
    """An error, as RFC 9457 has it."""

    model_config = ConfigDict(extra="allow")
    type: str = Field(examples=["urn:banyan:problem:tree-not-found"])
    title: str = Field(examples=["No such tree"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no tree 'user-42'"])
    instance: str = Field(
        description="Has the request's id, which the service's log has too.", examples=["urn:banyan:request:6b21399a3f014172"]
    )
    errors: list[Wrong] | None = None
    missing: str | None = None
