"""The server over HTTP (streamable HTTP): for hosts elsewhere, each call with a key of the service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import structlog
from mcp.server.transport_security import TransportSecuritySettings
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from memory.errors import SettingError
from streams.mcp.server import KEY
from streams.query.guard import is_loopback
from streams.query.keys import ANYBODY, KeyRing
from streams.query.limits import Limits
from streams.query.listening import DrainingServer, address_of, config_of, listen
from streams.query.problems import Problem

if TYPE_CHECKING:
    from streams.ending import Ending
    from streams.mcp.server import Toolbox
    from streams.setting_tables import ServeSettings

PATH = "/mcp"
BODY_BYTES_MAX = 1_048_576
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_EVERY = frozenset({"0.0.0.0", "::", "*", ""})  # noqa: S104  # named to ask by which names it is reached
_SLACK = 5.0
"""Seconds that a call's own limit is shorter than its request's."""
_log = structlog.stdlib.get_logger("streams.mcp")


def allowed_names(host: str, given: Sequence[str]) -> list[str]:
    """
    By which names the server may be called: those that a page of another site cannot make its own by DNS.

    Raises:
        SettingError: it listens on every address, and no names are given.
    """
    if host in _EVERY and not given:
        raise SettingError(f"{host!r} is every address of this machine; say with --allow-host by which names hosts call it")
    own = [] if host in _EVERY or is_loopback(host) else [f"[{host}]" if ":" in host else host]
    return [*_LOOPBACK, *own, *given]


class Gate:
    """
    Lets requests in: a key where one is asked for, within its limits, in time.

    Args:
        app: behind it.
        ring: of keys; None lets everybody in.
        limits: by key.
        now: for keys that expire.
        seconds: longest time for one request.
    """

    def __init__(self, app: ASGIApp, *, ring: KeyRing | None, limits: Limits, now: Callable[[], datetime], seconds: float) -> None:
        self._app = app
        self._ring = ring
        self._limits = limits
        self._now = now
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        started = False

        async def watched(message: Message) -> None:
            nonlocal started
            started = True
            await send(message)

        try:
            await self._let_in(scope, receive, watched)
        except Problem as problem:
            if not started:
                await problem.response("")(scope, receive, send)

    async def _let_in(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        if request.method != "POST":
            # There is nothing that the server would say unasked, and no session to end.
            raise Problem("method-not-allowed", "only POST is taken here", headers={"Allow": "POST"})
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = ANYBODY
        if self._ring is not None:
            found = self._ring.find(token.strip(), self._now()) if scheme.lower() == "bearer" else None
            if found is None:
                headers = {"WWW-Authenticate": 'Bearer realm="banyan"'}
                raise Problem("unauthorized", "send a valid key: Authorization: Bearer banyan_…", headers=headers)
            key = found
        with self._limits.request(key.id, key.rate):
            try:
                async with asyncio.timeout(self._seconds):
                    await self._app({**scope, KEY: key}, receive, send)
            except TimeoutError as error:
                raise Problem("timeout", f"there was no answer within {self._seconds:g} s") from error


async def serve_web(
    toolbox: Toolbox,
    *,
    version: str,
    serve: ServeSettings,
    ring: KeyRing | None,
    names: Sequence[str],
    now: Callable[[], datetime],
    ending: Ending,
    told: Callable[[str], None],
) -> None:
    """
    Serve until `ending` is asked for, then answer what is in hand.

    Args:
        toolbox: the tools.
        version: told to hosts.
        serve: where to listen, and limits.
        ring: of keys; None lets everybody in.
        names: by which it may be called.
        now: for keys that expire.
        ending: that the process is to end.
        told: is told the address once connections are taken.

    Raises:
        SettingError: the address cannot be had.
    """
    listening = listen(serve.host, serve.port)
    try:
        server = toolbox.server(version)
        security = TransportSecuritySettings(
            allowed_hosts=[each for name in names for each in (name, f"{name}:*")],
            allowed_origins=[
                f"{scheme}://{each}" for name in names for each in (name, f"{name}:*") for scheme in ("http", "https")
            ],
        )
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            # Without sessions any number of processes may answer side by side, and there is none to be taken over.
            stateless_http=True,
            json_response=True,
            max_request_body_size=BODY_BYTES_MAX,
            transport_security=security,
        )
        limits = Limits(rate=serve.rate, concurrency=serve.concurrency)
        gate = Gate(app, ring=ring, limits=limits, now=now, seconds=serve.timeout.total_seconds() + _SLACK)
        async with server.session_manager.run():
            running = DrainingServer(config_of(serve, gate))
            ending.call(running.end)
            told(address_of(listening) + PATH)
            await running.serve(sockets=[listening])
        _log.info("stopped", calls=toolbox.calls)
    finally:
        listening.close()
