"""A broker and its groups in virtual time, with the framework's own way of acknowledging, which loses records if it may."""

from __future__ import annotations

import asyncio
import itertools
import random
import zlib
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from streams.broker import Broker, BrokerUnavailableError
from streams.producing import Message, Producer

Place = tuple[str, int]
"""Topic and partition."""
COMMIT_EVERY = 2.8  # seconds, Faust's default
POLL, POLL_MAX = 0.1, 3.0  # seconds; whoever waits for long looks less often


@dataclass(slots=True)
class Group:
    """Who reads what, and how far."""

    topics: tuple[str, ...]
    committed: dict[Place, int] = field(default_factory=dict)
    members: list[Member] = field(default_factory=list)


class SimulatedBroker:
    """
    Keeps messages; nothing of it is ever lost.

    Args:
        drawn: decides who gets which partition.
        partitions: of every topic.
    """

    def __init__(self, drawn: random.Random, *, partitions: int) -> None:
        self._drawn = drawn
        self._partitions = partitions
        self.messages: dict[Place, list[Message]] = defaultdict(list)
        self.groups: dict[str, Group] = {}
        self.rebalances = 0

    def places(self, topic: str) -> list[Place]:
        """The partitions of a topic."""
        return [(topic, number) for number in range(self._partitions)]

    def append(self, message: Message) -> None:
        """What a producer does; messages of one key keep their order."""
        number = zlib.crc32(message.key) % self._partitions if message.key else self._drawn.randrange(self._partitions)
        self.messages[message.topic, number].append(message)

    def lag(self, group: str) -> int:
        """Messages that were not acknowledged."""
        found = self.groups[group]
        return sum(len(self.messages[place]) - found.committed.get(place, 0) for t in found.topics for place in self.places(t))

    def group(self, name: str, *topics: str) -> Group:
        """The group of that name, made if it is not there."""
        return self.groups.setdefault(name, Group(topics))

    def share(self, group: Group, among: Sequence[Member]) -> None:
        """
        Share all partitions anew.

        Eagerly, as Faust does: everybody loses everything, and what was fetched and not yet taken is dropped. What an agent has
        taken goes on, and is acknowledged late.
        """
        self.rebalances += 1
        places = [place for topic in group.topics for place in self.places(topic)]
        self._drawn.shuffle(places)
        for member in group.members:
            member.lose_everything()
        for place, member in zip(places, itertools.cycle(among), strict=False):
            member.gain(place, group.committed.get(place))


class Member:
    """
    One process in a group, as Faust has it.

    Args:
        broker, group: where.
        before_commit: is told what is about to be committed: partition, the offset so far, the new one.
        point: something may happen here.
    """

    def __init__(
        self,
        broker: SimulatedBroker,
        group: Group,
        *,
        before_commit: Callable[[Place, int, int], Awaitable[None]],
        point: Callable[[str], Awaitable[None]],
    ) -> None:
        self._broker = broker
        self._group = group
        self._before_commit = before_commit
        self._point = point
        self._positions: dict[Place, int] = {}
        self._committed: dict[Place, int | None] = {}
        self._acked: dict[Place, list[int]] = defaultdict(list)
        group.members.append(self)
        broker.share(group, group.members)

    def lose_everything(self) -> None:
        """The group begins to share anew."""
        self._positions.clear()
        self._committed.clear()
        self._acked.clear()

    def gain(self, place: Place, committed: int | None) -> None:
        """A partition was assigned, to be read from the committed offset."""
        self._positions[place] = committed or 0
        self._committed[place] = committed

    def leave(self) -> None:
        """The broker has noticed that it is gone, or was told so."""
        if self in self._group.members:
            self._group.members.remove(self)
            self.lose_everything()
            if self._group.members:
                self._broker.share(self._group, self._group.members)

    async def noack_take(self, topic: str, most: int) -> AsyncIterator[list[Any]]:
        """Batches of events, taken evenly from all partitions of the topic."""
        pause = POLL
        while True:
            events = self._fetched(topic, most)
            if events:
                # A rebalance may come between: the agent gets what it was about to get all the same.
                await self._point("fetched")
                yield events
                pause = POLL
            else:
                await asyncio.sleep(pause)
                pause = min(2 * pause, POLL_MAX)

    def _fetched(self, topic: str, most: int) -> list[Any]:
        events: list[Any] = []
        held = sorted(place for place in self._positions if place[0] == topic)
        for turn in range(most):
            if held and turn < most and len(events) < most:
                for place in held:
                    messages, position = self._broker.messages[place], self._positions[place]
                    if position < len(messages) and len(events) < most:
                        events.append(self._event(place, position, messages[position]))
                        self._positions[place] += 1
        return events

    def _event(self, place: Place, offset: int, message: Message) -> Any:
        carried = SimpleNamespace(
            topic=place[0],
            partition=place[1],
            offset=offset,
            key=message.key,
            value=message.value,
            headers=list(message.headers),
            timestamp=0.0,
        )
        return SimpleNamespace(message=carried, ack=lambda: self._ack(place, offset))

    def _ack(self, place: Place, offset: int) -> None:
        # faust/transport/consumer.py, `ack`: it does not ask whether the partition is still held.
        committed = self._committed.get(place)
        if (committed is None or offset >= committed) and offset not in self._acked[place]:
            self._acked[place].append(offset)

    async def commit_now_and_then(self) -> None:
        """What Faust's own task does."""
        while True:
            await asyncio.sleep(COMMIT_EVERY)
            await self.commit()

    async def commit(self) -> None:
        """Commit what may be, by Faust's rule: past what is not acknowledged at the head where nothing is committed yet."""
        for place in list(self._acked):
            offset = self._committable(place)
            if offset is None or place not in self._positions:
                continue
            before = self._group.committed.get(place, 0)
            if offset > before:
                await self._before_commit(place, before, offset)
            await self._point("commit offsets")
            if place in self._positions and self in self._group.members:
                self._group.committed[place] = max(before, offset)
                self._committed[place] = offset

    def _committable(self, place: Place) -> int | None:
        # faust/transport/consumer.py, `_new_offset`.
        acked = self._acked[place]
        if not acked:
            return None
        acked.sort()
        committed = self._committed.get(place)
        if committed and min(acked) - committed > 1:
            return None
        last = acked.pop(0)
        while acked and acked[0] == last + 1:
            last = acked.pop(0)
        return last + 1


class SimulatedProducer(Producer):
    """
    Sends to the simulated broker.

    Args:
        broker: where to.
        point: something may happen here.
        fails: whether this call is to fail, after some of the messages or all of them have arrived.
        drawn: how many.
    """

    def __init__(
        self,
        broker: SimulatedBroker,
        *,
        point: Callable[[str], Awaitable[None]],
        fails: Callable[[], bool],
        drawn: random.Random,
    ) -> None:
        super().__init__(Broker("nowhere:0"))
        self._to = broker
        self._point = point
        self._fails = fails
        self._drawn = drawn

    async def send(self, messages: Iterable[Message]) -> None:
        given = list(messages)
        if not given:
            return
        await self._point("before send")
        arrived = self._drawn.randint(0, len(given)) if self._fails() else len(given)
        for message in given[:arrived]:
            self._to.append(message)
        await self._point("after send")
        if arrived < len(given):
            raise BrokerUnavailableError("the simulated broker is away")
