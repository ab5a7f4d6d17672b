"""What every connection to Kafka shares: the address, limits on a message, and vendor errors told in our own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memory.errors import PermanentError, SettingError, TransientError
from streams.events import RECORD_BYTES_MAX
from streams.security import client_options
from streams.setting_tables import KafkaSettings
from streams.settings import Settings

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

MESSAGE_BYTES_MAX = RECORD_BYTES_MAX + 65_536
"""Longest message of a topic of records: the longest record, its key and headers."""
DEAD_LETTER_BYTES_MAX = MESSAGE_BYTES_MAX * 3 // 2
"""A dead letter carries such a message in base64."""


@dataclass(frozen=True, slots=True)
class Broker:
    """Where Kafka is, and how to be let in."""

    address: str
    """Brokers to ask first, `host:port`, several with commas."""
    kafka: KafkaSettings = field(default_factory=KafkaSettings)

    @classmethod
    def of(cls, settings: Settings) -> Broker:
        """The one that the settings name."""
        return cls(settings.broker, settings.kafka)

    def client_options(self) -> dict[str, Any]:
        """
        What every client of aiokafka is given.

        Raises:
            SettingError: the settings of the connection contradict one another, or name a file that cannot be used.
        """
        servers = [each.strip() for each in self.address.split(",")]
        return {"bootstrap_servers": servers, **client_options(self.kafka)}


class BrokerUnavailableError(TransientError):
    """Kafka cannot be reached, or did not take what was sent in time."""


class BrokerRefusedError(PermanentError):
    """Kafka does not allow it: not authorized, or the message is larger than the topic takes."""


@contextmanager
def translated(address: str) -> Iterator[None]:
    """
    Tell the client's errors as ours.

    Raises:
        BrokerUnavailableError, BrokerRefusedError: as their names say.
        SettingError: the address is none.
    """
    from aiokafka import errors  # noqa: PLC0415  # an optional extra

    refusals = (
        errors.AuthenticationFailedError,
        errors.ClusterAuthorizationFailedError,
        errors.GroupAuthorizationFailedError,
        errors.TopicAuthorizationFailedError,
        errors.MessageSizeTooLargeError,
        errors.RecordTooLargeError,
        errors.InvalidReplicationFactorError,
        errors.InvalidPartitionsError,
        errors.PolicyViolationError,
    )
    try:
        yield
    except refusals as error:
        raise BrokerRefusedError(f"Kafka at {address} refuses: {_said(error)}") from error
    except errors.KafkaConnectionError as error:
        raise BrokerUnavailableError(
            f"Kafka at {address} cannot be reached, or does not let us in; is it running, and are BANYAN_BROKER and the security "
            f"settings right? ({_said(error)})"
        ) from error
    except errors.KafkaError as error:
        raise BrokerUnavailableError(f"Kafka at {address}: {_said(error)}") from error
    except ValueError as error:
        raise SettingError(f"broker: {address!r} is not host:port, or several with commas (BANYAN_BROKER): {error}") from error
    except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
        raise BrokerUnavailableError(f"Kafka at {address}: {_said(error)}") from error


async def open_admin(broker: Broker) -> AIOKafkaAdminClient:
    """
    A connected administration client; the caller closes it.

    Raises:
        BrokerUnavailableError: nobody answers there.
        BrokerRefusedError: it does not let us in.
        SettingError: the address or the security settings cannot be used.
    """
    from aiokafka.admin import AIOKafkaAdminClient  # noqa: PLC0415

    options = broker.client_options()
    with translated(broker.address):
        admin = AIOKafkaAdminClient(**options, request_timeout_ms=10_000)
        try:
            await admin.start()
        except BaseException:
            await admin.close()
            raise
        return admin


def need_kafka() -> None:
    """
    Make sure that the optional packages are there.

    Raises:
        SettingError: they are not; says how to get them.
    """
    from importlib.util import find_spec  # noqa: PLC0415

    if find_spec("aiokafka") is None or find_spec("faust") is None:
        raise SettingError("Kafka needs the extra kafka: pip install 'banyan-memory[kafka]'")


def _said(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
