"""Kafka over TLS with a user and a password: topics, producer and a worker get in; what is wrong is said without the password."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.broker import Broker, BrokerUnavailableError, open_admin
from streams.settings import load
from tests.conftest import started
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import Workers, send, turns, until_events
from tests.servers import kafka
from tests.servers.ports import free_ports

pytestmark = pytest.mark.slow
PASSWORD = "open-sesame-7"
STORE_PASSWORD = "key-store-7"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Settings that get in."""
    folder = tmp_path_factory.mktemp("secured")
    (secure,) = free_ports(1)
    plain_login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "listeners": f"PLAINTEXT://127.0.0.1:{{port}},CONTROLLER://127.0.0.1:{{controller}},SECURE://127.0.0.1:{secure}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{{port}},SECURE://localhost:{secure}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.secure.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
        "listener.name.secure.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        "listener.name.secure.plain.sasl.jaas.config": f'{plain_login} required user_ben="{PASSWORD}";',
        "ssl.keystore.location": str(folder / "keys.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
    }
    if shutil.which("java"):
        _certificate(folder)
    with started(kafka.single(folder / "kafka", properties)) as server:
        alter = [
            "--alter",
            "--add-config",
            f"SCRAM-SHA-512=[password={PASSWORD}]",
            "--entity-type",
            "users",
            "--entity-name",
            "ana",
        ]
        server.node.run("kafka.admin.ConfigCommand", "--bootstrap-server", server.address, *alter)
        yield {
            "BANYAN_BROKER": f"localhost:{secure}",
            "BANYAN_KAFKA_SECURITY_PROTOCOL": "sasl_ssl",
            "BANYAN_KAFKA_USER": "ana",
            "BANYAN_KAFKA_PASSWORD": PASSWORD,
            "BANYAN_KAFKA_CA_FILE": str(folder / "ca.pem"),
        }


def _certificate(folder: Path) -> None:
    """A key with its certificate, and that certificate for those who are to trust it; Java brings the tool."""
    store = ["-keystore", str(folder / "keys.p12"), "-storetype", "PKCS12", "-storepass", STORE_PASSWORD, "-alias", "kafka"]
    made = ["-keyalg", "EC", "-dname", "CN=localhost", "-ext", "san=dns:localhost", "-ext", "bc=ca:true", "-validity", "2"]
    for words in (["-genkeypair", *made], ["-exportcert", "-rfc", "-file", str(folder / "ca.pem")]):
        subprocess.run(["keytool", *words, *store], check=True, capture_output=True)


async def test_records_go_in_over_tls_with_a_password(secured: dict[str, str], tmp_path: Path) -> None:
    environment = variables("", tmp_path) | secured
    settings = load(environment).settings
    await install(settings)
    workers = Workers(environment, tmp_path)
    try:
        worker = workers("worker", "ingest")
        await send(settings, turns(30))
        await until_events(settings, 30)
        worker.signal()
        worker.ends()
        assert PASSWORD not in worker.log.read_text()
        shown = workers("config", "--json")
        shown.ends()
        assert PASSWORD not in shown.log.read_text()
        assert json.loads(shown.log.read_text())["kafka_password"]["value"] == "********"
    finally:
        workers.kill_all()


async def test_the_other_mechanism_is_taken_too(secured: dict[str, str], tmp_path: Path) -> None:
    plain = {"BANYAN_KAFKA_SASL_MECHANISM": "plain", "BANYAN_KAFKA_USER": "ben"}
    admin = await open_admin(Broker.of(load(secured | plain, folder=tmp_path).settings))
    await admin.close()


@pytest.mark.parametrize(
    "wrong",
    [
        {"BANYAN_KAFKA_PASSWORD": "another-word"},
        {"BANYAN_KAFKA_CA_FILE": ""},
        {"BANYAN_KAFKA_SECURITY_PROTOCOL": "ssl", "BANYAN_KAFKA_USER": "", "BANYAN_KAFKA_PASSWORD": ""},
    ],
    ids=["password", "authority", "protocol"],
)
async def test_what_is_wrong_is_said_and_no_password_with_it(
    secured: dict[str, str], tmp_path: Path, wrong: dict[str, str]
) -> None:
    settings = load(secured | wrong, folder=tmp_path).settings
    with pytest.raises(BrokerUnavailableError, match="does not let us in") as caught:
        await open_admin(Broker.of(settings))
    for password in (PASSWORD, "another-word"):
        assert password not in str(caught.value)
