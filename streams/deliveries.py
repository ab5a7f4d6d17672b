"""One message as Kafka gave it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A message and where it stands; may come more than once."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: float = 0.0
    """Seconds since 1970, as the producer or the broker put it."""

    @property
    def place(self) -> str:
        """For messages to people."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True, slots=True)
class Later:
    """A message that is to be dealt with again, and not to be acknowledged before."""

    delivery: Delivery
    seconds: float
    """From now."""


def delivery(event: Any) -> Delivery:
    """What a Faust event carries."""
    message = event.message
    headers = message.headers or ()
    pairs = headers.items() if isinstance(headers, dict) else headers
    return Delivery(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=tuple((name, value) for name, value in pairs),
        timestamp=message.timestamp or 0.0,
    )
