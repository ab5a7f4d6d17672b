"""Connections that cost something and bring nothing: bounded in number, and in the time that a request's head may take."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import orjson
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from streams.query.problems import KINDS, MEDIA_TYPE, PREFIX

HEAD_LIMIT = 20.0  # seconds
"""From a connection, or from the first byte of another request, to the end of a request's head."""


STALL_LIMIT = 20.0  # seconds
"""How long a client may read nothing of an answer that waits for it."""


class Bounded(H11Protocol):
    """
    Uvicorn's HTTP with limits.

    A client that has closed its side after a whole request still gets the answer.
    """

    connections_max = 1_024
    """Open at once; further ones are closed without an answer."""
    head_limit = HEAD_LIMIT
    """Seconds for the head of a request."""
    stall_limit = STALL_LIMIT
    """Seconds in which something of a waiting answer must be read."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._waiting: asyncio.TimerHandle | None = None
        self._half_closed = False
        self._stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        if len(self.connections) > self.connections_max:
            transport.abort()
        else:
            self._wait()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        super().data_received(data)
        if self._answering:
            self._stop_waiting()
        elif self._waiting is None and not self.transport.is_closing():
            self._wait()

    def send_400_response(self, msg: str) -> None:
        """What cannot be read as HTTP is answered with a problem too."""
        body = orjson.dumps({"type": PREFIX + "bad-request", "title": KINDS["bad-request"].title, "status": 400, "detail": msg})
        headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", b"%d" % len(body)), (b"connection", b"close")]
        for event in (
            h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
            h11.Data(data=body),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        self._half_closed = self._answering and self.conn.their_state is h11.DONE
        return self._half_closed

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._stop_waiting()
        self._stop_looking()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().pause_writing()
        self._look_soon()

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().resume_writing()
        self._stop_looking()

    def _look_soon(self) -> None:
        self._stop_looking()
        self._stalled = self.loop.call_later(self.stall_limit, self._look, self.transport.get_write_buffer_size())

    def _look(self, waited: int) -> None:
        """Give a client up that has read nothing of `waited` bytes; a slow one gets all the time it needs."""
        if self.transport.get_write_buffer_size() >= waited:
            self.transport.abort()
        else:
            self._look_soon()

    def _stop_looking(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def on_response_complete(self) -> None:
        """See `H11Protocol`."""
        super().on_response_complete()
        if self._half_closed:
            self.transport.close()

    @property
    def _answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(self.head_limit, self.transport.abort)

    def _stop_waiting(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None


def bounded_protocol(connections: int, head: float = HEAD_LIMIT, stall: float = STALL_LIMIT) -> type[asyncio.Protocol]:
    """`Bounded` with these limits: connections at once, seconds for the head of a request, and seconds without any reading."""

    class Limited(Bounded):
        connections_max = connections
        head_limit = head
        stall_limit = stall

    return Limited
