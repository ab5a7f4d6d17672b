"""Metrics: the page, the registry and what is read agree; labels stay few."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from streams.health import DEPENDENCIES
from streams.metrics import COMMON, INGEST, STAGES, SUMMARIES, Kind, Meter, Metric, Reading, metrics_of
from streams.query.metrics import SERVICE

PAGE = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(?P<name>banyan_[a-z_]+)` \| (?P<kind>\w+) \|(?P<labels>[^|]*)\|", re.MULTILINE)
BOUNDED = {"version", "role", "dependency", "topic", "partition", "stage", "what", "outcome", "direction"} | {
    "route",
    "method",
    "status",
    "problem",
}


def on_page(part: str) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {row["name"]: (row["kind"], tuple(re.findall(r"`(\w+)`", row["labels"]))) for row in ROW.finditer(part)}


def declared(metrics: Iterable[Metric]) -> dict[str, tuple[str, tuple[str, ...]]]:
    return {metric.name: (metric.kind.value, metric.labels) for metric in metrics}


def test_the_page_has_every_metric_with_its_type_and_labels_and_no_other() -> None:
    common, rest = PAGE.split("Ingest workers:\n")
    ingest, rest = rest.split("Summary workers:\n")
    summaries, service = rest.split("The query service (")
    assert on_page(common) == declared(COMMON)
    assert on_page(ingest) == declared(INGEST)
    assert on_page(summaries) == declared(SUMMARIES)
    assert on_page(service) == declared(SERVICE)


def test_the_page_names_every_stage_and_dependency() -> None:
    stages = PAGE.split("Stages of `banyan_stage_seconds`")[1].split("\n\n")[0]
    for stage in (*STAGES["ingest"], *STAGES["summaries"]):
        assert f"`{stage}`" in stages
    for name in DEPENDENCIES:
        assert f"`{name}`" in PAGE


@pytest.mark.parametrize("role", STAGES)
def test_the_registry_has_what_is_declared(role: str) -> None:
    meter = Meter(role, list)
    served = {}
    for family in meter.registry.collect():
        if family.name.startswith("banyan_"):
            served[family.name + ("_total" if family.type == "counter" else "")] = family.type
    assert served == {metric.name: metric.kind.value for metric in metrics_of(role)}


def test_no_label_can_take_any_number_of_values() -> None:
    assert {label for metric in (*COMMON, *INGEST, *SUMMARIES, *SERVICE) for label in metric.labels} == BOUNDED


def scraped(meter: Meter) -> dict[tuple[str, tuple[str, ...]], float]:
    from prometheus_client import generate_latest  # noqa: PLC0415

    families = text_string_to_metric_families(generate_latest(meter.registry).decode())
    samples = [sample for family in families for sample in family.samples]
    return {(sample.name, tuple(sample.labels[name] for name in sorted(sample.labels))): sample.value for sample in samples}


def test_plain_numbers_are_read_when_somebody_asks() -> None:
    events = {"accepted": 3}
    meter = Meter("ingest", lambda: [Reading("banyan_events_total", count, (name,)) for name, count in events.items()])
    assert scraped(meter)["banyan_events_total", ("accepted",)] == 3
    events["accepted"] = 5
    assert scraped(meter)["banyan_events_total", ("accepted",)] == 5


def test_distributions_are_handed_over() -> None:
    meter = Meter("ingest", list)
    meter.batch("turns", 40)
    meter.stage("embed", 0.03)
    found = scraped(meter)
    assert found["banyan_batch_records_count", ("turns",)] == 1
    assert found["banyan_batch_records_sum", ("turns",)] == 40
    assert found["banyan_stage_seconds_bucket", ("0.05", "embed")] == 1
    assert found["banyan_stage_seconds_bucket", ("0.02", "embed")] == 0
    assert found["banyan_stage_seconds_count", ("commit",)] == 0  # there from the start


@pytest.mark.parametrize("role", STAGES)
def test_it_is_openmetrics_too(role: str) -> None:
    readings = [
        Reading(metric.name, 1.0, tuple("x" for _ in metric.labels))
        for metric in metrics_of(role)
        if metric.kind is not Kind.HISTOGRAM
    ]
    text = openmetrics.generate_latest(Meter(role, lambda: readings).registry)  # type: ignore[no-untyped-call]
    assert b"# EOF" in text


def test_two_workers_in_one_process_do_not_collide() -> None:
    assert Meter("ingest", list).registry is not Meter("ingest", list).registry


STREAMS = Path(__file__).parents[3] / "streams"
LINE = re.compile(r"_?log\.(?P<level>debug|info|warning|error|exception)\(\s*\"(?P<event>[^\"]+)\"")


def test_the_page_has_every_event_of_the_log_and_no_other() -> None:
    logged = {
        (found["event"], found["level"].replace("exception", "error"))
        for path in STREAMS.rglob("*.py")
        for found in LINE.finditer(path.read_text(encoding="utf-8"))
    }
    table = PAGE.split("## Log lines")[1]
    listed = set(re.findall(r"^\| `([a-z -]+)` \| (debug|info|warning|error) \|", table, re.MULTILINE))
    assert listed == logged


def test_the_page_has_every_field_of_the_two_canonical_lines() -> None:
    from streams.agents import batches  # noqa: PLC0415
    from streams.workers import jobs  # noqa: PLC0415

    of_batch, of_summary = PAGE.split("Fields of `batch`")[1].split("Fields of `summary`")
    for stage in batches.STAGES:
        assert f"`{stage}_ms`" in of_batch
    for field in (*batches._Outcome(topic="", records=0, trees={"t"}).fields(), "ms", "outcome", "error"):
        assert f"`{field}`" in of_batch
    for stage in jobs.STAGES:
        assert f"`{stage}_ms`" in of_summary.split("\n\n")[0]
