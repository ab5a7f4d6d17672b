"""
The port on which a worker shows `/metrics`, `/healthz` and `/readyz`.

It answers from threads of its own (Prometheus's server), so that a worker whose event loop hangs still says so.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable
from socketserver import TCPServer
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from memory.errors import SettingError
from streams.metrics import EXTRA_HINT

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from streams.health import Health
    from streams.setting_tables import MetricsSettings

REQUEST_LIMIT = 5.0  # seconds
"""For sending a request and taking its answer."""
CLOSE_WITHIN = 0.2  # seconds
PATHS = ("/metrics", "/healthz", "/readyz")
AT_ONCE_MAX = 16
"""Requests answered at the same time; what comes beyond waits to be accepted."""
_StartResponse = Callable[..., Any]


class MetricsPort:
    """
    The open port.

    Args:
        settings: where; `port` is given.
        registry: what is shown.
        health: what is answered.

    Raises:
        SettingError: the port cannot be had, or the package is not installed.
    """

    def __init__(self, settings: MetricsSettings, registry: CollectorRegistry, health: Health) -> None:
        assert settings.port is not None
        try:
            from prometheus_client import make_wsgi_app  # noqa: PLC0415  # an optional extra
        except ModuleNotFoundError as error:
            raise SettingError(f"metrics: {EXTRA_HINT}") from error
        metrics = make_wsgi_app(registry)

        def answer(environ: dict[str, Any], start: _StartResponse) -> Iterable[bytes]:
            match environ["PATH_INFO"]:
                case "/metrics":
                    return metrics(environ, start)  # type: ignore[no-any-return]
                case "/healthz":
                    return _told(*health.alive(), start)
                case "/readyz":
                    return _told(*health.ready(), start)
                case _:
                    return _sent("404 Not Found", {"paths": list(PATHS)}, start)

        where = f"{settings.host}:{settings.port}"
        try:
            self._server: WSGIServer = make_server(
                settings.host, settings.port, answer, _server(settings.host), handler_class=_Handler
            )
        except OSError as error:
            raise SettingError(
                f"metrics: port {where} cannot be had: {error.strerror or error}; give each process its own BANYAN_METRICS_PORT, "
                "or 0 for a free one"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, args=(CLOSE_WITHIN,), name="banyan-metrics", daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        """`host:port` as it is, also where a free one was asked for."""
        host, port = self._server.server_name, self._server.server_port
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(REQUEST_LIMIT)


class _Handler(WSGIRequestHandler):
    timeout = REQUEST_LIMIT

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Requests are not logged: there is one every few seconds, for ever."""


def _told(well: bool, answer: dict[str, object], start: _StartResponse) -> Iterable[bytes]:
    return _sent("200 OK" if well else "503 Service Unavailable", answer, start)


def _sent(status: str, answer: dict[str, object], start: _StartResponse) -> Iterable[bytes]:
    body = json.dumps(answer).encode() + b"\n"
    start(status, [("Content-Type", "application/json"), ("Content-Length", str(len(body))), ("Cache-Control", "no-store")])
    return [body]


def _server(host: str) -> type[WSGIServer]:
    """Prometheus's server, with a limit on requests at once."""
    from prometheus_client.exposition import ThreadingWSGIServer  # noqa: PLC0415

    slots = threading.BoundedSemaphore(AT_ONCE_MAX)

    class Server(ThreadingWSGIServer):
        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET

        def server_bind(self) -> None:
            # WSGIServer asks the name service for the host's full name, which may take long and is never shown.
            TCPServer.server_bind(self)
            self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
            self.setup_environ()

        def process_request(self, request: Any, client_address: Any) -> None:
            slots.acquire()
            try:
                super().process_request(request, client_address)
            except BaseException:
                slots.release()
                raise

        def process_request_thread(self, request: Any, client_address: Any) -> None:
            try:
                super().process_request_thread(request, client_address)
            finally:
                slots.release()

        def handle_error(self, request: Any, client_address: Any) -> None:
            """A client that went away in the middle is nothing to speak of."""

    return Server
