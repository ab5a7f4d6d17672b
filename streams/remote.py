"""A memory behind a running `banyan serve`, asked like one in this process; only what a service does is here."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NoReturn, TypeVar, cast

import httpx
import msgspec

from memory.errors import (
    EmbedderError,
    NodeNotFoundError,
    NoWeightsError,
    PermanentError,
    QueryError,
    SettingError,
    TransientError,
    TreeMismatchError,
    TreeNotFoundError,
)
from memory.model import ROOT, EmbeddingModel, EventId, NodeId, TreeId, TreeInfo
from memory.ports.index import Scope
from memory.records import Document, Feedback, Record, Turn, parse, tree_id
from memory.results import EventResult, EventStatus, ForgetReport, Hit, Profile, SearchAnswer, Speaker, TreeNode, TreeReport
from memory.service.query import Context
from memory.service.stream import IngestTotals
from streams.client import AsyncClient, ServiceError
from streams.client.answers import AskOptions, ContextOptions
from streams.client.exchange import CHARACTERS_AT_ONCE, LINES_AT_ONCE
from streams.pieces import Pieces
from streams.settings import Settings

T = TypeVar("T")
_KEY_BYTES_MAX = 4_096
_ERRORS: Mapping[str, type[PermanentError]] = {
    "tree-not-found": TreeNotFoundError,
    "node-not-found": NodeNotFoundError,
    "tree-mismatch": TreeMismatchError,
    "no-weights": NoWeightsError,
    "invalid": QueryError,
    "unauthorized": SettingError,
    "forbidden": SettingError,
    "misdirected": SettingError,
}
"""What a problem's kind is called in this process."""
_COUNTED = ("forgotten", "unknown", "already", "leaves", "summaries_gone", "summaries_remade")
_ORIGIN = ("event_id", "chunk", "conversation", "speaker", "source", "title", "url", "at")


def connect(settings: Settings, *, on_degraded: Callable[[str], None] | None = None) -> RemoteMemory:
    """
    The memory behind the service that the settings name.

    Args:
        settings: with a `url`.
        on_degraded: told what an answer is short of, when it is.

    Raises:
        SettingError: the address or the key cannot be used.
    """
    assert settings.url is not None
    if not settings.url.startswith(("http://", "https://")) or "@" in settings.url or not settings.url.isprintable():
        raise SettingError(
            "url: write http://HOST:PORT or https://HOST, without user and password; the key is BANYAN_KEY (BANYAN_URL, --url)"
        )
    try:
        client = AsyncClient(settings.url, key=_key(settings))
    except httpx.InvalidURL as error:
        raise SettingError(f"url: {error} (BANYAN_URL, --url)") from error
    return RemoteMemory(client, on_degraded=on_degraded)


def _key(settings: Settings) -> str | None:
    if settings.key is not None:
        return settings.key.reveal()
    if settings.key_file is None:
        return None
    try:
        with settings.key_file.open("rb") as stream:
            content = stream.read(_KEY_BYTES_MAX + 1)
        key = content.decode("ascii").strip()
    except OSError as error:
        raise SettingError(f"the key in {settings.key_file} cannot be read: {error.strerror} (BANYAN_KEY_FILE)") from error
    except UnicodeDecodeError as error:
        raise SettingError(f"{settings.key_file} has no key of `banyan keys create` (BANYAN_KEY_FILE)") from error
    if not key or len(content) > _KEY_BYTES_MAX:
        raise SettingError(f"{settings.key_file} has no key of `banyan keys create` (BANYAN_KEY_FILE)")
    return key


