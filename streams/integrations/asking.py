"""One question to any kind of memory, waited for or awaited, with the answer in one shape."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from memory import LocalMemory
from memory.errors import QueryError, SettingError
from memory.model import NodeKind
from memory.ports.index import Scope
from memory.records import parse_time, tree_id
from memory.results import SearchAnswer
from memory.sync import LocalMemorySync
from streams.answers import hit_json

if TYPE_CHECKING:
    from streams.client import AsyncClient, Client

    Source = LocalMemory | LocalMemorySync | AsyncClient | Client

TITLE_CHARACTERS = 120
_NAMED = ("speaker", "conversation", "source")
_OF_ORIGIN = ("event_id", "chunk", "speaker", "conversation", "at", "title", "source", "url")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """
    What a retriever asks, again and again.

    Raises:
        RecordError: the tree's name, or a time, cannot be.
        QueryError: a filter cannot be.
    """

    tree: str
    k: int = 10
    strategy: str = "hybrid"
    filter: Mapping[str, str | float | bool] = field(default_factory=dict)
    """As over HTTP (docs/http.md): `kind`, `speaker`, `conversation`, `source`, names of metadata; all must hold."""
    since: str | None = None
    until: str | None = None
    group: Literal["none", "conversation", "document"] = "none"

    def __post_init__(self) -> None:
        tree_id(self.tree)
        self.scope()

    def scope(self) -> Scope:
        """The conditions, for a memory in this process."""
        given = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in self.filter.items()}
        kind = given.pop("kind", None)
        if kind not in (None, NodeKind.LEAF.value, NodeKind.SUMMARY.value):
            raise QueryError(f"filter: kind {kind[:60]!r} is neither leaf nor summary")
        named = {name: given.pop(name, None) for name in _NAMED}
        return Scope(
            kinds=None if kind is None else frozenset({NodeKind(kind)}),
            since=None if self.since is None else parse_time("since", self.since),
            until=None if self.until is None else parse_time("until", self.until),
            metadata=given,
            **named,
        )


def ask(source: Source, asking: Asking, query: str) -> list[Mapping[str, Any]]:
    """
    The hits, as the command line's `--json` has them.

    Raises:
        SettingError: the memory can only be awaited.
        BanyanError: as the memory raises.
    """
    if inspect.iscoroutinefunction(source.search):
        raise SettingError(
            f"{type(source).__name__} can only be awaited: use the retriever's asynchronous methods, or give it "
            "streams.client.Client or memory.open_local_sync(…)"
        )
    return _hits(cast("Any", source).search(asking.tree, query, **_options(source, asking)))


async def ask_async(source: Source, asking: Asking, query: str) -> list[Mapping[str, Any]]:
    """As `ask`; a memory that cannot be awaited is asked in a thread."""
    if not inspect.iscoroutinefunction(source.search):
        return await asyncio.to_thread(ask, source, asking, query)
    return _hits(await cast("Any", source).search(asking.tree, query, **_options(source, asking)))


def _options(source: Source, asking: Asking) -> dict[str, Any]:
    asked: dict[str, Any] = {"k": asking.k, "group": asking.group, "strategy": asking.strategy}
    if isinstance(source, LocalMemory | LocalMemorySync):
        return {**asked, "scope": asking.scope()}
    return {**asked, "filter": dict(asking.filter), "since": asking.since, "until": asking.until}


def _hits(answer: Any) -> list[Mapping[str, Any]]:
    return [hit_json(hit) for hit in answer.hits] if isinstance(answer, SearchAnswer) else list(answer["hits"])


def about(hit: Mapping[str, Any]) -> dict[str, Any]:
    """What a document says of itself: the record's own metadata, under it what Banyan knows; without what is not known."""
    at = hit["at"]
    own = {name: hit[name] for name in _OF_ORIGIN if hit[name] is not None}
    topics = [title for crumb in hit["path"] if (title := crumb["text"].strip().partition("\n")[0][:TITLE_CHARACTERS])]
    counted = {"sources": list(hit["sources"]), "topics": topics, "pending": hit["pending"]}
    return {
        **hit["metadata"],
        **own,
        **({} if at is None else {"at": at if isinstance(at, str) else at.isoformat()}),
        **counted,
        "node_id": hit["id"],
        "kind": hit["kind"],
        "score": hit["score"],
    }
