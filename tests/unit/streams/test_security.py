"""How connections to Kafka are secured: what goes to the client and to Faust, what is refused, and that no password is shown."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from memory.errors import SettingError
from streams.broker import Broker
from streams.security import client_options, faust_credentials
from streams.settings import Settings, load

PASSWORD = "s3cret-word"
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
        ({"SECURITY_PROTOCOL": "ssl", "CERTIFICATE_FILE": "/nowhere/me.pem"}, "/nowhere/me.pem and its key cannot be used"),
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
