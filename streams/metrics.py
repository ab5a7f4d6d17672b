"""
The metrics of a worker: their names, once, and how Prometheus gets them.

What is counted stands as plain numbers in the objects that do the work, and is read when somebody asks (`streams.metric_readings`);
only distributions are handed over as they happen. `docs/metrics.md` has the same names; a test compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple

from memory.errors import SettingError

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Histogram

BATCH_BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000)
STAGE_BOUNDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 60.0)  # seconds
EXTRA_HINT = "the metrics port needs the extra metrics: pip install 'banyan-memory[metrics]'"


class Kind(StrEnum):
    """Prometheus's types."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One name."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


class Reading(NamedTuple):
    """One value as of now."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


def _counter(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, help=text, labels=labels)


def _gauge(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, help=text, labels=labels)


def _histogram(name: str, text: str, *labels: str) -> Metric:
    return Metric(name=name, kind=Kind.HISTOGRAM, help=text, labels=labels)


BATCH_RECORDS = _histogram("banyan_batch_records", "Messages dealt with together.", "topic")
STAGE_SECONDS = _histogram("banyan_stage_seconds", "What each stage took.", "stage")

COMMON = (
    _gauge("banyan_build_info", "Always 1; what this process is.", "version", "role"),
    _gauge("banyan_healthy", "1 while /healthz answers 200."),
    _gauge("banyan_ready", "1 while /readyz answers 200."),
    _gauge("banyan_dependency_up", "0 while this worker waits for it.", "dependency"),
    _gauge("banyan_partitions_held", "Partitions that are this worker's.", "topic"),
    _gauge("banyan_consumer_lag_records", "Offsets from what is committed to the end.", "topic", "partition"),
    _counter("banyan_rebalances_total", "Times that the group shared its partitions anew."),
    _counter("banyan_records_taken_total", "Messages taken from Kafka.", "topic"),
    _counter("banyan_records_acknowledged_total", "Messages whose effect is durable.", "topic"),
    _gauge("banyan_records_in_hand", "Messages taken and not yet acknowledged.", "topic"),
    _gauge("banyan_oldest_in_hand_seconds", "Since when something is in hand and nothing was acknowledged."),
    BATCH_RECORDS,
    STAGE_SECONDS,
    _counter("banyan_retries_total", "Attempts that failed and were made again.", "what"),
    _counter("banyan_dead_letters_total", "Messages given up, by where they came from.", "topic"),
)
INGEST = (
    _counter("banyan_events_total", "Events by what became of them.", "outcome"),
    _counter("banyan_forgets_total", "Events that were to be forgotten, by what became of that.", "outcome"),
    _counter("banyan_leaves_forgotten_total", "Leaves that went."),
    _counter("banyan_items_committed_total", "Leaves that went into trees."),
    _counter("banyan_commits_total", "Commits that were applied."),
    _counter("banyan_commit_conflicts_total", "Commits that were refused and planned again."),
    _counter("banyan_commits_leased_total", "Commits that were planned under a lease."),
    _counter("banyan_lease_timeouts_total", "Leases that were not to be had in time."),
    _counter("banyan_contributions_added_total", "Leaves that came to wait at summaries, counted at each."),
    _counter("banyan_summary_jobs_sent_total", "Jobs sent for summaries that became dirty."),
    _counter("banyan_summary_jobs_again_total", "Jobs put again because their records came again."),
    _counter("banyan_items_labelled_total", "Items that a model said the place of."),
    _counter("banyan_items_unlabelled_total", "Items placed by their vectors since that model was away or said nothing usable."),
    _counter("banyan_label_calls_failed_total", "Calls of the model of labels that failed."),
    _gauge("banyan_labels_resting", "1 while the model of labels is left alone since it failed."),
    _gauge("banyan_views", "Trees whose view is in memory and not in use."),
    _gauge("banyan_view_bytes", "What those views take."),
)
SUMMARIES = (
    _gauge("banyan_summary_backlog_jobs", "Summaries in hand that wait, are delayed, or are being made."),
    _gauge("banyan_summary_oldest_job_seconds", "Age of the oldest job in hand."),
    _gauge("banyan_contributions_pending", "Leaves that wait at summaries, counted at each, in the whole store."),
    _gauge("banyan_summaries_pending", "Summaries with such leaves, in the whole store."),
    _counter("banyan_contributions_covered_total", "Leaves folded into summaries, counted at each."),
    _counter("banyan_summaries_written_total", "Summaries that got a new text."),
    _counter("banyan_summary_jobs_skipped_total", "Jobs whose summary covered them already."),
    _counter("banyan_summary_claims_busy_total", "Jobs put off since another worker had the summary."),
    _counter("banyan_summary_attempts_failed_total", "Attempts that failed."),
    _counter("banyan_summaries_given_up_total", "Summaries given up after the last attempt."),
    _counter("banyan_llm_calls_total", "Calls to the model."),
    _counter("banyan_llm_tokens_total", "Tokens sent to the model and received.", "direction"),
    _counter("banyan_llm_waited_seconds_total", "Time that calls waited for their turn at the provider."),
    _counter("banyan_llm_put_off_total", "Calls put off because their turn was too far away."),
    _counter("banyan_llm_pauses_total", "Times the provider asked this worker, and so all, to leave it alone."),
)
STAGES = {
    "ingest": ("decode", "embed", "plan", "lease", "commit", "send", "batch"),
    "summaries": ("read", "model", "embed", "write", "summary"),
}


def metrics_of(role: str) -> tuple[Metric, ...]:
    """Those that a worker of a role has."""
    return COMMON + (INGEST if role == "ingest" else SUMMARIES)


def new_registry() -> CollectorRegistry:
    """
    A registry with what Prometheus's clients say of every process.

    Raises:
        SettingError: the package is not installed.
    """
    try:
        from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise SettingError(f"metrics: {EXTRA_HINT}") from error
    registry: CollectorRegistry = CollectorRegistry()
    for standard in (ProcessCollector, PlatformCollector, GCCollector):
        standard(registry=registry)
    return registry


def histogram(registry: CollectorRegistry, metric: Metric, bounds: Sequence[float]) -> Histogram:
    """A registry's histogram of a metric, its classes ending at the bounds."""
    from prometheus_client import Histogram  # noqa: PLC0415

    return Histogram(metric.name, metric.help, metric.labels, buckets=bounds, registry=registry)


