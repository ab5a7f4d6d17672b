"""Messages that are dealt with in any order and acknowledged in order: of each partition, only what stands at its head."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from streams.deliveries import Delivery


@dataclass(slots=True, eq=False)
class Message:
    """One message in hand."""

    delivery: Delivery
    acknowledge: Callable[[], None]
    settled: bool = False
    """Whether everything that it causes is durable."""


class Standing:
    """
    Messages in hand, by partition, in order of arrival.

    Faust commits past a held record at the head of a partition, so that nothing may be acknowledged before what stands before it.
    """

    def __init__(self) -> None:
        self._order: dict[tuple[str, int], deque[Message]] = {}
        self.count = 0
        """Messages that are not acknowledged."""

    def stand(self, message: Message) -> None:
        """A message has come; to be called for each in order of arrival, before anything else is done with it."""
        partition = (message.delivery.topic, message.delivery.partition)
        self._order.setdefault(partition, deque()).append(message)
        self.count += 1

    def oldest(self) -> float | None:
        """When the oldest of those at the heads was sent, in seconds since 1970; any thread may ask."""
        sent = []
        for order in list(self._order.values()):
            with suppress(IndexError):  # the loop goes on meanwhile
                sent.append(order[0].delivery.timestamp)
        return min(sent, default=None)

    def settle(self, messages: Iterable[Message]) -> Sequence[Delivery]:
        """
        Messages have been dealt with: acknowledge what stands at the head of each partition and is settled.

        Returns:
            What was acknowledged, in order within each partition.
        """
        partitions = set()
        for message in messages:
            message.settled = True
            partitions.add((message.delivery.topic, message.delivery.partition))
        done: list[Delivery] = []
        for partition in partitions:
            order = self._order[partition]
            while order and order[0].settled:
                message = order.popleft()
                message.acknowledge()
                done.append(message.delivery)
        self.count -= len(done)
        return done
