"""A broker for the run, and topics of its own for each test."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.broker import Broker, open_admin
from streams.settings import Settings, load
from streams.topics import create, topics
from tests.conftest import served
from tests.integration.kafka.workers import Workers
from tests.servers import kafka


@pytest.fixture(scope="session")
def broker_server(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.KafkaServer]:
    """One broker for the whole run: tests use prefixes of their own."""
    folder = tmp_path_factory.mktemp("kafka")
    yield from served(pytestconfig, "Kafka", lambda: kafka.single(folder))


@pytest.fixture(scope="session")
def broker(request: pytest.FixtureRequest) -> str:
    """The address of a broker: the one that BANYAN_TEST_KAFKA names, or one that is started."""
    if (given := kafka.given()) is not None:
        return given
    server: kafka.KafkaServer = request.getfixturevalue("broker_server")
    return server.address


@pytest.fixture
def server(pytestconfig: pytest.Config, tmp_path: Path) -> Iterator[kafka.KafkaServer]:
    """A broker of the test's own, to be ended and started again."""
    yield from served(pytestconfig, "Kafka", lambda: kafka.single(tmp_path / "kafka"))


@pytest.fixture
def environment(broker: str, tmp_path: Path) -> dict[str, str]:
    """Settings of a test's own installation, as variables."""
    return variables(broker, tmp_path)


@pytest.fixture
def settings(environment: dict[str, str]) -> Settings:
    """The same as values."""
    return load(environment).settings


@pytest.fixture
async def installed(settings: Settings) -> Settings:
    """The same, with topics."""
    await install(settings)
    return settings


@pytest.fixture
def workers(environment: dict[str, str], tmp_path: Path) -> Iterator[Workers]:
    """Starts workers; those that are left at the end are killed."""
    made = Workers(environment, tmp_path)
    yield made
    made.kill_all()


def variables(broker: str, folder: Path) -> dict[str, str]:
    """Settings that share nothing with another test."""
    return {
        "BANYAN_BROKER": broker,
        "BANYAN_EMBEDDER": "hashing",
        "BANYAN_STORE": f"sqlite:///{folder}/memory",
        "BANYAN_KAFKA_PREFIX": f"test-{os.urandom(4).hex()}",
        "BANYAN_KAFKA_PARTITIONS": "4",
        "BANYAN_KAFKA_SESSION_TIMEOUT": "6s",
        "BANYAN_WORKER_GRACE": "60s",
        "BANYAN_LOG_FORMAT": "json",
    }


async def install(settings: Settings) -> None:
    """Make the topics."""
    admin = await open_admin(Broker.of(settings))
    try:
        await create(admin, topics(settings.kafka).all, settings.kafka, settings.broker)
    finally:
        await admin.close()