class Meter:
    """
    One worker's registry; several may be in one process.

    Args:
        role: `ingest` or `summaries`.
        read: the present values; asked from the thread that answers.

    Raises:
        SettingError: the package is not installed.
    """

    def __init__(self, role: str, read: Callable[[], Iterable[Reading]]) -> None:
        self.registry = new_registry()
        self._batch = histogram(self.registry, BATCH_RECORDS, BATCH_BOUNDS)
        self._stage = histogram(self.registry, STAGE_SECONDS, STAGE_BOUNDS)
        self._stages = {stage: self._stage.labels(stage) for stage in STAGES[role]}
        self.registry.register(Readings([metric for metric in metrics_of(role) if metric.kind is not Kind.HISTOGRAM], read))

    def stage(self, name: str, seconds: float) -> None:
        """A stage of this role's has ended."""
        self._stages[name].observe(seconds)

    def batch(self, topic: str, records: int) -> None:
        """So many messages were taken together."""
        self._batch.labels(topic).observe(records)


class Readings:
    """Reads plain numbers as Prometheus asks for them."""

    def __init__(self, metrics: Iterable[Metric], read: Callable[[], Iterable[Reading]]) -> None:
        self._metrics = tuple(metrics)
        self._read = read

    def describe(self) -> Iterator[Any]:
        """Every name, so that one that is taken is refused at once."""
        yield from self._families().values()

    def collect(self) -> Iterator[Any]:
        """Every value."""
        families = self._families()
        for reading in self._read():
            families[reading.name].add_metric(reading.labels, reading.value)
        yield from families.values()

    def _families(self) -> dict[str, Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415

        makers = {Kind.COUNTER: CounterMetricFamily, Kind.GAUGE: GaugeMetricFamily}
        return {metric.name: makers[metric.kind](metric.name, metric.help, labels=metric.labels) for metric in self._metrics}
