"""What the service answers, as typed dictionaries: members that a newer service adds are there too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypedDict


class EventResult(TypedDict):
    """What became of one record."""

    id: str
    status: Literal["accepted", "duplicate", "conflict", "rejected", "forgotten"]
    seq: int | None
    reason: str | None


class ForgetAnswer(TypedDict, total=False):
    """What forgetting took out of a tree; where the service sends to Kafka, `tree` and `forgets` alone."""

    tree: str
    seq: int
    forgotten: int
    unknown: int
    already: int
    leaves: int
    summaries_gone: int
    summaries_remade: int
    forgets: list[str]


class Crumb(TypedDict):
    """A summary above a hit."""

    id: str
    text: str


class Hit(TypedDict):
    """One answer to a question."""

    id: str
    event_id: str | None
    chunk: int
    kind: Literal["leaf", "summary"]
    score: float
    text: str
    conversation: str | None
    speaker: str | None
    at: str | None
    title: str | None
    source: str | None
    url: str | None
    metadata: dict[str, Any]
    sources: list[str]
    depth: int
    path: list[Crumb]
    descendants: int
    pending: int
    provisional: bool


class SearchAnswer(TypedDict):
    """Hits, best first, and the commit that they cover."""

    hits: list[Hit]
    seq: int
    strategy: str
    degraded: str | None


class ContextAnswer(TypedDict):
    """Text for a prompt, and what is in it."""

    text: str
    tokens: int
    hits: list[Hit]
    filtered: bool
    note: str
    seq: int
    degraded: str | None


class TreeInfo(TypedDict):
    """What a tree is."""

    tree: str
    structure: str
    strategies: list[str]
    """Ways to search it, the default first."""
    embedder: str
    dimension: int
    created_at: str
    seq: int


class Commit(TypedDict):
    """What one commit changed."""

    seq: int
    at: str
    events: list[str]
    created: list[dict[str, Any]]
    moved: list[dict[str, Any]]
    rewritten: list[str]
    removed: list[str]
    forgotten: list[str]


class AskOptions(TypedDict, total=False):
    """What a question may say beside its words (docs/http.md)."""

    strategy: str
    filter: Mapping[str, str | float | bool]
    since: str | None
    until: str | None
    min_seq: int | None
    wait_for: str | None
    wait_seconds: float


class ContextOptions(AskOptions, total=False):
    """And a text for a prompt."""

    context_filter: bool | None


class SearchOptions(AskOptions, total=False):
    """And a search."""

    k: int
    group: Literal["none", "conversation", "document"]
    explain: bool
