"""The application: routes, errors, and the OpenAPI document."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from memory.errors import BanyanError
from memory.settings import IngestSettings
from streams.metrics import Reading
from streams.query import forgetting, health, models, page, posting, reading, requests, streaming
from streams.query.envelope import Envelope
from streams.query.guard import Guard
from streams.query.metrics import ServiceMeter
from streams.query.problems import KINDS, MEDIA_TYPE, RETRIED, Problem, example, invalid, problem_of
from streams.query.service import Service
from streams.query.shown import Answer
from streams.refusals import refusals

_DESCRIPTION = """
A streaming memory for LLM applications: turns and documents grow, online, into a tree you can ask.

Keys are sent in the header Authorization, as Bearer banyan_…. Every error is a problem (RFC 9457); 429, 503 and 412 say in the
header Retry-After when to try again. What answers a question says by seq which commit it covers.
"""
_OF_POSTS = (415,)
_OF_WAITS = (412,)
_WAITING = ("/search", "/context")
_ALWAYS = (400, 401, 403, 404, 408, 409, 413, 421, 422, 429, 500, 503, 504)
_BY_STATUS = {404: "not-found", 405: "method-not-allowed", 413: "body-too-large", 415: "media-type"}
_log = structlog.stdlib.get_logger("streams.query")


def create_app(service: Service, guard: Guard, *, limits: IngestSettings, version: str = "0") -> FastAPI:
    """
    The application over a service.

    Args:
        service: what answers.
        guard: who is let in, and how often.
        limits: of records.
        version: shown in the document.

    Raises:
        SettingError: a package is not installed.
    """
    app = FastAPI(
        title="Banyan",
        version=version,
        description=_DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        # What generated clients call their methods.
        generate_unique_id_function=lambda route: route.name,
    )
    meter = ServiceMeter(lambda: _readings(service))
    app.state.service = service
    app.state.guard = guard
    app.state.limits = limits
    app.state.meter = meter
    app.state.draining = asyncio.Event()
    routers = (health.open_router, health.router, reading.router, posting.router, forgetting.router, streaming.router, page.router)
    for router in routers:
        app.include_router(router)
    app.add_middleware(Envelope, meter=meter)
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(BanyanError, _on_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(HTTPException, _on_http)
    _document(app)
    return app


def _answer(request: Request, problem: Problem) -> Response:
    meter: ServiceMeter = request.app.state.meter
    meter.problems[problem.kind.name] += 1
    return problem.response(getattr(request.state, "request_id", ""))


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return _answer(request, error)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, BanyanError)
    problem = problem_of(error)
    if problem.kind.status >= 500:
        request_id = getattr(request.state, "request_id", "")
        _log.warning("request failed", request=request_id, error=type(error).__name__, reason=str(error)[:500])
    return _answer(request, problem)


async def _on_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    wrong = error.errors()
    if wrong and wrong[0]["type"] == "json_invalid":
        said = wrong[0].get("ctx", {}).get("error", "")
        return _answer(request, Problem("bad-request", f"the body is not JSON: {said} at character {wrong[0]['loc'][-1]}"))
    # Without FastAPI's word for where it was sent.
    found = [{"field": ".".join(place[1:] or place), "reason": reason} for place, reason in refusals(wrong)]
    return _answer(request, invalid(found[:20]))


async def _on_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind = _BY_STATUS.get(error.status_code, "bad-request")
    detail = {
        "not-found": "there is nothing at this address; /docs has those that there are",
        "method-not-allowed": f"{request.method} is not taken here",
    }.get(kind, str(error.detail))
    return _answer(request, Problem(kind, detail, headers=error.headers or {}))


def _readings(service: Service) -> Iterable[Reading]:
    counts = service.counts
    yield Reading("banyan_query_degraded_total", counts.degraded)
    yield Reading("banyan_query_waits_total", counts.waits - counts.waits_in_vain, ("covered",))
    yield Reading("banyan_query_waits_total", counts.waits_in_vain, ("in vain",))
    embedder = service.embedder
    yield Reading("banyan_query_cache_hits_total", embedder.hits if embedder is not None else 0)
    yield Reading("banyan_query_cache_misses_total", embedder.misses if embedder is not None else 0)
    yield Reading("banyan_query_cache_bytes", embedder.bytes if embedder is not None else 0)


def _document(app: FastAPI) -> None:
    """Complete the OpenAPI document: its models, keys, and problems on every operation."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = made()
        _describe(document["components"]["schemas"])
        document["components"]["examples"] = {kind.name: {"summary": kind.title, "value": example(kind)} for kind in KINDS.values()}
        document["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                if path in ("/healthz", "/readyz"):
                    continue
                operation["security"] = [{"key": []}]
                operation["responses"].pop("422", None)
                more = (*(_OF_POSTS if method == "post" else ()), *(_OF_WAITS if path.endswith(_WAITING) else ()))
                for status in sorted((*_ALWAYS, *more)):
                    operation["responses"][str(status)] = _problem_response(status)
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _describe(schemas: dict[str, Any]) -> None:
    """Complete the models: those of records and problems, and an example of each answer."""
    for model in (requests.TurnIn, requests.DocumentIn, requests.FeedbackIn, models.ProblemOut):
        own = model.model_json_schema(ref_template="#/components/schemas/{model}")
        schemas.update(own.pop("$defs", {}))
        schemas[model.__name__] = own
    for answer in Answer.all():
        if answer.__name__ in schemas:
            # Here, because FastAPI takes every null out of what models say of themselves.
            schemas[answer.__name__]["examples"] = [answer.example()]
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)


def _problem_response(status: int) -> dict[str, Any]:
    kinds = [kind for kind in KINDS.values() if kind.status == status]
    said: dict[str, Any] = {
        "description": "; ".join(f"`{kind.name}`: {kind.title.lower()}" for kind in kinds),
        "content": {
            MEDIA_TYPE: {
                "schema": {"$ref": "#/components/schemas/ProblemOut"},
                "examples": {kind.name: {"$ref": f"#/components/examples/{kind.name}"} for kind in kinds},
            }
        },
    }
    if status in RETRIED:
        said["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return said
