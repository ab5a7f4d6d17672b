"""
What a worker has done and what waits for it, by topic and partition: written by its event loop, read by whoever judges it.

A worker that was thrown out of its group, whose loop hangs, or whose client has lost its thread looks healthy from outside and does
nothing. So it is judged by records: those that wait on the broker, those that the client has fetched and no agent has been given,
those in hand, and those acknowledged whose offsets are not committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from streams.deliveries import Delivery

PASSED_OVER_BATCHES = 100
"""A fetched record that so many batches of its topic have passed over, for the whole of the stall, is lost to its agent: batches
take evenly from all partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a worker no longer works; seconds."""

    stall: float
    """For which something may wait that nothing in this process takes on."""
    in_hand: float
    """For which something may be in hand and nothing be acknowledged; less than what the client leaves its group after."""
    outcast: float
    """For which the broker may not have this worker in its group."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionLook:
    """One partition that this worker holds, as found by a look at the client and the broker. Offsets."""

    topic: str
    partition: int
    end: int
    """After the last record on the broker."""
    position: int
    """The next that the client gives out."""
    delivered: int | None
    """The last that the client gave to Faust; None when none since the assignment."""
    committed: int | None
    """The group's, as the broker has it; None where there is none."""

    @property
    def lag(self) -> int:
        """Offsets from what is committed to the end; a marker of a transaction counts too, though it is no record."""
        return max(0, self.end - (self.committed or 0))


@dataclass(slots=True)
class TopicProgress:
    """One topic."""

    taken: int = 0
    acknowledged: int = 0
    batches: int = 0
    in_hand_since: float | None = None
    """Monotonic time since when something has been in hand and nothing was acknowledged."""
    waiting: int = 0
    """Records that wait in the partitions held, as of the last look."""
    waiting_since: float | None = None
    """Monotonic time since when records have waited while none was in hand."""

    @property
    def in_hand(self) -> int:
        """Taken and not yet acknowledged."""
        return self.taken - self.acknowledged


@dataclass(slots=True)
class PartitionProgress:
    """One partition; forgotten when it is another worker's."""

    taken: int = -1
    """The last offset that an agent was given."""
    acknowledged: int = -1
    look: PartitionLook | None = None
    passed_since: float | None = None
    """Monotonic time since when a record that the client gave to Faust has waited and none of the partition was taken."""
    passed_at: int = 0
    """Batches of the topic, then."""
    uncommitted_since: float | None = None
    """Monotonic time since when what was acknowledged has not been committed, and nothing of it was."""

    @property
    def stuck(self) -> int:
        """Offsets that the client has given to Faust and that no agent was given."""
        look = self.look
        if look is None or look.delivered is None:
            return 0
        # What others committed while they had the partition waits no more, whatever was delivered here before.
        return max(0, look.delivered + 1 - max(self.taken + 1, look.committed or 0))


