"""The metrics of the service; `docs/metrics.md` has the same names, a test compares them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from streams.metrics import Kind, Metric, Reading, Readings, histogram, new_registry

SECONDS_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
REQUEST_SECONDS = Metric(name="banyan_http_request_seconds", kind=Kind.HISTOGRAM, help="What answers took.", labels=("route",))
SERVICE = (
    Metric(name="banyan_http_requests_total", kind=Kind.COUNTER, help="Answers.", labels=("route", "method", "status")),
    REQUEST_SECONDS,
    Metric(name="banyan_http_requests_in_hand", kind=Kind.GAUGE, help="Requests that are being answered."),
    Metric(name="banyan_http_streams", kind=Kind.GAUGE, help="Streams of commits that are open."),
    Metric(name="banyan_http_problems_total", kind=Kind.COUNTER, help="Problems, by kind.", labels=("problem",)),
    Metric(name="banyan_http_records_total", kind=Kind.COUNTER, help="Records, by what became of them.", labels=("outcome",)),
    Metric(name="banyan_query_degraded_total", kind=Kind.COUNTER, help="Questions answered by words alone."),
    Metric(name="banyan_query_waits_total", kind=Kind.COUNTER, help="Questions that waited for a commit.", labels=("outcome",)),
    Metric(name="banyan_query_cache_hits_total", kind=Kind.COUNTER, help="Vectors of queries that were kept."),
    Metric(name="banyan_query_cache_misses_total", kind=Kind.COUNTER, help="Vectors of queries that were asked for."),
    Metric(name="banyan_query_cache_bytes", kind=Kind.GAUGE, help="Memory for vectors of queries."),
)


class ServiceMeter:
    """
    The service's registry.

    Args:
        read: the present values that others keep; asked when somebody scrapes.

    Raises:
        SettingError: the package is not installed.
    """

    def __init__(self, read: Callable[[], Iterable[Reading]]) -> None:
        self.registry = new_registry()
        self._seconds = histogram(self.registry, REQUEST_SECONDS, SECONDS_BOUNDS)
        self._read = read
        self.answers: Counter[tuple[str, str, str]] = Counter()
        self.problems: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.in_hand = 0
        self.streams = 0
        self.registry.register(Readings([metric for metric in SERVICE if metric.kind is not Kind.HISTOGRAM], self._readings))

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """A request has its answer."""
        self.answers[route, method, str(status)] += 1
        self._seconds.labels(route).observe(seconds)

    def scrape(self) -> bytes:
        """Prometheus's text."""
        from prometheus_client import generate_latest  # noqa: PLC0415

        return generate_latest(self.registry)

    def _readings(self) -> Iterable[Reading]:
        for labels, count in list(self.answers.items()):
            yield Reading("banyan_http_requests_total", count, labels)
        for name, count in list(self.problems.items()):
            yield Reading("banyan_http_problems_total", count, (name,))
        for name, count in list(self.records.items()):
            yield Reading("banyan_http_records_total", count, (name,))
        yield Reading("banyan_http_requests_in_hand", self.in_hand)
        yield Reading("banyan_http_streams", self.streams)
        yield from self._read()
