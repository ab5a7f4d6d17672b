"""The asynchronous client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack, cast

import httpx

from streams.client import exchange
from streams.client.answers import (
    Commit,
    ContextAnswer,
    ContextOptions,
    EventResult,
    ForgetAnswer,
    SearchAnswer,
    SearchOptions,
    TreeInfo,
)
from streams.client.exchange import Call, Course, Patience, ServiceError


class AsyncClient:
    """
    Talks to one service; an asynchronous context manager.

    Every call may be repeated, and is when the service is away for a moment. Any call raises `ServiceError` when the service
    refuses it, and `ServiceAwayError` when it was away each time.

    Args:
        url: of the service, e.g. `http://localhost:8000`.
        key: made by `banyan keys create`; None where no keys are asked for.
        timeout: seconds for one answer.
        patience: how often a call is repeated.
        transport: instead of a connection, for tests.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str | None = None,
        timeout: float = 60.0,
        patience: Patience | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._http = httpx.AsyncClient(base_url=url, transport=transport, **exchange.options(key, timeout))
        self._patience = patience or Patience()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.close()

    async def close(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def put(self, tree: str, records: Iterable[Mapping[str, Any]]) -> list[EventResult]:
        """
        Put turns and documents in, in order, 500 at a time, and tell what became of each.

        A record has at least an `id`, which makes repeating safe, and a `text` (docs/http.md). When this raises, send all again.
        """
        results: list[EventResult] = []
        for batch in exchange.batches(records):
            results += exchange.results_of(await self._answer(exchange.lines(tree, batch)))
        return results

    async def feedback(self, tree: str, given: Iterable[Mapping[str, Any]]) -> list[EventResult]:
        """
        Say what was right or wrong of what is remembered, 100 at a time, and hear what became of each verdict.

        Each has an `id`, which makes repeating safe, the `event` that it is about, and a `verdict`, `approval` or `rebuttal`
        (docs/http.md). What cannot be taken is `rejected`, with its reason. When this raises, send all again.
        """
        results: list[EventResult] = []
        for call in exchange.feedback(tree, given):
            try:
                results += (await self._json(call))["events"]
            except ServiceError as error:
                results += exchange.rejected(error)
        return results

    async def forget(
        self, tree: str, *, events: Iterable[str] = (), conversation: str | None = None, before: str | None = None
    ) -> list[ForgetAnswer]:
        """
        Forget events, the turns of a conversation, or all that was said or published before a time (ISO 8601), for good.

        The answers are of 100 events each at most: what went, or `forgets`, the ids of the messages that ask for it, where the
        service sends to Kafka. Unless exactly one of the three is given this raises ValueError; after any other error ask again.
        """
        return [cast("ForgetAnswer", await self._json(call)) for call in exchange.forgetting(tree, events, conversation, before)]

    async def search(self, tree: str, query: str, **options: Unpack[SearchOptions]) -> SearchAnswer:
        """The hits for a question."""
        return cast("SearchAnswer", await self._json(exchange.post({"query": query, **options}, "trees", tree, "search")))

    async def context(self, tree: str, query: str, *, tokens: int, **options: Unpack[ContextOptions]) -> ContextAnswer:
        """Hits packed into a token budget, in time order, ready for a prompt."""
        asked = {"query": query, "tokens": tokens, **options}
        return cast("ContextAnswer", await self._json(exchange.post(asked, "trees", tree, "context")))

    async def trees(self) -> AsyncIterator[TreeInfo]:
        """All trees that the key reaches, by name, page by page."""
        after: str | None = ""
        while after is not None:
            page = await self._json(exchange.get("trees", after=after, limit=200))
            for tree in page["trees"]:
                yield tree
            after = page["next"]

    async def speakers(self, tree: str) -> list[dict[str, Any]]:
        """Who speaks in a tree, those with most turns first; 1,000 at most."""
        return cast("list[dict[str, Any]]", (await self._json(exchange.get("trees", tree, "speakers")))["speakers"])

    async def profile(self, tree: str, speaker: str, *, facts: int = 20) -> dict[str, Any]:
        """Who a speaker is, by what they said in a tree."""
        return await self._json(exchange.get("trees", tree, "profile", speaker=speaker, facts=facts))

    async def stats(self, tree: str) -> dict[str, Any]:
        """What a tree is, holds and has cost."""
        return await self._json(exchange.get("trees", tree))

    async def tree(self, tree: str, *, node: str = "root", depth: int = 2, children: int = 20) -> dict[str, Any]:
        """The tree, or what is below a node, to be drawn."""
        return await self._json(exchange.get("trees", tree, "tree", node=node, depth=depth, children=children))

    async def node(self, tree: str, node: str) -> dict[str, Any]:
        """One node, with the first of its children."""
        return await self._json(exchange.get("trees", tree, "nodes", node))

    async def children(self, tree: str, node: str = "root") -> AsyncIterator[dict[str, Any]]:
        """All children of a node in order of creation, page by page."""
        after: int | None = 0
        while after is not None:
            page = await self._json(exchange.get("trees", tree, "nodes", node, after=after, limit=500))
            for child in page["children"]:
                yield child
            after = page["next"]

    async def event(self, tree: str, event: str) -> dict[str, Any]:
        """The commit and the leaves of one record."""
        return await self._json(exchange.get("trees", tree, "events", event))

    async def route(self, tree: str, event: str) -> dict[str, Any]:
        """Why an event lies where it lies."""
        return await self._json(exchange.get("trees", tree, "events", event, "route"))

    async def commits(self, tree: str, *, after: int = 0) -> AsyncIterator[Commit]:
        """The commits after one, up to the last there is now, page by page."""
        place: int | None = after
        while place is not None:
            page = await self._json(exchange.get("trees", tree, "commits", after=place, limit=500))
            for commit in page["commits"]:
                yield commit
            place = page["next"]

    async def _json(self, call: Call) -> dict[str, Any]:
        return exchange.value_of(await self._answer(call))

    async def _answer(self, call: Call) -> httpx.Response:
        course = Course(call, self._patience)
        while course.response is None:
            if isinstance(course.following, Call):
                course.take(await self._send(course.following))
            else:
                await asyncio.sleep(course.following)
                course.take(None)
        return course.response

    async def _send(self, call: Call) -> httpx.Response | httpx.TransportError:
        try:
            return await self._http.request(
                call.method, call.path, params=dict(call.params), content=call.content, headers=dict(call.headers)
            )
        except httpx.TransportError as error:
            return error
