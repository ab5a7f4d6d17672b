"""A producer that keeps what it is given, and fails on demand."""

from __future__ import annotations

from collections.abc import Iterable

from streams.broker import Broker, BrokerUnavailableError
from streams.producing import Message, Producer


class FakeProducer(Producer):
    """
    Sends nowhere.

    Args:
        failures: calls that fail before the first that does not.
    """

    def __init__(self, failures: int = 0) -> None:
        super().__init__(Broker("nowhere:0"))
        self.failures = failures
        self.sent: list[Message] = []

    async def send(self, messages: Iterable[Message]) -> None:
        given = list(messages)
        if given and self.failures:
            self.failures -= 1
            raise BrokerUnavailableError("the fake broker is away")
        self.sent.extend(given)

    def of(self, topic: str) -> list[Message]:
        """What went to one topic."""
        return [message for message in self.sent if message.topic == topic]
