"""How connections to Kafka are secured: what the settings say, in the words of the client and of Faust."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from memory.errors import SettingError

if TYPE_CHECKING:
    from streams.setting_tables import KafkaSettings

_VARIABLE = "BANYAN_KAFKA_SECURITY_PROTOCOL"


def client_options(kafka: KafkaSettings) -> Mapping[str, Any]:
    """
    The options of an aiokafka client.

    Raises:
        SettingError: the settings contradict one another, or a file of certificates or keys cannot be used.
    """
    _check(kafka)
    options: dict[str, Any] = {"security_protocol": kafka.security_protocol.upper()}
    if _encrypted(kafka):
        options["ssl_context"] = _context(kafka)
    if _with_password(kafka):
        assert kafka.password is not None, "checked above"
        options["sasl_mechanism"] = kafka.sasl_mechanism.upper()
        options["sasl_plain_username"] = kafka.user
        options["sasl_plain_password"] = kafka.password.reveal()
    return options


def faust_credentials(kafka: KafkaSettings) -> Any:
    """
    The credentials of a Faust app; None for a plaintext connection.

    Raises:
        SettingError: as `client_options`.
    """
    import faust  # noqa: PLC0415  # an optional extra, and half a second

    options = client_options(kafka)
    context = options.get("ssl_context")
    if "sasl_mechanism" in options:
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context)


def _encrypted(kafka: KafkaSettings) -> bool:
    return kafka.security_protocol in ("ssl", "sasl_ssl")


def _with_password(kafka: KafkaSettings) -> bool:
    return kafka.security_protocol in ("sasl_plaintext", "sasl_ssl")


def _check(kafka: KafkaSettings) -> None:
    """Refuse what would be silently without effect: a password that is not asked for is a connection that is not protected."""
    if _with_password(kafka) and not (kafka.user and kafka.password):
        raise SettingError(f"{_VARIABLE}={kafka.security_protocol} needs BANYAN_KAFKA_USER and BANYAN_KAFKA_PASSWORD")
    if not _with_password(kafka) and (kafka.user or kafka.password):
        raise SettingError(f"a user and password have no effect with {_VARIABLE}={kafka.security_protocol}; set sasl_ssl")
    if not _encrypted(kafka) and (kafka.ca_file or kafka.certificate_file or kafka.key_file):
        raise SettingError(f"certificates have no effect with {_VARIABLE}={kafka.security_protocol}; set ssl or sasl_ssl")
    if kafka.key_file and not kafka.certificate_file:
        raise SettingError("BANYAN_KAFKA_KEY_FILE is set without BANYAN_KAFKA_CERTIFICATE_FILE")


def _context(kafka: KafkaSettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if kafka.ca_file is None else str(kafka.ca_file))
    except OSError as error:
        raise SettingError(f"BANYAN_KAFKA_CA_FILE={kafka.ca_file} cannot be used: {_said(error)}") from error
    if kafka.certificate_file is not None:
        try:
            # With no password at all a key that has one would be asked for on the terminal, and the process wait for an answer.
            context.load_cert_chain(kafka.certificate_file, kafka.key_file, password="")
        except OSError as error:
            raise SettingError(
                f"BANYAN_KAFKA_CERTIFICATE_FILE={kafka.certificate_file} and its key, which must have no passphrase, cannot be "
                f"used: {_said(error)}"
            ) from error
    return context


def _said(error: OSError) -> str:
    return error.strerror or type(error).__name__
