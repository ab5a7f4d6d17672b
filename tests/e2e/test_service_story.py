"""One story over HTTP, the same on a file and on Kafka and Redis with workers: written, found, seen, explained, kept."""

from __future__ import annotations

import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from streams.settings import load
from tests.conftest import served, started
from tests.e2e.commands import Banyan
from tests.e2e.service import serving
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import LIMIT, Workers
from tests.servers import kafka, redis

pytestmark = pytest.mark.slow
TURNS = [
    {
        "id": f"t{number}",
        "conversation": f"c{number // 5}",
        "speaker": ("Ana", "Ben")[number % 2],
        "text": f"{what} number {number}",
        "at": f"2026-05-{number + 1:02}T10:00:00Z",
    }
    for number, what in enumerate(["the harbour tunnel opens", "a cello lesson", "the marathon training"] * 8)
]
DOCUMENT = {"id": "d1", "title": "The tunnel", "text": "The harbour tunnel was dug for ten years. " * 60, "source": "The Herald"}


@pytest.fixture(params=["embedded", "kafka and redis"])
async def variables_of(
    request: pytest.FixtureRequest, pytestconfig: pytest.Config, tmp_path: Path
) -> AsyncIterator[tuple[dict[str, str], Workers | None]]:
    """Settings of the service, with workers behind it where records go to Kafka."""
    if request.param == "embedded":
        yield {"BANYAN_STORE": "sqlite:///memory"}, None
        return
    with started(redis.single(tmp_path / "redis")) as store:
        for broker in served(pytestconfig, "Kafka", lambda: kafka.single(tmp_path / "kafka")):
            environment = variables(broker.address, tmp_path) | {"BANYAN_STORE": store.url}
            await install(load(environment).settings)
            workers = Workers(environment, tmp_path)
            workers("worker", "ingest")
            workers("worker", "summaries")
            try:
                yield environment, workers
            finally:
                workers.kill_all()


def until(condition: Callable[[], bool], what: str, workers: Workers | None) -> None:
    end = time.monotonic() + LIMIT
    while not condition():
        logs = "".join(worker.log.read_text()[-2_000:] for worker in workers.started) if workers else ""
        assert time.monotonic() < end, f"{what}\n{logs}"
        time.sleep(0.2)


def test_what_is_told_is_remembered(banyan: Banyan, variables_of: tuple[dict[str, str], Workers | None]) -> None:
    environment, workers = variables_of
    tree = "/v1/trees/user-1"

    with serving(banyan, BANYAN_AUTH="off", **environment) as (client, process):
        until(lambda: client.post(f"{tree}/turns", json=TURNS[0]).status_code == 202, "the first turn was not taken", workers)
        answer = client.post(f"{tree}/turns", json=TURNS)
        assert answer.status_code == 202, answer.text
        assert len(answer.json()["events"]) == len(TURNS)
        assert client.post(f"{tree}/documents", json=DOCUMENT).status_code == 202

        found = _search(client, tree, workers, wait_for="d1")
        found = _search(client, tree, workers, wait_for="t23")
        assert found["hits"][0]["event_id"] == "t21"
        assert found["seq"] >= 1
        assert (found["hits"][0]["speaker"], found["degraded"]) == ("Ben", None)

        packed = client.post(
            f"{tree}/context", json={"query": "marathon training", "tokens": 200, "filter": {"speaker": "Ana"}}
        ).json()
        assert "marathon" in packed["text"]
        assert packed["tokens"] <= 200
        explained = client.get(f"{tree}/explain", params={"query": "cello lesson"}).json()
        assert explained["hits"][0]["parts"]
        assert explained["route"]
        [leaf] = client.get(f"{tree}/events/t7/route").json()["leaves"]
        assert leaf["decisions"]

        until(lambda: client.get(tree).json()["pending"] == 0, "summaries are pending", workers)
        before = client.get(tree).json()
        drawn = client.get(f"{tree}/tree", params={"depth": 3}).json()
        past = client.get(f"{tree}/as-of/{before['seq']}").json()
        assert drawn["descendants"] == before["leaves"] == past["leaves"]
        assert before["events"] == len(TURNS) + 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(180) == 0

    with serving(banyan, BANYAN_AUTH="off", **environment) as (client, _):
        until(lambda: client.get("/readyz").json()["status"] == "ready", "not ready after its restart", workers)
        after = client.get(tree).json()
        assert {name: after[name] for name in ("events", "leaves", "nodes", "pending", "seq")} == {
            name: before[name] for name in ("events", "leaves", "nodes", "pending", "seq")
        }
        assert _search(client, tree, workers)["hits"][0]["event_id"] == "t21"
        assert client.get(f"{tree}/tree", params={"depth": 3}).json() == drawn
        repeated = client.post(f"{tree}/turns", json=[TURNS[0], {**TURNS[1], "id": "new"}])
        assert repeated.status_code == 202
        _search(client, tree, workers, wait_for="new")
        until(lambda: client.get(tree).json()["events"] == len(TURNS) + 2, "repeated or lost", workers)

    checked = banyan("check", "user-1", *_store(environment))
    assert checked.code == 0, checked.out + checked.err


def _search(client: httpx.Client, tree: str, workers: Workers | None, **more: object) -> dict[str, Any]:
    """Searched until it is not too early any more: workers may take longer to begin than a question may wait."""
    asked = {"query": "harbour tunnel number 21", "k": 5, "filter": {"kind": "leaf", "speaker": "Ben"}, "wait_seconds": 20, **more}
    answers: list[httpx.Response] = []

    def answered() -> bool:
        answers.append(client.post(f"{tree}/search", json=asked))
        assert answers[-1].status_code in (200, 412), answers[-1].text
        return answers[-1].status_code == 200

    until(answered, f"not found: {asked}", workers)
    value: dict[str, Any] = answers[-1].json()
    return value


def _store(environment: dict[str, str]) -> list[str]:
    return ["--store", environment["BANYAN_STORE"]]
