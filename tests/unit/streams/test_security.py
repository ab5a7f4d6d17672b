"""How connections to Kafka are secured: what goes to the client and to Faust, what is refused, and that no password is shown."""

from __future__ import annotations

import datetime as dt
import os
import pty
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from memory.errors import SettingError
from streams.broker import Broker
from streams.security import client_options, faust_credentials
from streams.settings import Settings, load

PASSWORD = "s3cret-word"
ROOT = Path(__file__).parents[3]
SASL = {"BANYAN_KAFKA_USER": "ana", "BANYAN_KAFKA_PASSWORD": PASSWORD}


def given(**variables: str) -> Settings:
    return load({f"BANYAN_KAFKA_{name}": value for name, value in variables.items()}, folder=Path("/nowhere")).settings


def test_plaintext_is_the_default() -> None:
    settings = given()
    assert client_options(settings.kafka) == {"security_protocol": "PLAINTEXT"}
    assert faust_credentials(settings.kafka) is None


def test_the_address_is_a_list_of_servers() -> None:
    assert Broker("a:1, b:2").client_options()["bootstrap_servers"] == ["a:1", "b:2"]


@pytest.mark.parametrize(("protocol", "encrypted"), [("sasl_plaintext", False), ("SASL_SSL", True)])
def test_user_and_password_go_to_client_and_faust(protocol: str, encrypted: bool) -> None:
    kafka = given(SECURITY_PROTOCOL=protocol, SASL_MECHANISM="SCRAM-SHA-256", USER="ana", PASSWORD=PASSWORD).kafka
    options: Any = client_options(kafka)
    assert (options["sasl_mechanism"], options["sasl_plain_username"]) == ("SCRAM-SHA-256", "ana")
    assert options["sasl_plain_password"] == PASSWORD
    assert ("ssl_context" in options) is encrypted
    credentials = faust_credentials(kafka)
    assert credentials.protocol.value == protocol.upper()
    assert credentials.mechanism.value == "SCRAM-SHA-256"
    assert (credentials.username, credentials.password) == ("ana", PASSWORD)
    assert PASSWORD not in repr(kafka) + repr(credentials)


def test_certificates_and_names_are_always_checked() -> None:
    context = client_options(given(SECURITY_PROTOCOL="ssl").kafka)["ssl_context"]
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert faust_credentials(given(SECURITY_PROTOCOL="ssl").kafka).protocol.value == "SSL"


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"SECURITY_PROTOCOL": "sasl_ssl"}, "needs BANYAN_KAFKA_USER and BANYAN_KAFKA_PASSWORD"),
        ({"SECURITY_PROTOCOL": "sasl_ssl", "USER": "ana"}, "needs BANYAN_KAFKA_USER and BANYAN_KAFKA_PASSWORD"),
        ({"USER": "ana", "PASSWORD": PASSWORD}, "have no effect with BANYAN_KAFKA_SECURITY_PROTOCOL=plaintext"),
        ({"CA_FILE": "/ca.pem"}, "have no effect with BANYAN_KAFKA_SECURITY_PROTOCOL=plaintext"),
        ({"SECURITY_PROTOCOL": "ssl", "CA_FILE": "/nowhere/ca.pem"}, "/nowhere/ca.pem cannot be used: No such file"),
        (
            {"SECURITY_PROTOCOL": "ssl", "CERTIFICATE_FILE": "/nowhere/me.pem"},
            "/nowhere/me.pem and its key, which must have no passphrase, cannot be used",
        ),
        ({"SECURITY_PROTOCOL": "ssl", "KEY_FILE": "/nowhere/me.key"}, "without BANYAN_KAFKA_CERTIFICATE_FILE"),
    ],
)
def test_what_would_be_without_effect_is_refused(variables: dict[str, str], said: str) -> None:
    with pytest.raises(SettingError) as caught:
        client_options(given(**variables).kafka)
    assert said in str(caught.value)
    assert PASSWORD not in str(caught.value)


def test_an_unknown_protocol_is_refused_with_those_there_are() -> None:
    with pytest.raises(SettingError, match="one of plaintext, ssl, sasl_plaintext, sasl_ssl"):
        given(SECURITY_PROTOCOL="tls")


def test_a_key_with_a_passphrase_is_refused_and_nobody_asked_for_it(tmp_path: Path) -> None:
    """In a session with a terminal, where OpenSSL would ask."""
    key = ec.generate_private_key(ec.SECP256R1())
    locked = serialization.BestAvailableEncryption(PASSWORD.encode())
    name, now, pem = x509.Name([]), dt.datetime.now(dt.UTC), serialization.Encoding.PEM
    built = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now + dt.timedelta(days=1)).sign(key, hashes.SHA256())
    path = tmp_path / "me.pem"
    path.write_bytes(built.public_bytes(pem) + key.private_bytes(pem, serialization.PrivateFormat.PKCS8, locked))
    variables = {"BANYAN_KAFKA_SECURITY_PROTOCOL": "ssl", "BANYAN_KAFKA_CERTIFICATE_FILE": str(path)}
    program = (
        "from streams.security import client_options; from streams.settings import load; "
        f"client_options(load({variables!r}).settings.kafka)"
    )
    parent, child = pty.openpty()
    try:
        ran = subprocess.run(
            [sys.executable, "-c", f"import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); {program}"],
            stdin=child,
            capture_output=True,
            start_new_session=True,
            timeout=120,
            check=False,
            cwd=ROOT,
        )
    finally:
        os.close(parent)
        os.close(child)
    assert b"which must have no passphrase" in ran.stderr, ran.stderr
