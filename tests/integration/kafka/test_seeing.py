"""What a worker shows while it works, and that one that no longer works says so and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streams.settings import Settings
from tests.conftest import started
from tests.integration.kafka.seen_first import SEEN
from tests.integration.kafka.workers import LIMIT, STEADY, Worker, Workers, assert_whole, send, turns, until_events, until_fresh
from tests.servers import redis
from tests.servers.traces import Collector, collector

pytestmark = pytest.mark.slow
PORT = {"BANYAN_METRICS_PORT": "0"}
SECRET = "sk-not-for-the-log"


def address(worker: Worker) -> str:
    worker.until("metrics")
    return str(worker.events("metrics")[0]["address"])


def get(worker: Worker, path: str) -> tuple[int, str]:
    try:
        with urlopen(f"http://{address(worker)}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def scraped(worker: Worker) -> dict[tuple[str, tuple[str, ...]], float]:
    found = {}
    for family in text_string_to_metric_families(get(worker, "/metrics")[1]):
        for sample in family.samples:
            found[sample.name, tuple(sample.labels[name] for name in sorted(sample.labels))] = sample.value
    return found


async def until(condition: Callable[[], bool], what: Callable[[], Any], seconds: float = LIMIT) -> None:
    end = time.monotonic() + seconds
    while not await asyncio.to_thread(condition):
        assert time.monotonic() < end, what()
        await asyncio.sleep(0.3)


async def test_what_both_workers_show(installed: Settings, workers: Workers, tmp_path: Path) -> None:
    prefix, partitions = installed.kafka.prefix, installed.kafka.partitions
    topic = f"{prefix}.turns"
    lines = [json.dumps({"tree": "t", "id": f"e{number}", "text": f"the harbour tunnel, number {number}"}) for number in range(60)]
    (tmp_path / "turns.jsonl").write_text("\n".join(lines), encoding="utf-8")
    with collector() as traces:
        traced = {"BANYAN_TRACING": "yes", "OTEL_EXPORTER_OTLP_ENDPOINT": traces.endpoint, "OPENAI_API_KEY": SECRET}
        ingest, summaries = (
            workers("worker", role, BANYAN_WORKER_STALL="30s", **traced, **PORT, **STEADY) for role in ("ingest", "summaries")
        )
        workers("produce", "turns.jsonl", **traced).ends()
        second = workers("worker", "ingest", BANYAN_METRICS_PORT=address(ingest).rpartition(":")[2])
        await until_events(installed, 60)
        await until_fresh(installed)

        def at_rest() -> bool:
            found, made = scraped(ingest), scraped(summaries)
            lags = [value for (name, labels), value in found.items() if name == "banyan_consumer_lag_records" and topic in labels]
            backlog = made["banyan_summary_backlog_jobs", ()] + made["banyan_summary_oldest_job_seconds", ()]
            ready = get(ingest, "/readyz")[0] == get(summaries, "/readyz")[0] == 200
            return ready and len(lags) == partitions and not any(lags) and not backlog

        await until(at_rest, lambda: (scraped(ingest), scraped(summaries)))
        for worker in (ingest, summaries):
            assert get(worker, "/healthz") == (200, '{"status": "ok"}\n')
        seen, made = scraped(ingest), scraped(summaries)
        for worker in (ingest, summaries):
            worker.signal()
            worker.ends()

    assert seen["banyan_events_total", ("accepted",)] == seen["banyan_items_committed_total", ()] == 60
    assert seen["banyan_records_acknowledged_total", (topic,)] == seen["banyan_batch_records_sum", (topic,)] == 60
    assert seen["banyan_partitions_held", (topic,)] == partitions
    for name in ("turns", "documents", "feedback", "forgets"):
        assert seen["banyan_dead_letters_total", (f"{prefix}.{name}",)] == 0, "or no alert sees the first"
    assert made["banyan_dead_letters_total", (f"{prefix}.summaries",)] == 0
    assert seen["banyan_stage_seconds_count", ("embed",)] > 0
    assert seen["banyan_stage_seconds_count", ("commit",)] >= seen["banyan_commits_total", ()]
    assert made["banyan_contributions_pending", ()] >= 0, "looked at when the worker started"
    assert made["banyan_contributions_covered_total", ()] == seen["banyan_contributions_added_total", ()] > 0
    assert made["banyan_stage_seconds_count", ("model",)] >= made["banyan_summaries_written_total", ()] > 0
    second.ends(2)
    assert "cannot be had: Address already in use; give each process its own BANYAN_METRICS_PORT" in second.log.read_text()
    assert second.events("ready") == []
    assert_told(ingest, "ingest", partitions)
    assert_told(summaries, "summaries", partitions)
    assert ingest.events("stopped")[0]["events accepted"] == 60
    assert_traced(traces, prefix)


def assert_told(worker: Worker, role: str, partitions: int) -> None:
    """What it is, what it held, what it did; no secret and no text."""
    [starting], [stopped] = worker.events("starting"), worker.events("stopped")
    assert (starting["role"], starting["settings"]["openai_api_key"]) == (role, "********")
    assert starting["version"]
    assert starting["faust"]
    assert all(len(held) == partitions for held in worker.events("partitions")[0]["held"].values())
    assert stopped["records"] > 0
    assert any("trace_id" in line for line in worker.events("batch" if role == "ingest" else "summary"))
    text = worker.log.read_text(encoding="utf-8")
    assert SECRET not in text
    assert "harbour" not in text


def assert_traced(traces: Collector, prefix: str) -> None:
    """Every summary is in the trace of a record that the command sent."""
    written = [span for service, span in traces.named("summarize") if service == f"{prefix}-summaries"]
    produced = {span.trace_id for service, span in traces.spans if service == f"{prefix}-produce"}
    assert len(produced) == 60
    assert written
    assert all(span.trace_id in produced for span in written)
    names = {span.name for _, span in traces.spans if span.trace_id == written[0].trace_id}
    assert names >= {f"send {prefix}.turns", "insert", "commit", f"send {prefix}.summaries", "summarize"}
    assert "harbour" not in str(traces.spans)


async def test_readiness_names_the_broker_that_is_missing(settings: Settings, workers: Workers) -> None:
    worker = workers("worker", "ingest", BANYAN_BROKER="127.0.0.1:1", **PORT)
    await until(
        lambda: json.loads(get(worker, "/readyz")[1])["missing"] == {"worker": "is starting", "kafka": "BrokerUnavailableError"},
        lambda: get(worker, "/readyz"),
    )
    assert get(worker, "/healthz")[0] == 200
    assert settings.broker not in get(worker, "/readyz")[1]


@pytest.mark.usefixtures("installed")
async def test_a_worker_thrown_out_of_its_group_is_unhealthy_and_ends(workers: Workers, tmp_path: Path) -> None:
    worker = workers("tests/integration/kafka/outcast_worker.py", BANYAN_WORKER_STALL="6s", **PORT)
    worker.until("left")
    await until(lambda: get(worker, "/healthz")[0] == 503, worker.log.read_text)
    assert "has not had this worker in its group" in json.loads(get(worker, "/healthz")[1])["reason"]
    (tmp_path / SEEN).touch()
    worker.ends(75)
    assert "in its group" in worker.events("cannot go on")[0]["reason"]


async def test_records_that_lie_in_the_client_and_reach_no_agent_end_the_worker(
    installed: Settings, workers: Workers, tmp_path: Path
) -> None:
    await send(installed, turns(60))
    worker = workers("tests/integration/kafka/deaf_worker.py", BANYAN_WORKER_STALL="6s", BANYAN_WORKER_BATCH_RECORDS="10", **PORT)
    worker.until("deaf")
    # All that is on the broker has been fetched, nothing is in hand, and Kafka has nothing against this worker.
    await until(lambda: get(worker, "/healthz")[0] == 503, worker.log.read_text)
    assert "records of" in json.loads(get(worker, "/healthz")[1])["reason"]
    (tmp_path / SEEN).touch()
    worker.ends(75)
    assert "have waited for" in worker.events("cannot go on")[0]["reason"]


async def test_readiness_names_the_store_that_is_missing(installed: Settings, workers: Workers, tmp_path: Path) -> None:
    with started(redis.single(tmp_path)) as server:
        worker = workers("worker", "ingest", BANYAN_STORE=server.url, BANYAN_WORKER_STALL="10s", **PORT)
        await until(lambda: get(worker, "/readyz")[0] == 200, worker.log.read_text)
        server.kill()
        await send(installed, turns(5))
        missing = json.dumps({"status": "not ready", "missing": {"store": "StoreUnavailableError"}}) + "\n"
        await until(lambda: get(worker, "/readyz") == (503, missing), lambda: get(worker, "/readyz"))
        assert get(worker, "/healthz")[0] == 200
        server.start()
        await until(lambda: get(worker, "/readyz")[0] == 200, worker.log.read_text)
        assert worker.events("going on")


async def test_a_static_member_that_comes_back_is_known(installed: Settings, workers: Workers) -> None:
    static = {"BANYAN_KAFKA_INSTANCE": "one", "BANYAN_KAFKA_SESSION_TIMEOUT": "80s", "BANYAN_WORKER_STALL": "8s"}
    before = workers("worker", "ingest", **static)
    before.until("partitions")
    before.kill()
    worker = workers("worker", "ingest", **static, **PORT)
    await until(lambda: get(worker, "/readyz")[0] == 200, worker.log.read_text)
    await asyncio.sleep(9)  # longer than it would be left alone if the broker did not have it
    assert get(worker, "/healthz")[0] == 200
    await send(installed, turns(10))
    await until_events(installed, 10)


async def test_a_worker_that_was_stopped_comes_back_and_is_well(installed: Settings, workers: Workers) -> None:
    stopped = workers("worker", "ingest", BANYAN_WORKER_STALL="10s", **PORT)
    await until(lambda: get(stopped, "/readyz")[0] == 200, stopped.log.read_text)
    stopped.signal(signal.SIGSTOP)
    other = workers("worker", "ingest", BANYAN_WORKER_STALL="10s", **PORT)
    await send(installed, turns(100))
    # The one that is stopped loses its partitions to the other.
    await until_events(installed, 100)
    stopped.signal(signal.SIGCONT)
    await until(lambda: get(stopped, "/readyz")[0] == 200, stopped.log.read_text)
    held = f"{installed.kafka.prefix}.turns"
    await until(lambda: 0 < scraped(stopped)["banyan_partitions_held", (held,)] < installed.kafka.partitions, stopped.log.read_text)
    assert get(stopped, "/healthz")[0] == get(other, "/healthz")[0] == 200
    await assert_whole(installed, 100)
