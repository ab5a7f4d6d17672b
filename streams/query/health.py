"""`/healthz`, `/readyz`, `/metrics`."""

from __future__ import annotations

import asyncio

from fastapi import APIRouter, Request
from starlette.responses import Response

from streams.query import models
from streams.query.guard import GuardedRoute, rule
from streams.query.keys import Right
from streams.query.metrics import ServiceMeter
from streams.query.reading import json_answer, service_of

open_router = APIRouter(tags=["operations"])
"""Without a key: they say nothing that is anybody's."""
router = APIRouter(route_class=GuardedRoute, tags=["operations"])
NEEDED = frozenset({"store", "service"})
"""Without these nothing can be answered; without others less can be."""

_SCRAPED = """# HELP banyan_http_records_total Records, by what became of them.
# TYPE banyan_http_records_total counter
banyan_http_records_total{outcome="accepted"} 2.0
"""


@open_router.get("/healthz", response_model=models.AliveOut, summary="Whether the process answers")
async def healthz() -> Response:
    """Always 200 while it does."""
    return json_answer({"status": "ok"})


@open_router.get(
    "/readyz",
    response_model=models.ReadyOut,
    summary="Whether questions can be answered",
    responses={
        503: {
            "model": models.ReadyOut,
            "description": "They cannot; says what is missing",
            "content": {"application/json": {"example": {"status": "not ready", "missing": {"store": "StoreUnavailableError"}}}},
        }
    },
)
async def readyz(request: Request) -> Response:
    """`degraded`: they can, but something is missing: records are not taken, or questions are answered by words alone."""
    draining: asyncio.Event = request.app.state.draining
    missing = await service_of(request).missing()
    if draining.is_set():
        missing["service"] = "is stopping"
    unready = bool(NEEDED & missing.keys())
    status = "not ready" if unready else "degraded" if missing else "ready"
    return json_answer({"status": status, "missing": missing}, 503 if unready else 200)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={
        200: {"content": {"text/plain": {"schema": {"type": "string"}, "example": _SCRAPED}}, "description": "Prometheus text"}
    },
)
@rule(Right.ADMIN)
async def metrics(request: Request) -> Response:
    """With keys, for one with the right to admin; BANYAN_METRICS_PORT opens a port without."""
    meter: ServiceMeter = request.app.state.meter
    return Response(meter.scrape(), media_type="text/plain; version=0.0.4; charset=utf-8")
