"""Around every request: its id, its line in the log, its metrics, and an answer whatever happens."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streams.query.metrics import ServiceMeter
from streams.query.problems import Problem

REQUEST_ID = "X-Request-Id"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_GIVEN = re.compile(r"^[A-Za-z0-9._-]{1,64}$")
_SECURITY = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}
_log = structlog.stdlib.get_logger("streams.query")


class Envelope:
    """
    Wraps the application.

    Args:
        app: what answers.
        meter: counts.
    """

    def __init__(self, app: ASGIApp, meter: ServiceMeter) -> None:
        self._app = app
        self._meter = meter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = Headers(scope=scope).get(REQUEST_ID, "")
        request_id = given if _GIVEN.match(given) else secrets.token_hex(8)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = request_id
        status = 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID] = request_id
                for name, value in _SECURITY.items():
                    headers.setdefault(name, value)
            await send(message)

        started = time.perf_counter()
        self._meter.in_hand += 1
        try:
            await self._app(_asked(scope), receive, sending)
        except Exception as error:  # noqa: BLE001  # the last line of defence: no caller sees a traceback
            _log.error("unexpected request", request=request_id, error=type(error).__name__, exc_info=error)
            if not status:
                self._meter.problems["internal"] += 1
                problem = Problem("internal", "an error nobody thought of; the service's log has it under this request's id")
                await problem.response(request_id)(scope, receive, sending)
        finally:
            self._meter.in_hand -= 1
            self._tell(scope, status, time.perf_counter() - started)

    def _tell(self, scope: Scope, status: int, seconds: float) -> None:
        state = scope["state"]
        route = state.get("route", "other")
        tree = state.get("tree")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._meter.answered(route, method, status, seconds)
        key = state.get("key")
        _log.info(
            "request",
            request=state["request_id"],
            method=method,
            route=route,
            status=status,
            ms=round(seconds * 1000, 1),
            **({"tree": tree[:128]} if tree is not None else {}),
            **({"key": key.id} if key is not None and key.id else {}),
        )


def _asked(scope: Scope) -> Scope:
    """
    What the application is asked: for the head of an answer, the answer, of which the server then sends the head alone.

    Commits as they happen have no end, and so no head that is theirs alone.
    """
    if scope["method"] != "HEAD" or scope["path"].endswith("/commits/stream"):
        return scope
    return {**scope, "method": "GET"}
