"""What every request passes before it is answered: host, key, limits, size and time of its body, time of its answer."""

from __future__ import annotations

import asyncio
import ipaddress
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from memory.errors import SettingError
from memory.ports.clock import Clock
from streams.query.keys import ANYBODY, Key, KeyFile, KeyRing, Right
from streams.query.limits import Limits
from streams.query.problems import Problem, no_tree
from streams.setting_tables import ServeSettings
from streams.settings import Settings

_CHALLENGE = {"WWW-Authenticate": 'Bearer realm="banyan"'}
_CLOSE = {"Connection": "close"}
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Rule:
    """What an endpoint asks of a request."""

    right: Right = Right.READ
    bulk: bool = False
    """The endpoint reads the body itself, as it comes, and bounds its own time."""
    stream: bool = False
    """The answer goes on after the endpoint has returned."""


def rule(right: Right = Right.READ, *, bulk: bool = False, stream: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Say what an endpoint asks of a request."""

    def mark(endpoint: Endpoint) -> Endpoint:
        endpoint.rule = Rule(right, bulk, stream)  # type: ignore[attr-defined]
        return endpoint

    return mark


@dataclass(slots=True)
class Guard:
    """
    Lets requests in.

    Args:
        settings: of the service.
        limits: by key.
        ring: keys; None lets everybody in.
        now: wall clock, for keys that expire.
    """

    settings: ServeSettings
    limits: Limits
    ring: KeyRing | None
    now: Callable[[], datetime]
    refused: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, settings: Settings, clock: Clock) -> Guard:
        """
        As the settings say.

        Raises:
            SettingError: everybody is to be let in from everywhere.
        """
        serve = settings.serve
        if settings.auth == "off" and not is_loopback(serve.host):
            raise SettingError(
                f"auth: off (BANYAN_AUTH) lets everybody read and write, and is taken only with a host of this machine's own such "
                f"as 127.0.0.1, not {serve.host!r}; make a key with `banyan keys create` and leave BANYAN_AUTH out"
            )
        ring = None if settings.auth == "off" else KeyRing(KeyFile(serve.keys_file))
        return cls(serve, Limits(rate=serve.rate, concurrency=serve.concurrency), ring, clock.now)

    def caller(self, request: Request) -> Key:
        """
        Whose request this is.

        Raises:
            Problem: no key that is let in (401), or, without keys, one that a page of another site may have sent (421).
        """
        if self.ring is None:
            # A name that somebody else resolves to this machine would let any web page in.
            host = request.headers.get("host", "")
            if not is_loopback(_hostname(host)):
                raise Problem("misdirected", "without keys only requests to localhost are answered")
            return ANYBODY
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        key = self.ring.find(token.strip(), self.now()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Problem("unauthorized", "send a valid key: Authorization: Bearer banyan_…", headers=_CHALLENGE)
        return key

    def admit(self, request: Request, asked: Rule) -> Key:
        """
        The caller, if the request may be answered.

        Raises:
            Problem: it may not; a tree that the key does not reach is answered like one that does not exist.
        """
        key = self.caller(request)
        tree = request.path_params.get("tree")
        if tree is not None and not key.reaches(tree):
            raise no_tree()
        if not key.allows(asked.right):
            raise Problem("forbidden", f"this needs a key with the right to {asked.right}")
        return key

    def still(self, key: Key) -> bool:
        """Whether a caller whose answer goes on is to get more of it."""
        return self.ring is None or self.ring.still(key, self.now())

    async def body(self, request: Request) -> None:
        """
        Read the body, so that endpoints find it.

        Raises:
            Problem: it is too large (413) or comes too slowly (408).
        """
        most = self.settings.body_bytes_max
        check_length(request, most)
        chunks: list[bytes] = []
        size = 0
        limit = self.settings.timeout.total_seconds()
        try:
            async with asyncio.timeout(limit):
                async for chunk in request.stream():
                    size += len(chunk)
                    if size > most:
                        raise too_large(most)
                    chunks.append(chunk)
        except TimeoutError as error:
            raise Problem("slow-request", f"the body did not come within {limit:g} s", headers=_CLOSE) from error
        # Where `Request.body` looks for what was read before.
        request._body = b"".join(chunks)  # noqa: SLF001


def _check_type(request: Request) -> None:
    """Refuse what is no JSON; a page of another site can send anything else without asking."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if request.method == "POST" and kind != "application/json":
        raise Problem("media-type", "send JSON, Content-Type: application/json")


def check_length(request: Request, most: int) -> None:
    """Refuse a body that says itself that it is too large."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most:
        raise too_large(most)


def too_large(most: int) -> Problem:
    """A body of more bytes than are taken."""
    return Problem("body-too-large", f"at most {most:,} bytes are taken at once", headers=_CLOSE)


class GuardedRoute(APIRoute):
    """A route whose requests pass the guard first."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `APIRoute.get_route_handler`."""
        answer = super().get_route_handler()
        asked: Rule = getattr(self.endpoint, "rule", Rule())

        async def guarded(request: Request) -> Response:
            guard: Guard = request.app.state.guard
            request.state.route = self.path_format
            request.state.tree = request.path_params.get("tree")
            key = guard.admit(request, asked)
            request.state.key = key
            with ExitStack() as held:
                held.enter_context(guard.limits.request(key.id, key.rate))
                if asked.bulk:
                    return await answer(request)
                _check_type(request)
                try:
                    await guard.body(request)
                except ClientDisconnect:
                    return Response(status_code=400)
                limit = guard.settings.timeout.total_seconds()
                try:
                    async with asyncio.timeout(limit):
                        return await answer(request)
                except TimeoutError as error:
                    raise Problem("timeout", f"there was no answer within {limit:g} s") from error

        return guarded


def is_loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _hostname(header: str) -> str:
    """The name in a Host header, without its port."""
    if header.startswith("["):
        return header[1:].partition("]")[0]
    return header.partition(":")[0].lower()
