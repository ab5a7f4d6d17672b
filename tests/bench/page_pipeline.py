"""The rows of docs/benchmarks.md about Kafka, workers and Redis."""

from __future__ import annotations

from collections.abc import Callable, Mapping

Row = tuple[str, str, tuple[str, ...], Callable[..., str], str, str]


def _curve(points: Mapping[str, float], digits: int) -> str:
    return ", ".join(
        f"{writers}: {value:,.{digits}f}" for writers, value in sorted(points.items(), key=lambda point: int(point[0]))
    )


def _waits(found: Mapping[str, float]) -> str:
    return f"{found['p50_ms']:.0f} / {found['p99_ms']:.0f} ms at {found['rate']:,.0f}/s"


def _both(found: Mapping[str, float]) -> str:
    return f"{found['p50_ms']:.0f} / {found['p99_ms']:.0f} ms"


def _costs(found: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {found[f'{name}_us_per_record']:.0f}" for name in ("worker", "follower", "redis", "broker", "sender"))


def rows() -> list[Row]:
    """(figure, part, names, how to show them, must, aim)."""
    return [
        (
            "Kafka → committed in Redis, one ingest worker, 1,000 trees, vectors given: records/s; share of a plain Faust agent",
            "pipeline",
            ("many_records_per_s", "share", "plain_records_per_s", "many_cpu_us_per_record", "many_scripts_per_record"),
            lambda rate, share, plain, cpu, scripts: (
                f"{rate:,.0f}; {share:.0%} of {plain:,.0f} ({cpu:.0f} µs of a processor and {scripts:.2f} scripts a record)"
            ),
            "1,500; 12 %",
            "4,000; 30 %",
        ),
        (
            "the same into one tree of 10,000 leaves",
            "pipeline",
            ("one_records_per_s", "one_cpu_us_per_record"),
            lambda rate, cpu: f"{rate:,.0f} ({cpu:.0f} µs of a processor a record)",
            "800",
            "2,500",
        ),
        (
            "8 writers on one tree against 1, item by item, 1 ms of network to Redis: inserts/s ratio",
            "writers",
            ("ratio", "inserts_per_s"),
            lambda ratio, rates: f"{ratio:.2f} (inserts/s by writers: {_curve(rates, 0)})",
            "≥ 2.5",
            "≥ 5",
        ),
        ("lease wait in that run, p99", "writers", ("lease_wait_p99_ms",), lambda wait: f"{wait:.1f} ms", "", "< 20 ms"),
        ("conflicts an insert, by writers", "writers", ("conflicts",), lambda points: _curve(points, 2), "curve", ""),
        (
            "event sent to Kafka → committed and covered by an index that follows, at half the peak rate of worker and follower "
            "together, which share the machine (and at half of what the worker takes alone): p50 / p99",
            "searchable",
            ("half_together", "half_alone", "peak_together", "peak_alone"),
            lambda half, more, together, alone: (
                f"{_waits(half)} ({_waits(more)}); peaks {together:,} and {alone:,}/s; µs of a processor a record: {_costs(half)}"
            ),
            "100 / 500 ms",
            "30 / 150 ms",
        ),
        (
            "a tree at 50 times the rate of ten others (P8): what the others wait until found, p50 / p99, alone; beside it; "
            "beside one that brings 1,500 records at once every 5 s",
            "tenants",
            ("rate_of_each", "alone", "beside", "bursts"),
            lambda rate, alone, beside, bursts: (
                f"{_both(alone)}; {_both(beside)} ({beside['p99_ms'] / alone['p99_ms']:.1f}×); "
                f"{_both(bursts)} ({bursts['p99_ms'] / alone['p99_ms']:.1f}×), at {rate:.0f}/s of each of the ten"
            ),
            "p99 ≤ 3×",
            "",
        ),
        (
            "a worker killed → its partitions are worked on again: median and longest of three",
            "takeover",
            ("takeover_s", "longest_s"),
            lambda median, longest: f"{median} / {longest} s",
            "≤ 15 s",
            "≤ 8 s",
        ),
        (
            "memory of an ingest worker that holds 100,000 nodes; at most on the way",
            "holding",
            ("worker_mb", "worker_peak_mb"),
            lambda held, most: f"{held} MB; {most} MB",
            "≤ 900 MB",
            "≤ 400 MB",
        ),
        (
            "Redis memory a node of 384 dimensions, without an index, log included",
            "holding",
            ("redis_bytes_per_node",),
            lambda size: f"{size / 1000:.2f} KB",
            "≤ 4 KB",
            "≤ 2.2 KB",
        ),
    ]
