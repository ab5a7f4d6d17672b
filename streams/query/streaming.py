"""The commits of a tree: a page of them, and as they happen (server-sent events)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from memory.errors import BanyanError, TransientError
from memory.model import TreeId
from memory.records import tree_id
from streams.query import requests, shapes, tree_models
from streams.query.guard import Guard, GuardedRoute, rule
from streams.query.keys import Key
from streams.query.metrics import ServiceMeter
from streams.query.problems import Problem, invalid
from streams.query.reading import Tree, json_answer, service_of
from streams.query.service import Service

router = APIRouter(prefix="/v1", route_class=GuardedRoute, tags=["commits"])
LOOK_EVERY = 0.1  # seconds
LOOK_EVERY_MAX = 1.0  # seconds
"""A tree in which nothing happens is looked at less and less often."""
BEAT_EVERY = 15.0  # seconds
"""How often something is sent while nothing happens, so that nobody in between takes the connection for dead."""
COMMITS_PER_READ = 100
_UNBUFFERED = {"X-Accel-Buffering": "no"}
"""Proxies such as nginx would else keep events back until there are many."""
STREAMS_MAX = 256
"""Open at once, over all keys."""


def event_of(commit: Mapping[str, Any]) -> bytes:
    """A commit as an event."""
    return b"event: commit\nid: %d\ndata: %s\n\n" % (commit["seq"], orjson.dumps(commit))


@router.get("/trees/{tree}/commits", response_model=tree_models.CommitsOut, summary="Commits")
async def list_commits(
    request: Request,
    tree: Tree,
    after: Annotated[int, Query(ge=0, le=requests.SEQ_MAX, description="`seq` of the last commit that is known.")] = 0,
    limit: Annotated[int, Query(ge=1, le=1_000)] = 100,
) -> Response:
    """What each commit changed, in order."""
    service = service_of(request)
    name = TreeId(tree_id(tree))
    info = await service.store.tree(name)
    entries = await service.store.changes(name, after, limit=limit)
    following = entries[-1].seq if len(entries) == limit and entries[-1].seq < info.seq else None
    return json_answer({"commits": [shapes.commit_json(entry) for entry in entries], "seq": info.seq, "next": following})


@router.get(
    "/trees/{tree}/commits/stream",
    summary="Commits as they happen",
    response_class=StreamingResponse,
    responses={
        200: {
            "content": {
                "text/event-stream": {"schema": {"type": "string"}, "example": event_of(tree_models.CommitOut.example()).decode()}
            },
            "description": "Server-sent events",
        }
    },
)
@rule(stream=True)
async def stream_commits(
    request: Request,
    tree: Tree,
    after: Annotated[int | None, Query(ge=0, le=requests.SEQ_MAX, description="Begin after this commit; without it, now.")] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> Response:
    """
    An event `commit` for each, its `id` the commit's `seq`: a client that connects again goes on where it was.

    The stream ends with an event `end` when the service stops, or the tree is gone, and without one when the key is revoked.
    """
    service = service_of(request)
    name = TreeId(tree_id(tree))
    info = await service.store.tree(name)
    if last_event_id is not None:
        if not last_event_id.isdecimal():
            raise invalid([{"field": "Last-Event-ID", "reason": "is no commit's number"}])
        after = int(last_event_id)
    meter: ServiceMeter = request.app.state.meter
    if meter.streams >= STREAMS_MAX:
        raise Problem("concurrency", f"{STREAMS_MAX} streams are open already; ask for pages of commits instead")
    draining: asyncio.Event = request.app.state.draining
    start = min(after, info.seq) if after is not None else info.seq
    events = _held(_events(service, name, start, draining), request, meter)
    return StreamingResponse(events, headers=_UNBUFFERED, media_type="text/event-stream")


async def _held(events: AsyncIterator[bytes], request: Request, meter: ServiceMeter) -> AsyncIterator[bytes]:
    """The stream counts as one of the key's requests for as long as it lasts."""
    guard: Guard = request.app.state.guard
    key: Key = request.state.key
    meter.streams += 1
    try:
        with guard.limits.stream(key.id):
            async for event in events:
                if not guard.still(key):
                    break
                yield event
    finally:
        meter.streams -= 1


async def _events(service: Service, tree: TreeId, after: int, draining: asyncio.Event) -> AsyncIterator[bytes]:
    yield b"retry: 2000\n: commits of one tree\n\n"
    pause = LOOK_EVERY
    beat = time.monotonic()
    while not draining.is_set():
        try:
            entries = await service.store.changes(tree, after, limit=COMMITS_PER_READ)
        except TransientError:
            entries = []
        except BanyanError:
            break
        for entry in entries:
            after = entry.seq
            yield event_of(shapes.commit_json(entry))
        now = time.monotonic()
        if entries:
            pause, beat = LOOK_EVERY, now
        elif now - beat >= BEAT_EVERY:
            beat = now
            yield b": nothing new\n\n"
        if len(entries) < COMMITS_PER_READ:
            pause = min(LOOK_EVERY_MAX, pause * 1.2)
            try:
                async with asyncio.timeout(pause):
                    await draining.wait()
            except TimeoutError:
                pass
    yield b"event: end\ndata: {}\n\n"