@dataclass(slots=True)
class Progress:
    """A worker."""

    topics: dict[str, TopicProgress] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionProgress] = field(default_factory=dict)
    """Those held, and those that records came from since the last look."""
    delivered: dict[tuple[str, int], int] = field(default_factory=dict)
    """By topic and partition, the last offset that the client gave to Faust."""
    member: bool | None = None
    """Whether the broker has this worker in its group; None while that is not known."""
    outcast_since: float | None = None
    """Monotonic time since when it has not."""
    rebalancing_since: float | None = None
    """Monotonic time since when the group has been sharing its partitions anew."""
    rebalances: int = 0
    """Times that it did so, since the process started."""
    beats: int = 0
    """Signs of life of the loop."""

    @property
    def records(self) -> int:
        """Acknowledged, of all topics."""
        return sum(topic.acknowledged for topic in list(self.topics.values()))

    @property
    def in_hand(self) -> int:
        """Taken and not yet acknowledged, of all topics."""
        return sum(topic.in_hand for topic in list(self.topics.values()))

    @property
    def held(self) -> dict[str, list[int]]:
        """Partitions that are this worker's, by topic, as of the last look."""
        found: dict[str, list[int]] = {}
        states = list(self.partitions.items())
        for (topic, partition), state in sorted(states, key=lambda item: item[0]):
            if state.look is not None:
                found.setdefault(topic, []).append(partition)
        return found

    def taken(self, now: float, deliveries: Sequence[Delivery]) -> None:
        """An agent was given a batch."""
        for topic, count in self._each(deliveries, "taken"):
            topic.taken += count
            topic.batches += 1
            topic.waiting_since = None
            if topic.in_hand_since is None:
                topic.in_hand_since = now

    def done(self, now: float, deliveries: Sequence[Delivery]) -> None:
        """Records were acknowledged."""
        for topic, count in self._each(deliveries, "acknowledged"):
            topic.acknowledged += count
            topic.waiting_since = None
            topic.in_hand_since = now if topic.in_hand else None

    def looked(self, now: float, looks: Iterable[PartitionLook], *, member: bool | None = None) -> None:
        """The partitions that are held were looked at, and the group."""
        found = {(look.topic, look.partition): look for look in looks}
        for gone in self.partitions.keys() - found.keys():
            del self.partitions[gone]
        waiting: dict[str, int] = dict.fromkeys(self.topics, 0)
        for place, look in found.items():
            state = self.partitions.setdefault(place, PartitionProgress())
            topic = self.topics.setdefault(look.topic, TopicProgress())
            self._partition(now, state, look, topic.batches)
            undelivered = max(0, look.end - look.position)
            waiting[look.topic] = waiting.get(look.topic, 0) + undelivered + state.stuck
        for name, count in waiting.items():
            topic = self.topics[name]
            topic.waiting = count
            if not count or topic.in_hand:
                topic.waiting_since = None
            elif topic.waiting_since is None:
                topic.waiting_since = now
        self.member = member
        if member is not False:
            self.outcast_since = None
        elif self.outcast_since is None:
            self.outcast_since = now

    def unseen(self) -> None:
        """The broker did not answer: nothing can be said, and this worker is not to blame."""
        self.member = None
        self.outcast_since = self.rebalancing_since = None
        for topic in list(self.topics.values()):
            topic.waiting_since = None
        for state in list(self.partitions.values()):
            state.passed_since = state.uncommitted_since = None

    def grouped(self, now: float, *, rebalancing: bool, count: int = 0) -> None:
        """Whether the group shares its partitions anew, and how often it has."""
        self.rebalances = count
        if not rebalancing:
            self.rebalancing_since = None
        elif self.rebalancing_since is None:
            self.rebalancing_since = now

    def verdict(self, now: float, limits: Limits) -> str | None:
        """Why this worker works no more, or None."""
        return next(self._reasons(now, limits), None)

    def _reasons(self, now: float, limits: Limits) -> Iterator[str]:
        for name, topic in list(self.topics.items()):
            if (held := _since(topic.in_hand_since, now)) > limits.in_hand:
                yield (
                    f"nothing of {name} was acknowledged for {held:.0f} s with {topic.in_hand} in hand; Kafka's client would leave "
                    "its group for good soon"
                )
            if (waited := _since(topic.waiting_since, now)) > limits.stall:
                yield f"{topic.waiting} records of {name} have waited for {waited:.0f} s and none was taken"
        if (sharing := _since(self.rebalancing_since, now)) > limits.stall:
            yield f"the group has been sharing its partitions anew for {sharing:.0f} s"
        if (out := _since(self.outcast_since, now)) > limits.outcast:
            yield f"the broker has not had this worker in its group for {out:.0f} s"
        for (name, number), state in list(self.partitions.items()):
            of_topic = self.topics.get(name)
            batches = of_topic.batches - state.passed_at if of_topic is not None else 0
            if (passed := _since(state.passed_since, now)) > limits.stall and batches >= PASSED_OVER_BATCHES:
                yield f"a record of {name}[{number}] was fetched {passed:.0f} s ago and passed over by {batches} batches"
            if (kept := _since(state.uncommitted_since, now)) > limits.stall:
                yield f"what was acknowledged of {name}[{number}] has not been committed for {kept:.0f} s"

    def _each(self, deliveries: Sequence[Delivery], what: str) -> Iterable[tuple[TopicProgress, int]]:
        """By topic how many; notes the offsets."""
        counts: dict[str, int] = {}
        for each in deliveries:
            counts[each.topic] = counts.get(each.topic, 0) + 1
            state = self.partitions.get((each.topic, each.partition))
            if state is None:
                state = self.partitions[each.topic, each.partition] = PartitionProgress()
            setattr(state, what, each.offset)
            state.passed_since = None
        return [(self.topics.setdefault(topic, TopicProgress()), count) for topic, count in counts.items()]

    @staticmethod
    def _partition(now: float, state: PartitionProgress, look: PartitionLook, batches: int) -> None:
        advanced = state.look is None or state.look.committed != look.committed
        state.look = look
        if not state.stuck:
            state.passed_since = None
        elif state.passed_since is None:
            state.passed_since, state.passed_at = now, batches
        if advanced or state.acknowledged < (look.committed or 0):
            state.uncommitted_since = None
        elif state.uncommitted_since is None:
            state.uncommitted_since = now


def _since(then: float | None, now: float) -> float:
    return 0.0 if then is None else now - then
