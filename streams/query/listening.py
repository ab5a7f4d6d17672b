"""A socket to listen on, and a server on it that ends in order."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from starlette.types import ASGIApp

from memory.errors import SettingError
from streams.query.protocol import bounded_protocol
from streams.setting_tables import ServeSettings

KEEP_ALIVE = 75
"""Seconds that a connection may be idle between two requests."""


def config_of(serve: ServeSettings, app: ASGIApp) -> uvicorn.Config:
    """How uvicorn serves an application within the settings' limits."""
    return uvicorn.Config(
        app,
        http=bounded_protocol(serve.connections_max),
        ws="none",
        lifespan="off",
        log_config=None,
        # What a caller sends that is no HTTP is nothing to fill a log with.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=max(1, round(serve.grace.total_seconds())),
        h11_max_incomplete_event_size=65_536,
    )


class DrainingServer(uvicorn.Server):
    """A server that is told to end by an `Ending`, and then answers what is in hand."""

    def end(self) -> None:
        """Take no more connections, and end when what is in hand is answered."""
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """See `uvicorn.Server`, whose own raises the signal again at the end, before anything else could be closed."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """
    The socket, so that an address that cannot be had is said before a model is loaded.

    Raises:
        SettingError: it cannot be had.
    """
    try:
        [(family, kind, protocol, _, address), *_] = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        listening = socket.socket(family, kind, protocol)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(address)
            listening.listen(1_024)
        except OSError:
            listening.close()
            raise
    except OSError as error:
        raise SettingError(
            f"cannot listen on {host}:{port}: {error.strerror or error}; --host and --port, or BANYAN_SERVE_HOST and "
            "BANYAN_SERVE_PORT, name another address"
        ) from error
    return listening


def address_of(listening: socket.socket) -> str:
    """Where a socket listens, as a URL."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
