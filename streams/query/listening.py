"""A socket to listen on, and a server on it that ends in order when a signal comes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import structlog
import uvicorn

from memory.errors import SettingError

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_log = structlog.stdlib.get_logger("streams.query")


class Ending:
    """That the process is to end, from the first signal on; the second ends it at once."""

    def __init__(self) -> None:
        self.asked = False
        self._calls: list[Callable[[], None]] = []

    @contextmanager
    def signals(self) -> Iterator[None]:
        """Take the process's signals: from before anything is opened until all is closed, so that its end is never the signal's."""
        loop = asyncio.get_running_loop()
        for each in _SIGNALS:
            loop.add_signal_handler(each, self._on_signal, each)
        try:
            yield
        finally:
            for each in _SIGNALS:
                loop.remove_signal_handler(each)

    def call(self, call: Callable[[], None]) -> None:
        """Have something called at the first signal; at once, if that has come."""
        self._calls.append(call)
        if self.asked:
            call()

    def _on_signal(self, number: signal.Signals) -> None:
        if self.asked:
            _log.warning("ended at once", signal=number.name)
            os._exit(128 + number)
        _log.info("draining", signal=number.name)
        self.asked = True
        for call in self._calls:
            call()


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