class RemoteMemory:
    """
    What `LocalMemory` does, by a service: the same arguments, answers and errors.

    Args:
        client: to the service; closed with the memory.
        on_degraded: told what an answer is short of, when it is.
    """

    def __init__(self, client: AsyncClient, *, on_degraded: Callable[[str], None] | None = None) -> None:
        self._client = client
        self._on_degraded = on_degraded

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def on_embedder_wait(self, call: Callable[[EmbedderError, float], None]) -> None:
        """Nothing is to be told: a service that waits for its model says so by being away."""

    # ------------------------------------------------------------------------------------------------------------ writing

    async def ingest(self, records: Iterable[Record | Mapping[str, Any]], *, tree: str | None = None) -> list[EventResult]:
        """
        Put records in, in order, and tell what became of each.

        Raises:
            RecordError: one is no record; nothing was sent.
        """
        results: list[EventResult] = []
        given = [each if isinstance(each, Turn | Document) else parse(each, tree=tree) for each in records]
        await self.ingest_stream(given, on_batch=results.extend)
        return results

    async def ingest_stream(
        self,
        records: AsyncIterator[Record] | Iterable[Record],
        *,
        on_batch: Callable[[Sequence[EventResult]], None] | None = None,
        stop: object = None,  # noqa: ARG002  # whoever gives the records ends them
    ) -> IngestTotals:
        """Put any number of records in, as many at a time as the service takes; see `LocalMemory.ingest_stream`."""
        totals = IngestTotals()
        batch: list[Record] = []
        characters = 0

        async def send() -> None:
            results = await self._put(batch)
            totals.add(results)
            if on_batch is not None:
                on_batch(results)
            batch.clear()

        async for record in _each(records):
            batch.append(record)
            characters += len(record.text)
            if len(batch) >= LINES_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
                await send()
                characters = 0
        if batch:
            await send()
        return totals

    async def _put(self, records: Sequence[Record]) -> list[EventResult]:
        """Records of any trees; the order is kept within each."""
        by_tree: dict[str, list[Record]] = {}
        for record in records:
            by_tree.setdefault(record.tree, []).append(record)
        results: list[EventResult] = []
        for tree, some in by_tree.items():
            try:
                answers = await self._client.put(tree, [_object(record) for record in some])
            except ServiceError as error:
                _raise(error)
            results += [
                EventResult(
                    tree=TreeId(tree),
                    id=EventId(record.id),
                    status=EventStatus(answer["status"]),
                    seq=answer["seq"] or 0,
                    reason=answer["reason"] or "",
                )
                for record, answer in zip(some, answers, strict=True)
            ]
        return results

    async def feedback(self, feedback: Iterable[Feedback | Mapping[str, Any]], *, tree: str) -> list[EventResult]:
        """See `LocalMemory.feedback`; of one tree."""
        name = tree_id(tree)
        given = [dict(msgspec.to_builtins(each) if isinstance(each, Feedback) else each) for each in feedback]
        try:
            answers = await self._client.feedback(name, given)
        except ServiceError as error:
            _raise(error)
        return [
            EventResult(
                tree=name,
                id=EventId(answer["id"]),
                status=EventStatus(answer["status"]),
                seq=answer["seq"] or 0,
                reason=answer["reason"] or "",
            )
            for answer in answers
        ]

    async def forget(
        self, tree: str, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
    ) -> ForgetReport | None:
        """See `LocalMemory.forget`, with one selector; None where the service sends to Kafka, and workers forget then."""
        name = tree_id(tree)
        try:
            answers = await self._client.forget(
                name, events=events, conversation=conversation, before=None if before is None else before.isoformat()
            )
        except ServiceError as error:
            _raise(error)
        if any("forgets" in answer for answer in answers):
            return None
        reports = [_converted(answer, ForgetReport) for answer in answers]
        counts = {each: sum(getattr(report, each) for report in reports) for each in _COUNTED}
        return ForgetReport(tree=name, seq=max((report.seq for report in reports), default=0), **counts)

    # ------------------------------------------------------------------------------------------------------------ reading

    async def search(
        self,
        tree: str,
        query: str,
        *,
        k: int = 10,
        strategy: str = "hybrid",
        scope: Scope | None = None,
        group: Literal["none", "conversation", "document"] = "none",
        explain: bool = False,
    ) -> SearchAnswer:
        """See `LocalMemory.search`; an answer that is short of something says so to `on_degraded`."""
        try:
            value = await self._client.search(
                tree_id(tree), query, k=k, group=group, explain=explain, **_options(strategy, scope or Scope())
            )
        except ServiceError as error:
            _raise(error)
        self._say(value["degraded"])
        trace = cast("Sequence[str]", value.get("trace", ()))
        return SearchAnswer(hits=_hits(value["hits"]), seq=value["seq"], strategy=value["strategy"], trace=tuple(trace))

    async def context(
        self,
        tree: str,
        query: str,
        *,
        tokens: int,
        strategy: str = "hybrid",
        scope: Scope | None = None,
        context_filter: bool | None = None,
    ) -> Context:
        """See `LocalMemory.context`; an answer that is short of something says so to `on_degraded`."""
        options = cast("ContextOptions", _options(strategy, scope or Scope()))
        if context_filter is not None:  # services of before this option do not know it
            options["context_filter"] = context_filter
        try:
            value = await self._client.context(tree_id(tree), query, tokens=tokens, **options)
        except ServiceError as error:
            _raise(error)
        self._say(value["degraded"])
        return Context(
            text=value["text"],
            tokens=value["tokens"],
            hits=_hits(value["hits"]),
            seq=value["seq"],
            filtered=value.get("filtered", False),
            note=value.get("note", ""),
        )

    async def tree(self, tree: str, *, depth: int | None = None, children: int = 20, node: str | None = None) -> TreeNode:
        """
        See `LocalMemory.tree`; what is more than the service draws at once is asked for in pieces.

        Raises:
            QueryError: more than `PIECES_MAX` pieces, or more than 100 children of a node.
        """
        name = tree_id(tree)

        async def piece(node: NodeId, depth: int) -> TreeNode:
            try:
                value = await self._client.tree(name, node=node, depth=depth, children=children)
            except ServiceError as error:
                _raise(error)
            return _converted(value, TreeNode)

        return await Pieces(piece, children=children).drawn(NodeId(node) if node else ROOT, depth)

    async def trees(self) -> list[TreeInfo]:
        """All trees that the key reaches, by name. Their models' unrelated cosine is not told, and 0 here."""
        try:
            return [_tree_info(value) async for value in self._client.trees()]
        except ServiceError as error:
            _raise(error)

    async def speakers(self, tree: str) -> list[Speaker]:
        """See `LocalMemory.speakers`; 1,000 at most."""
        try:
            return [
                _converted({**value, "name": value.get("speaker")}, Speaker) for value in await self._client.speakers(tree_id(tree))
            ]
        except ServiceError as error:
            _raise(error)

    async def profile(self, tree: str, speaker: str, *, facts: int = 20) -> Profile | None:
        """See `LocalMemory.profile`."""
        try:
            return _converted(await self._client.profile(tree_id(tree), speaker, facts=facts), Profile)
        except ServiceError as error:
            if error.kind == "speaker-not-found":
                return None
            _raise(error)

    async def stats(self, tree: str) -> TreeReport:
        """See `LocalMemory.stats`."""
        try:
            return _converted(await self._client.stats(tree_id(tree)), TreeReport)
        except ServiceError as error:
            _raise(error)

    def _say(self, degraded: str | None) -> None:
        if degraded is not None and self._on_degraded is not None:
            self._on_degraded(degraded)


