"""Kafka over TLS, with users who may do what docs/streams.md says and nothing else; no message shows a password."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka.protocol.admin import CreateAclsRequest

from streams.broker import Broker, BrokerUnavailableError, open_admin
from streams.settings import Settings, load
from tests.conftest import started
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import (
    LIMIT,
    ROOT,
    Workers,
    send,
    send_raw,
    turns,
    until_events,
    until_fresh,
)
from tests.servers import kafka
from tests.servers.ports import free_ports

pytestmark = pytest.mark.slow
PASSWORD = "open-sesame-7"
STORE_PASSWORD = "key-store-7"
USERS = ("produce", "ingest", "summaries")
"""Who may do nothing but what each test allows."""
TOPIC, GROUP, LITERAL, READ, WRITE, ALLOW = 2, 3, 3, 3, 4, 3
"""Of Kafka's protocol, which the client has no names for."""


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
        # Who comes by the other listener may do everything, a user what was allowed.
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:ana;User:ben",
        "ssl.keystore.location": str(folder / "keys.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": STORE_PASSWORD,
    }
    if shutil.which("java"):
        _certificate(folder)
    with started(kafka.single(folder / "kafka", properties)) as server:
        made = ["--alter", "--add-config", f"SCRAM-SHA-512=[password={PASSWORD}]"]
        for user in ("ana", *USERS):
            named = ["--entity-type", "users", "--entity-name", user]
            server.node.run("kafka.admin.ConfigCommand", "--bootstrap-server", server.address, *made, *named)
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


def documented_rights() -> dict[str, tuple[list[str], list[str], list[str]]]:
    """By command, as docs/streams.md has it: topics to read, topics to write, groups to read."""
    page = (ROOT / "docs" / "streams.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `banyan (produce|worker \w+)` \| (.*)\| (.*)\| (.*)\|$", page, re.MULTILINE)
    named = {row[0].rpartition(" ")[2]: [re.findall(r"`([a-z-]+)`", cell) for cell in row[1:]] for row in rows}
    return {user: (topics_read, written, groups) for user, (topics_read, written, groups) in named.items()}


async def allow(settings: Settings, user: str, rights: tuple[list[str], list[str], list[str]]) -> None:
    """Let a user do that, and nothing else."""
    prefix, (topics_read, written, groups) = settings.kafka.prefix, rights
    wanted = [(TOPIC, f"{prefix}.{name}", READ) for name in topics_read]
    wanted += [(TOPIC, f"{prefix}.{name}", WRITE) for name in written]
    wanted += [(GROUP, name.replace("banyan", prefix, 1), READ) for name in groups]
    admin = await open_admin(Broker.of(settings))
    try:
        for resource, name, operation in wanted:
            request = CreateAclsRequest(resource, name, LITERAL, f"User:{user}", "*", operation, ALLOW)
            answer: Any = await admin._send_request(request)
            assert not answer.creation_responses[0][0], answer
    finally:
        await admin.close()


async def test_with_the_documented_rights_each_can_do_its_work(secured: dict[str, str], tmp_path: Path) -> None:
    environment = variables("", tmp_path) | secured
    settings = load(environment).settings
    await install(settings)
    rights = documented_rights()
    assert set(rights) == set(USERS)
    for user, own in rights.items():
        await allow(settings, user, own)
    lines = "".join(f'{{"tree":"t","id":"e{number}","text":"the harbour tunnel, number {number}"}}\n' for number in range(30))
    (tmp_path / "turns.jsonl").write_text(lines, encoding="utf-8")
    workers = Workers(environment, tmp_path)
    try:
        await send_raw(settings, f"{settings.kafka.prefix}.turns", b"no record")
        at_work = [workers("worker", kind, BANYAN_KAFKA_USER=kind) for kind in ("ingest", "summaries")]
        workers("produce", "turns.jsonl", BANYAN_KAFKA_USER="produce").ends()
        await until_events(settings, 30)
        await until_fresh(settings)
        for worker in at_work:
            worker.until("partitions")  # its look at its group is allowed too
            worker.signal()
            worker.ends()
        assert dead_letters(workers) == ["record"]
    finally:
        workers.kill_all()


@pytest.mark.parametrize("lacking", ["group", "summaries"])
async def test_a_right_that_is_lacking_ends_the_worker_which_names_it(
    secured: dict[str, str], tmp_path: Path, lacking: str
) -> None:
    environment = variables("", tmp_path) | secured
    settings = load(environment).settings
    await install(settings)
    topics_read, written, groups = documented_rights()["ingest"]
    written = [name for name in written if name != lacking]
    await allow(settings, "ingest", (topics_read, written, [] if lacking == "group" else groups))
    await send(settings, turns(5))
    workers = Workers(environment, tmp_path)
    try:
        worker = workers("worker", "ingest", BANYAN_KAFKA_USER="ingest")
        assert worker.process.wait(LIMIT) in (4, 75), worker.log.read_text()[-3000:]
        said = worker.log.read_text()
        assert "AuthorizationFailed" in said
        assert PASSWORD not in said
        assert dead_letters(workers) == []
    finally:
        workers.kill_all()


def dead_letters(workers: Workers) -> list[str]:
    """Their errors, as somebody sees them who may do everything."""
    listed = workers("dead-letters", "list", "--json")
    listed.ends()
    return [letter["error"] for line in listed.log.read_text().splitlines() for letter in [json.loads(line)] if "error" in letter]
