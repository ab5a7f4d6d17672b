"""
A server that speaks enough of the OpenAI API to be believed, and misbehaves on command.

It answers `POST /v1/embeddings` and `POST /v1/chat/completions` on 127.0.0.1. Faults are queued with `fail_next`; each is used by
one request, in order; a request that finds the queue empty gets a good answer. Chat answers are `Summary: ` and the start of the
last message, so that a test can see what was asked.
"""

from __future__ import annotations

import json
import threading
import time
import zlib
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np

Kind = Literal[
    "status",  # an HTTP error: `status`, `retry_after`, `message`
    "hang",  # no answer until the server closes
    "drip",  # an answer that never ends: a byte now and then
    "disconnect",  # the connection closes without an answer
    "malformed",  # 200 with half a JSON document
    "not-json",  # 200 with a web page
    "empty-object",  # 200 with {}
    # embeddings only
    "nan",
    "null",  # a null among the components
    "zero",  # a vector without direction
    "wrong-dimension",
    "too-few",
    "too-many",
    "duplicate-index",
    "shuffled",  # good, but in another order; `index` says which is which
    # chat only
    "no-choices",
    "empty-content",
    "blank-content",
    "null-content",
    "refusal",
    "content-filter",
    "length",  # finish_reason=length, text cut off
    "huge",  # a megabyte of text
    "content",  # `message` as the answer
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One request's misbehaviour."""

    kind: Kind
    status: int = 500
    retry_after: str | None = None
    message: str = "the fake server was told to fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRequest:
    """What a client sent."""

    path: str
    headers: Mapping[str, str]
    """Names in lower case."""
    body: dict[str, Any]


def fake_vector(text: str, dimension: int) -> list[float]:
    """Build the vector of a text: the same on every machine, of any length but 1, different for different texts."""
    generator = np.random.default_rng(zlib.crc32(text.encode("utf-8", "replace")))
    return [float(x) for x in generator.normal(0.1, 1.0, dimension)]


class FakeOpenAIServer:
    """
    The server; use it as a context manager.

    Args:
        dimension: length of its embeddings when a request does not ask for one.
        tokens_max: requests with a text of more words than this get OpenAI's 400 about the context length.
    """

    def __init__(self, *, dimension: int = 8, tokens_max: int | None = None) -> None:
        self.dimension = dimension
        self.tokens_max = tokens_max
        self.requests: list[SeenRequest] = []
        self.in_flight_max = 0
        self._in_flight = 0
        self._faults: deque[Fault] = deque()
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def fail_next(
        self, kind: Kind, *, times: int = 1, status: int = 500, retry_after: str | None = None, message: str = ""
    ) -> None:
        """Queue a fault for the next `times` requests."""
        fault = Fault(kind=kind, status=status, retry_after=retry_after, message=message or "the fake server was told to fail")
        with self._lock:
            self._faults.extend([fault] * times)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def _take(self, request: SeenRequest) -> Fault | None:
        with self._lock:
            self.requests.append(request)
            return self._faults.popleft() if self._faults else None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # a caller beyond the usual 5 is let in a second later

    def __init__(self, fake: FakeOpenAIServer) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what many tests are about; a trace of it would only be noise."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 30
    disable_nagle_algorithm = True  # else every answer waits 40 ms for an acknowledgement

    @property
    def fake(self) -> FakeOpenAIServer:
        assert isinstance(self.server, _Server)
        return self.server.fake

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        pass

    def do_POST(self) -> None:
        with self.fake._lock:
            self.fake._in_flight += 1
            self.fake.in_flight_max = max(self.fake.in_flight_max, self.fake._in_flight)
        try:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._respond(body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True
        finally:
            with self.fake._lock:
                self.fake._in_flight -= 1

    def _respond(self, body: dict[str, Any]) -> None:
        fault = self.fake._take(
            SeenRequest(path=self.path, headers={name.lower(): value for name, value in self.headers.items()}, body=body)
        )
        if fault is not None and self._fail_transport(fault):
            return
        if self.path.endswith("/embeddings"):
            self._embeddings(body, fault)
        elif self.path.endswith("/chat/completions"):
            self._send(200, _chat(body, fault))
        else:
            self._send(404, _error("no such path"))

    def _fail_transport(self, fault: Fault) -> bool:
        match fault.kind:
            case "status":
                headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
                self._send(fault.status, _error(fault.message), headers)
            case "hang":
                self.fake._closing.wait(30)
                self.close_connection = True
            case "drip":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", "1000000")
                self.end_headers()
                while not self.fake._closing.is_set():
                    self.wfile.write(b" ")
                    self.wfile.flush()
                    time.sleep(0.02)
                self.close_connection = True
            case "disconnect":
                self.close_connection = True
            case "malformed":
                self._send_bytes(200, b'{"object": "list", "data": [{"obj', "application/json")
            case "not-json":
                self._send_bytes(200, b"<html>proxy login</html>", "text/html")
            case "empty-object":
                self._send(200, {})
            case _:
                return False
        return True

    def _embeddings(self, body: dict[str, Any], fault: Fault | None) -> None:
        texts = [body["input"]] if isinstance(body["input"], str) else body["input"]
        if self.fake.tokens_max is not None and any(len(text.split()) > self.fake.tokens_max for text in texts):
            self._send(400, _error(f"This model's maximum context length is {self.fake.tokens_max} tokens"))
            return
        self._send(200, _embeddings(texts, body.get("dimensions") or self.fake.dimension, fault))

    def _send(self, status: int, content: object, headers: Mapping[str, str] | None = None) -> None:
        self._send_bytes(status, json.dumps(content).encode(), "application/json", headers)

    def _send_bytes(self, status: int, content: bytes, kind: str, headers: Mapping[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


def _error(message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "fake", "code": None, "param": None}}


def _embeddings(texts: list[str], dimension: int, fault: Fault | None) -> dict[str, Any]:
    vectors: list[list[float | None]] = [list(fake_vector(text, dimension)) for text in texts]
    rows = [{"object": "embedding", "index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    match fault.kind if fault else None:
        case "nan":
            vectors[-1][0] = float("nan")
        case "null":
            vectors[-1][0] = None
        case "zero":
            vectors[-1][:] = [0.0] * dimension
        case "wrong-dimension":
            vectors[-1].append(0.5)
        case "too-few":
            rows.pop()
        case "too-many":
            rows.append({"object": "embedding", "index": len(rows), "embedding": vectors[0]})
        case "duplicate-index":
            rows[-1]["index"] = 0
        case "shuffled":
            rows = rows[1:] + rows[:1]
    tokens = sum(len(text.split()) for text in texts)
    return {"object": "list", "model": "fake", "data": rows, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}


def _chat(body: dict[str, Any], fault: Fault | None) -> dict[str, Any]:
    asked = str(body["messages"][-1]["content"])
    message: dict[str, Any] = {"role": "assistant", "content": f"Summary: {asked[:200]}", "refusal": None}
    reason = "stop"
    match fault.kind if fault else None:
        case "empty-content":
            message["content"] = ""
        case "blank-content":
            message["content"] = " \n\t "
        case "null-content":
            message["content"] = None
        case "refusal":
            message |= {"content": None, "refusal": "I cannot help with that."}
        case "content-filter":
            message["content"], reason = "", "content_filter"
        case "length":
            message["content"], reason = "Summary: this was cut in the mid", "length"
        case "huge":
            message["content"] = "many words " * 100_000
        case "content":
            message["content"] = fault.message if fault else ""
    choices = [] if fault and fault.kind == "no-choices" else [{"index": 0, "message": message, "finish_reason": reason}]
    return {
        "id": "chatcmpl-fake",
        "object": "chat.completion",
        "created": 0,
        "model": body.get("model", "fake"),
        "choices": choices,
        "usage": {"prompt_tokens": len(asked) // 4, "completion_tokens": 12, "total_tokens": len(asked) // 4 + 12},
    }