def _raise(error: ServiceError) -> NoReturn:
    """What this would be in this process."""
    if error.status >= 500 or error.kind in ("not-covered", "slow-request"):
        raise TransientError(f"the service says: {error}") from error
    kind = _ERRORS.get(error.kind, PermanentError)
    detail = str(error.problem.get("detail") or error)
    if kind is SettingError:
        detail = f"the service refuses the key, or asks for one: {detail} (BANYAN_KEY or BANYAN_KEY_FILE; `banyan keys create`)"
    raise kind(detail) from error


def _options(strategy: str, scope: Scope) -> AskOptions:
    named = {"speaker": scope.speaker, "conversation": scope.conversation, "source": scope.source}
    given: dict[str, str | float | bool] = {**scope.metadata, **{name: value for name, value in named.items() if value is not None}}
    if scope.kinds is not None and len(scope.kinds) == 1:
        [given["kind"]] = (kind.value for kind in scope.kinds)
    return {
        "strategy": strategy,
        "filter": given,
        "since": scope.since.isoformat() if scope.since is not None else None,
        "until": scope.until.isoformat() if scope.until is not None else None,
    }


def _object(record: Record) -> dict[str, Any]:
    """As a service takes it: without the tree, and saying which of the two it is."""
    value: dict[str, Any] = msgspec.to_builtins(record)
    del value["tree"]
    return {"type": record.KIND, **{name: each for name, each in value.items() if each is not None}}


async def _each(records: AsyncIterator[Record] | Iterable[Record]) -> AsyncIterator[Record]:
    if isinstance(records, AsyncIterator):
        async for record in records:
            yield record
        return
    for record in records:
        yield record


def _hits(values: Iterable[Mapping[str, Any]]) -> tuple[Hit, ...]:
    return tuple(_converted({**value, "source": _origin(value)}, Hit) for value in values)


def _origin(value: Mapping[str, Any]) -> dict[str, Any] | None:
    return {name: value.get(name) for name in _ORIGIN} if value.get("kind") == "leaf" else None


def _tree_info(value: Mapping[str, Any]) -> TreeInfo:
    model = EmbeddingModel(name=value["embedder"], dimension=value["dimension"], unrelated_cosine=0.0)
    named = {name: value[name] for name in ("structure", "created_at", "seq")}
    return _converted({**named, "id": value["tree"], "model": msgspec.to_builtins(model), "parameters": {}}, TreeInfo)


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise PermanentError(f"the service answers otherwise than this client expects: {error}; is it of this version?") from error
