"""Records over HTTP: turns, documents, and JSON lines of both."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any, Literal

import orjson
from fastapi import APIRouter, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from memory.errors import StoreUnavailableError
from memory.model import TreeId
from memory.records import Record, tree_id
from memory.results import EventResult, EventStatus
from memory.settings import IngestSettings
from streams.query import models, shapes
from streams.query.guard import Guard, GuardedRoute, check_length, rule, too_large
from streams.query.intake import BULK_BATCH, BULK_LINES, none_taken, read_feedback, read_line, read_lines, read_records
from streams.query.keys import Right
from streams.query.metrics import ServiceMeter
from streams.query.problems import Problem
from streams.query.reading import Tree, json_answer, service_of

router = APIRouter(prefix="/v1", route_class=GuardedRoute, tags=["ingest"])
LINES_TYPES = frozenset({"application/x-ndjson", "application/jsonl", "application/x-jsonlines"})


def _body(model: str, what: str) -> dict[str, Any]:
    one = {"$ref": f"#/components/schemas/{model}"}
    schema = {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
    return {"requestBody": {"required": True, "description": what, "content": {"application/json": {"schema": schema}}}}


_LINES_SENT = (
    '{"id":"t-981","speaker":"Ana","text":"We took the flat in Porto."}\n'
    '{"id":"t-982","speaker":"Ben","text":"Is the flat in Porto near the river?"}\n'
    '{"id":"d-55","title":"A tunnel opens","text":""}\n'
)
_LINES = {
    "requestBody": {
        "required": True,
        "description": "One record a line; `type` says which kind, or its members do.",
        "content": {
            "application/x-ndjson": {
                "schema": {"type": "string"},
                "example": _LINES_SENT,
            }
        },
    }
}
_LINES_ANSWER = (
    '{"line":1,"id":"t-981","status":"duplicate","seq":1,"reason":"was applied before"}\n'
    '{"line":2,"id":"t-982","status":"accepted","seq":2,"reason":null}\n'
    '{"line":3,"id":"d-55","status":"rejected","seq":null,"reason":"text: is empty"}\n'
    '{"complete":true,"lines":3,"accepted":1,"duplicate":1,"conflict":0,"rejected":1,"forgotten":0,"seq":2}\n'
)


@router.post(
    "/trees/{tree}/turns",
    status_code=202,
    response_model=models.IngestAnswer,
    summary="Put turns in",
    openapi_extra=_body("TurnIn", "One turn, or a list."),
)
@rule(Right.WRITE)
async def post_turns(request: Request, tree: Tree) -> Response:
    """Answered when they are safe: committed, or acknowledged by Kafka. Posting the same turn again changes nothing."""
    return await _post(request, tree, "turn")


@router.post(
    "/trees/{tree}/documents",
    status_code=202,
    response_model=models.IngestAnswer,
    summary="Put documents in",
    openapi_extra=_body("DocumentIn", "One document, or a list."),
)
@rule(Right.WRITE)
async def post_documents(request: Request, tree: Tree) -> Response:
    """Answered when they are safe: committed, or acknowledged by Kafka. Posting the same document again changes nothing."""
    return await _post(request, tree, "document")


@router.post(
    "/trees/{tree}/feedback",
    status_code=202,
    response_model=models.IngestAnswer,
    summary="Say what was right or wrong",
    openapi_extra=_body("FeedbackIn", "One verdict, or a list."),
)
@rule(Right.WRITE)
async def post_feedback(request: Request, tree: Tree) -> Response:
    """
    An approval or a rebuttal changes the weight of the turn or document that it is about, once by its own id.

    Answered when it is safe: committed, or acknowledged by Kafka. Trees that keep no weights refuse it.
    """
    name = TreeId(tree_id(tree))
    guard: Guard = request.app.state.guard
    service = service_of(request)
    now = service.memory.parts.clock.now()
    intake = read_feedback(await request.body(), name, now=now, records_max=guard.settings.batch_records_max)
    if not intake.records:
        raise intake.none_taken()
    results = intake.merged(await service.feedback(name, intake.records))
    _count(request, results)
    if all(each.status is EventStatus.REJECTED for each in results):
        raise none_taken((place, each.id, *_parts(each.reason)) for place, each in enumerate(results))
    return json_answer(shapes.ingest_json(results), 202)


def _parts(reason: str) -> tuple[str, str]:
    field, _, why = reason.partition(": ")
    return field, why


@router.post(
    "/trees/{tree}/records",
    status_code=202,
    summary="Put many records in",
    openapi_extra=_LINES,
    response_class=Response,
    responses={
        202: {
            "content": {"application/x-ndjson": {"schema": {"type": "string"}, "example": _LINES_ANSWER}},
            "description": "A result a line",
        }
    },
)
@rule(Right.WRITE, bulk=True)
async def post_lines(request: Request, tree: Tree) -> Response:
    """
    JSON lines, made safe as they come.

    The answer has a line `{"line":…,"id":…,"status":…,"seq":…,"reason":…}` for each, and a last one with the counts. When something
    is away in the middle the answer is a problem; what went in before is found to be there when the lines are sent again.
    """
    name = TreeId(tree_id(tree))
    guard: Guard = request.app.state.guard
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in LINES_TYPES:
        raise Problem("media-type", "send JSON lines, Content-Type: application/x-ndjson")
    check_length(request, guard.settings.bulk_bytes_max)
    bulk = _Bulk(request, name, guard)
    try:
        return await bulk.run()
    except ClientDisconnect:
        return Response(status_code=400)


async def _post(request: Request, tree: str, kind: Literal["turn", "document"]) -> Response:
    name = TreeId(tree_id(tree))
    guard: Guard = request.app.state.guard
    intake = read_records(await request.body(), name, kind, limits=_limits(request), records_max=guard.settings.batch_records_max)
    if not intake.records:
        raise intake.none_taken()
    results = intake.merged(await service_of(request).put(name, intake.records))
    _count(request, results)
    return json_answer(shapes.ingest_json(results), 202)


class _Bulk:
    """One request of JSON lines."""

    def __init__(self, request: Request, tree: TreeId, guard: Guard) -> None:
        self._request = request
        self._tree = tree
        self._settings = guard.settings
        self._limits = _limits(request)
        self._lines_max = guard.settings.batch_records_max * BULK_LINES
        self._answer: list[bytes] = []
        self._counts: Counter[str] = Counter()
        self._seq = 0

    async def run(self) -> Response:
        records: list[Record] = []
        places: list[tuple[int, EventResult | None]] = []
        count = 0
        async for number, line in read_lines(self._chunks()):
            count += 1
            if count > self._lines_max:
                raise Problem("too-many-records", f"at most {self._lines_max:,} lines are taken at once")
            read = read_line(line, self._tree, limits=self._limits)
            if isinstance(read, tuple):
                places.append((number, read[0]))
            else:
                records.append(read)
                places.append((number, None))
            if len(places) >= BULK_BATCH:
                await self._put(records, places)
                records, places = [], []
        await self._put(records, places)
        totals = {status: self._counts[status] for status in ("accepted", "duplicate", "conflict", "rejected", "forgotten")}
        self._answer.append(orjson.dumps({"complete": True, "lines": count, **totals, "seq": self._seq or None}))
        return Response(b"\n".join(self._answer) + b"\n", 202, media_type="application/x-ndjson")

    async def _put(self, records: Sequence[Record], places: Sequence[tuple[int, EventResult | None]]) -> None:
        limit = self._settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                taken = iter(await service_of(self._request).put(self._tree, records) if records else ())
        except TimeoutError as error:
            raise StoreUnavailableError(f"{len(records)} records were not safe within {limit:g} s") from error
        results = [refused or next(taken) for _, refused in places]
        _count(self._request, results)
        for (number, _), result in zip(places, results, strict=True):
            self._counts[result.status.value] += 1
            self._seq = max(self._seq, result.seq)
            self._answer.append(orjson.dumps({"line": number, **shapes.event_json(result)}))

    async def _chunks(self) -> AsyncIterator[bytes]:
        """The body as it comes, bounded in bytes, and in time from one piece to the next."""
        size = 0
        limit = self._settings.timeout.total_seconds()
        pieces = self._request.stream()
        while True:
            try:
                async with asyncio.timeout(limit):
                    piece = await anext(pieces, None)
            except TimeoutError as error:
                detail = f"nothing more of the body came for {limit:g} s"
                raise Problem("slow-request", detail, headers={"Connection": "close"}) from error
            if piece is None:
                return
            size += len(piece)
            if size > self._settings.bulk_bytes_max:
                raise too_large(self._settings.bulk_bytes_max)
            yield piece


def _limits(request: Request) -> IngestSettings:
    found: IngestSettings = request.app.state.limits
    return found


def _count(request: Request, results: Sequence[EventResult]) -> None:
    meter: ServiceMeter = request.app.state.meter
    for outcome, count in shapes.outcomes(results):
        if count:
            meter.records[outcome] += count
