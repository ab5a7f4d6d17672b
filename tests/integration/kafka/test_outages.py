"""The broker goes away in the middle; Faust's own command."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streams.settings import load
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import LIMIT, ROOT, Workers, assert_whole, events_in, send, turns, until_events, until_fresh
from tests.servers.kafka import KafkaServer

pytestmark = pytest.mark.slow
LOG_LINES_MAX, EACH_SECOND = 300, 15
"""Of a worker that lost its broker, and for each second that it was away; without limits it is thousands a second."""


async def test_the_broker_is_killed_and_comes_back(server: KafkaServer, tmp_path: Path) -> None:
    environment = variables(server.address, tmp_path)
    settings = load(environment).settings
    await install(settings)
    workers = Workers(environment, tmp_path)
    try:
        ingest, summaries = workers("worker", "ingest", BANYAN_WORKER_BATCH_RECORDS="20"), workers("worker", "summaries")
        await send(settings, turns(500))
        await until_events(settings, 60)
        gone = time.monotonic()
        await asyncio.to_thread(server.kill)
        await asyncio.sleep(8)
        assert ingest.process.poll() is None
        assert summaries.process.poll() is None
        await asyncio.to_thread(server.start)
        lines_max = LOG_LINES_MAX + EACH_SECOND * (time.monotonic() - gone)
        await send(settings, turns(100, first=500))
        await until_events(settings, 600)
        await until_fresh(settings)
        await assert_whole(settings, 600)
        for worker in (ingest, summaries):
            worker.signal()
            worker.ends()
            assert len(worker.lines()) - len(worker.events("batch")) - len(worker.events("summary")) < lines_max
    finally:
        workers.kill_all()


async def test_a_worker_waits_for_a_broker_that_comes_later(server: KafkaServer, tmp_path: Path) -> None:
    environment = variables(server.address, tmp_path)
    settings = load(environment).settings
    await install(settings)
    await send(settings, turns(5))
    await asyncio.to_thread(server.stop)
    workers = Workers(environment, tmp_path)
    try:
        impatient = workers("worker", "ingest", BANYAN_WORKER_PATIENCE="1s")
        impatient.ends(4)
        assert "cannot be reached" in impatient.log.read_text()
        worker = workers("worker", "ingest", BANYAN_WORKER_PATIENCE="5m")
        worker.until("waiting")
        await asyncio.to_thread(server.start)
        worker.until("ready")
        await until_events(settings, 5)
    finally:
        workers.kill_all()


async def test_faust_runs_the_same_app(broker: str, tmp_path: Path) -> None:
    environment = variables(broker, tmp_path)
    settings = load(environment).settings
    await install(settings)
    await send(settings, turns(5))
    process = faust(environment, tmp_path)
    try:
        await until_events(settings, 5)
        assert process.poll() is None
        process.terminate()
        assert await asyncio.to_thread(process.wait, LIMIT) == 0
    finally:
        process.kill()
        process.wait()
    assert await events_in(settings) == 5


def faust(environment: dict[str, str], folder: Path) -> subprocess.Popen[bytes]:
    """Faust's command over the same app."""
    with (folder / "faust.log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "faust", "-A", "streams.app", "worker", "--without-web"],
            cwd=folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT), **environment},
            stdout=log,
            stderr=log,
        )
