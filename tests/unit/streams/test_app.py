"""The Faust app: what it must not leave to Faust."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

from streams.app import FETCH_WAIT_MAX, Role, _noting, _seeking_all, heartbeat_interval, make_app, make_runtime
from streams.settings import Settings, load

Partition = tuple[str, int]


class FakeThread:
    """The consumer's thread, which the client belongs to: nobody else may touch that."""

    def __init__(self, sought: dict[Partition, int]) -> None:
        self.sought = sought
        self.inside = False

    async def call_thread(self, call: Callable[..., None], *arguments: object) -> None:
        self.inside = True
        call(*arguments)
        self.inside = False

    def seek(self, partition: Partition, offset: int) -> None:
        assert self.inside, "another thread may be handing over records of this partition"
        self.sought[partition] = offset


class FakeConsumer:
    """Knows committed offsets and earliest ones."""

    def __init__(self, committed: dict[Partition, int | None]) -> None:
        self.committed = committed
        self.sought: dict[Partition, int] = {}
        self._thread = FakeThread(self.sought)

    async def seek_to_committed(self) -> dict[Partition, int | None]:
        # As aiokafka does it.
        self.sought.update({partition: offset for partition, offset in self.committed.items() if offset and offset > 0})
        return self.committed

    async def earliest_offsets(self, *partitions: Partition) -> dict[Partition, int]:
        return {partition: 10 + partition[1] for partition in partitions}


async def test_partitions_without_a_committed_offset_are_sought_too() -> None:
    offsets = {("t", 0): 25, ("t", 1): None, ("t", 2): 0, ("t", 3): -1}
    consumer = _seeking_all(FakeConsumer(offsets))
    assert await consumer.seek_to_committed() == offsets
    assert consumer.sought == {("t", 0): 25, ("t", 1): 11, ("t", 2): 12, ("t", 3): 13}


async def test_nothing_else_is_asked_when_all_have_one() -> None:
    consumer = _seeking_all(FakeConsumer({("t", 0): 25}))
    await consumer.seek_to_committed()
    assert consumer.sought == {("t", 0): 25}


def test_what_faust_is_given_is_noted_before_any_agent_sees_it() -> None:
    given: list[SimpleNamespace] = []
    delivered: dict[Partition, int] = {}
    consumer = _noting(SimpleNamespace(callback=given.append), delivered)
    messages = [SimpleNamespace(tp=("t", number % 2), offset=number) for number in range(5)]
    for message in messages:
        consumer.callback(message)
    assert given == messages
    assert delivered == {("t", 0): 4, ("t", 1): 3}


def test_a_long_session_does_not_make_a_rebalance_long() -> None:
    assert heartbeat_interval(3.0) < 1.0, "several in a session"
    assert heartbeat_interval(300.0) == 3.0


async def test_the_longest_session_that_settings_take_is_one_that_faust_takes() -> None:
    settings = load({"BANYAN_KAFKA_SESSION_TIMEOUT": "300s"}).settings
    app = make_app(Role.INGEST, make_runtime(Role.INGEST, settings))
    client = app.consumer._thread._create_worker_consumer(app.transport)
    assert client._session_timeout_ms == 300_000


async def test_a_silent_topic_does_not_keep_the_records_of_others_waiting() -> None:
    app = make_app(Role.INGEST, make_runtime(Role.INGEST, Settings()))
    client = app.consumer._thread._create_worker_consumer(app.transport)
    # What aiokafka hands on to its fetcher when it starts; Faust's own is 1,500.
    assert client._fetch_max_wait_ms == FETCH_WAIT_MAX < 100
