"""
Traces, where there are to be any: from the producer of a record through its batch and its commit to the summaries above it.

The context travels in the headers of Kafka messages as W3C Trace Context, so that a producer that traces is continued. A batch and
a summary serve many messages: each is a child of the first and linked to the others. What time a stage took is told when it is over
(`stage`), so that nothing that is traced knows of traces. While tracing is off each function costs one comparison.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

from memory.errors import SettingError

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

Headers = Sequence[tuple[str, bytes]]
Attributes = Mapping[str, str | int]
EXTRA_HINT = "traces need the extra tracing: pip install 'banyan-memory[tracing]'"
CLOSE_LIMIT = 5.0  # seconds
LINKS_MAX = 128
"""Further messages that one span is linked to."""
WHOLES = ("batch", "summary")
"""Stages that are spans of their own."""
_CARRIED = ("traceparent", "tracestate")
_NOTHING: AbstractContextManager[None] = nullcontext()
_active: _Tracing | None = None


def configure_tracing(name: str, *, exporter: SpanExporter | None = None) -> Callable[[], None]:
    """
    Trace from here on, until the returned function is called, which sends what is left, unless who takes it is away.

    Where spans go, how many, and what the service is called is told by the standard variables (`OTEL_EXPORTER_OTLP_ENDPOINT`,
    `OTEL_TRACES_SAMPLER`, `OTEL_SERVICE_NAME`, …), which the SDK reads.

    Args:
        name: of the service, where the variables give none.
        exporter: instead of OTLP over HTTP; gets each span as it ends.

    Raises:
        SettingError: the packages are not installed.
    """
    global _active  # noqa: PLW0603  # like the configuration of logging: one a process
    _active = _Tracing(name, exporter)
    return _stop


def span(
    name: str, *, kind: str = "internal", of: Iterable[Headers] = (), attributes: Attributes | None = None
) -> AbstractContextManager[None]:
    """
    Trace the body: below what runs now, or below the first of the messages with a context, linked to the others.

    Args:
        name: of few different ones.
        kind: `internal`, `producer` or `consumer`.
        of: headers of the messages that it is about.
        attributes: what it is about; nothing that users wrote.
    """
    return _NOTHING if _active is None else _active.span(name, kind, of, attributes)


def begin(name: str, *, of: Iterable[Headers] = (), attributes: Attributes | None = None) -> Callable[[], None] | None:
    """`span` for what begins in one call of a task and ends in another; the function that is returned ends it."""
    return None if _active is None else _active.begin(name, of, attributes)


def stage(name: str, seconds: float) -> None:
    """A stage of what is traced now has just ended, after so long."""
    if _active is not None and name not in WHOLES:
        _active.stage(name, seconds)


def carried() -> Headers:
    """Headers that carry what is traced now; none when nothing is."""
    return () if _active is None else _active.carried()


def sent(topic: str, *, after: Headers = (), attributes: Attributes | None = None) -> Headers:
    """Note that a message is sent, below `after` or what is traced now; returns the headers that carry it."""
    return () if _active is None else _active.sent(topic, after, attributes)


def trace_id() -> str | None:
    """The trace that is worked on now, for the log."""
    return None if _active is None else _active.trace_id()


def _stop() -> None:
    global _active
    active, _active = _active, None
    if active is not None:
        closing = threading.Thread(target=active.close, name="banyan-traces", daemon=True)
        closing.start()
        closing.join(CLOSE_LIMIT)


class _Tracing:
    def __init__(self, name: str, exporter: SpanExporter | None) -> None:
        try:
            from opentelemetry import context, trace  # noqa: PLC0415  # an optional extra
            from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource  # noqa: PLC0415
            from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
            from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor  # noqa: PLC0415
            from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

            if exporter is None:
                from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        except ModuleNotFoundError as error:
            raise SettingError(f"tracing: {EXTRA_HINT}") from error
        self._context, self._trace = context, trace
        self._propagator = TraceContextTextMapPropagator()
        resource = Resource.create({SERVICE_NAME: name}).merge(OTELResourceDetector().detect())
        self._provider = TracerProvider(resource=resource)
        self._provider.add_span_processor(
            BatchSpanProcessor(OTLPSpanExporter()) if exporter is None else SimpleSpanProcessor(exporter)
        )
        self._tracer = self._provider.get_tracer("banyan")

    @contextmanager
    def span(self, name: str, kind: str, of: Iterable[Headers], attributes: Attributes | None) -> Iterator[None]:
        begun = self._begun(name, kind, of, attributes)
        # An error's text may quote what somebody wrote; that there was one is said by the span's status.
        with self._trace.use_span(begun, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            try:
                yield
            except BaseException as error:
                begun.set_status(self._trace.StatusCode.ERROR, type(error).__name__)
                raise

    def begin(self, name: str, of: Iterable[Headers], attributes: Attributes | None) -> Callable[[], None]:
        begun = self._begun(name, "consumer", of, attributes)
        before = self._context.get_current()
        self._context.attach(self._trace.set_span_in_context(begun))

        def end() -> None:
            begun.end()
            self._context.attach(before)

        return end

    def stage(self, name: str, seconds: float) -> None:
        if not self._trace.get_current_span().is_recording():
            return
        now = time.time_ns()
        self._tracer.start_span(name, start_time=now - round(seconds * 1e9)).end(now)

    def carried(self) -> Headers:
        return self._injected(self._context.get_current())

    def sent(self, topic: str, after: Headers, attributes: Attributes | None) -> Headers:
        parent = self._extracted(after) if after else None
        destination = {"messaging.system": "kafka", "messaging.destination.name": topic, "messaging.operation.type": "send"}
        begun = self._tracer.start_span(
            f"send {topic}", context=parent, kind=self._trace.SpanKind.PRODUCER, attributes={**destination, **(attributes or {})}
        )
        begun.end()
        return self._injected(self._trace.set_span_in_context(begun))

    def trace_id(self) -> str | None:
        context = self._trace.get_current_span().get_span_context()
        return self._trace.format_trace_id(context.trace_id) if context.is_valid else None

    def close(self) -> None:
        self._provider.shutdown()

    def _begun(self, name: str, kind: str, of: Iterable[Headers], attributes: Attributes | None) -> Any:
        parent, links = None, []
        seen: set[int] = set()
        for headers in of:
            context = self._extracted(headers)
            found = self._trace.get_current_span(context).get_span_context()
            if not found.is_valid or found.span_id in seen:
                continue
            seen.add(found.span_id)
            if parent is None:
                parent = context
            else:
                links.append(self._trace.Link(found))
                if len(links) == LINKS_MAX:
                    break
        current = self._trace.get_current_span().get_span_context()
        if parent is not None and current.is_valid:
            links.append(self._trace.Link(current))
        kinds = {"consumer": self._trace.SpanKind.CONSUMER, "producer": self._trace.SpanKind.PRODUCER}
        return self._tracer.start_span(
            name, context=parent, kind=kinds.get(kind, self._trace.SpanKind.INTERNAL), links=links, attributes=attributes
        )

    def _extracted(self, headers: Headers) -> Any:
        carrier = {name: value.decode("ascii", "replace") for name, value in headers if name in _CARRIED and value}
        return self._propagator.extract(carrier, context=self._context.Context())

    def _injected(self, context: Any) -> Headers:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier, context=context)
        return [(name, value.encode()) for name, value in carrier.items()]
