"""The port of a worker: what it answers, and when it cannot be had."""

from __future__ import annotations

import itertools
import json
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from memory.errors import EmbedderError, SettingError, StoreUnavailableError
from streams.broker import BrokerUnavailableError
from streams.deliveries import Delivery
from streams.health import Health
from streams.metric_readings import of_worker
from streams.metrics import Meter
from streams.metrics_port import MetricsPort
from streams.progress import Limits, PartitionLook, Progress
from streams.setting_tables import MetricsSettings


@pytest.fixture
def health() -> Health:
    return Health(state="")


@pytest.fixture
def port(health: Health) -> Iterator[MetricsPort]:
    made = MetricsPort(MetricsSettings(port=0), Meter("ingest", list).registry, health)
    yield made
    made.close()


def get(port: MetricsPort, path: str, **options: Any) -> tuple[int, str]:
    try:
        with urlopen(Request(f"http://{port.address}{path}", **options), timeout=60) as answer:
            return answer.status, answer.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_metrics_are_served(port: MetricsPort) -> None:
    status, text = get(port, "/metrics")
    assert status == 200
    assert "# TYPE banyan_commits_total counter" in text
    assert "process_cpu_seconds_total" in text


def test_a_worker_that_is_well_and_has_all_it_needs(port: MetricsPort) -> None:
    assert get(port, "/healthz") == (200, '{"status": "ok"}\n')
    assert get(port, "/readyz") == (200, '{"status": "ready"}\n')


def test_a_worker_on_its_way_out_says_why(port: MetricsPort, health: Health) -> None:
    health.unwell = lambda: "the event loop has not answered"
    status, text = get(port, "/healthz")
    assert (status, json.loads(text)) == (503, {"status": "failing", "reason": "the event loop has not answered"})
    assert get(port, "/readyz")[0] == 503


def test_what_is_missing_is_named_without_its_address(port: MetricsPort, health: Health) -> None:
    health.state = "is starting"
    health.missing["kafka"] = BrokerUnavailableError.__name__
    health.waited_for = lambda: [StoreUnavailableError("redis://user:secret@host is away"), EmbedderError("429")]
    status, text = get(port, "/readyz")
    assert status == 503
    assert json.loads(text)["missing"] == {
        "worker": "is starting",
        "kafka": "BrokerUnavailableError",
        "store": "StoreUnavailableError",
        "embedder": "EmbedderError",
    }
    assert get(port, "/healthz")[0] == 200  # it is waited for: a new process would not help


def test_other_paths_and_methods(port: MetricsPort) -> None:
    assert get(port, "/")[0] == 404
    assert get(port, "/metrics", method="POST", data=b"x")[0] == 405


def test_a_client_that_says_nothing_is_not_waited_for_by_others(port: MetricsPort) -> None:
    host, _, number = port.address.rpartition(":")
    with socket.create_connection((host, int(number))), socket.create_connection((host, int(number))) as second:
        second.sendall(b"GET /met")
        assert get(port, "/healthz")[0] == 200


def test_a_port_that_is_taken_is_refused_with_what_to_do(port: MetricsPort, health: Health) -> None:
    number = int(port.address.rpartition(":")[2])
    with pytest.raises(SettingError, match=rf"port 127\.0\.0\.1:{number} cannot be had.*BANYAN_METRICS_PORT, or 0"):
        MetricsPort(MetricsSettings(port=number), Meter("ingest", list).registry, health)


def test_a_closed_port_answers_no_more(health: Health) -> None:
    made = MetricsPort(MetricsSettings(port=0), Meter("ingest", list).registry, health)
    made.close()
    with pytest.raises(OSError, match="refused"):
        get(made, "/healthz")


def test_without_the_package_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(SettingError, match=r"banyan-memory\[metrics\]"):
        Meter("ingest", list)


def test_it_is_scraped_while_the_worker_goes_on() -> None:
    progress = Progress()
    health = Health(state="")
    stop = threading.Event()

    def work() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            topic = f"t{number % 50}"
            batch = [Delivery(topic=topic, partition=number % 7, offset=number, key=None, value=None)]
            progress.taken(number, batch)
            progress.done(number, batch)
            look = PartitionLook(topic=topic, partition=number % 7, end=9, position=9, delivered=None, committed=None)
            progress.looked(number, [look] if number % 3 else [])

    working = threading.Thread(target=work)
    working.start()
    try:
        meter = Meter("ingest", lambda: of_worker(health, progress))
        for _ in range(100):
            list(meter.registry.collect())
            progress.verdict(0.0, Limits(stall=1, in_hand=1, outcast=1))
    finally:
        stop.set()
        working.join()
