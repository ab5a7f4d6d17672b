"""Redis as operators have it: a user of its own with the rights of docs/redis.md and no others, over TLS."""

from __future__ import annotations

import contextlib
import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.conftest import started
from tests.e2e.commands import Banyan
from tests.servers import redis
from tests.servers.ports import free_ports

pytestmark = pytest.mark.slow
PASSWORD = "open-sesame-9"
ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "memory" / "adapters" / "redis" / "scripts"


@dataclass(frozen=True)
class Secured:
    """A server that lets in one user only."""

    tls: int
    authority: Path

    @property
    def address(self) -> str:
        return f"rediss://localhost:{self.tls}/0?ssl_ca_certs={self.authority}"


def documented_rights() -> list[list[str]]:
    """Of docs/redis.md: the keys, what processes call, what scripts call, what RediSearch needs, what clusters do."""
    section = (ROOT / "docs" / "redis.md").read_text(encoding="utf-8").split("## Access", 1)[1]
    return [rights.split() for rights in re.findall(r"`((?:\+|~)[^`]*)`", " ".join(section.split()))]


def certificate(folder: Path) -> None:
    """A key with its certificate for `localhost`, which is its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(made.public_bytes(pem))
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))


@contextlib.contextmanager
def served(folder: Path) -> Iterator[Secured]:
    certificate(folder)
    (tls,) = free_ports(1)
    pair = ["--tls-cert-file", str(folder / "ca.pem"), "--tls-key-file", str(folder / "key.pem")]
    secure = ["--tls-port", str(tls), *pair, "--tls-ca-cert-file", str(folder / "ca.pem"), "--tls-auth-clients", "no"]
    server = redis.RedisServer(folder / "data", secure)
    try:
        server.start()
        keys, processes, scripts, *_ = documented_rights()
        assert server.say("ACL", "SETUSER", "banyan", "on", f">{PASSWORD}", *keys, *processes, *scripts) == b"+OK"
        assert server.say("ACL", "SETUSER", "default", "off") == b"+OK"
        yield Secured(tls, folder / "ca.pem")
    finally:
        server.stop()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with started(served(tmp_path_factory.mktemp("secured"))) as server:
        yield server


def test_a_user_with_the_documented_rights_can_do_everything(
    secured: Secured, banyan: Banyan, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("BANYAN_STORE", secured.address)
    monkeypatch.setenv("BANYAN_REDIS_USER", "banyan")
    monkeypatch.setenv("BANYAN_REDIS_PASSWORD", PASSWORD)
    lines = (
        f'{{"id":"e{number}","text":"the {word} is number {number}"}}' for number, word in enumerate(["oak", "elm", "ash"] * 7)
    )
    (tmp_path / "turns.jsonl").write_text("\n".join(lines))
    assert banyan("ingest", "turns.jsonl", "--tree", "t", "--json").value["accepted"] == 21
    assert banyan("search", "t", "number 7", "-k", "1", "--json").value["hits"][0]["event_id"] == "e7"
    assert banyan("stats", "t", "--json").value["pending"] == 0
    assert banyan("forget", "t", "--event", "e7", "--json").code == 0
    assert banyan("check", "t", "--json").value["violations"] == []
    assert "t" in banyan("tree").out
    assert banyan("export", "t", "-o", "t.jsonl", "--json").code == 0
    assert banyan("import", "t.jsonl", "--tree", "copy", "--json").code == 0


@pytest.mark.parametrize(
    ("wrong", "code", "said"),
    [
        pytest.param({"BANYAN_REDIS_PASSWORD": "another-word"}, 2, "the user or the password", id="password"),
        pytest.param({"BANYAN_REDIS_USER": "nobody"}, 2, "the user or the password", id="user"),
        pytest.param({"BANYAN_REDIS_PREFIX": "other"}, 2, "docs/redis.md lists the commands", id="keys of others"),
        pytest.param({"BANYAN_STORE": "rediss://localhost:{tls}/0"}, 4, "ertificate", id="authority"),
        pytest.param({"BANYAN_STORE": "rediss://127.0.0.1:{tls}/0?ssl_ca_certs={ca}"}, 4, "ertificate", id="name"),
    ],
)
def test_what_is_wrong_is_said_without_the_password(
    secured: Secured, banyan: Banyan, monkeypatch: pytest.MonkeyPatch, wrong: dict[str, str], code: int, said: str
) -> None:
    given = {"BANYAN_STORE": secured.address, "BANYAN_REDIS_USER": "banyan", "BANYAN_REDIS_PASSWORD": PASSWORD}
    monkeypatch.setenv("BANYAN_REDIS_PATIENCE", "0")
    for name, value in (given | wrong).items():
        monkeypatch.setenv(name, value.format(tls=secured.tls, ca=secured.authority))
    ran = banyan("stats", "t")
    assert (ran.code, said in ran.err) == (code, True), ran.err
    assert PASSWORD not in ran.err
    assert "another-word" not in ran.err


def test_every_command_that_a_script_calls_is_documented() -> None:
    called = {
        word.lower()
        for file in SCRIPTS.glob("*.lua")
        for word in re.findall(r"(?:redis\.call|many)\('([A-Z.]+)'", file.read_text())
    }
    assert len(called) > 30
    assert called <= {right.lstrip("+") for rights in documented_rights() for right in rights}
