"""Where records go that are posted: into the store, or to Kafka. An answer comes when they are safe there."""

from __future__ import annotations

import asyncio
import contextlib
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

import structlog

from memory.errors import BanyanError
from memory.facade import LocalMemory
from memory.model import EventId, TreeId
from memory.records import Feedback, Forget, Record
from memory.results import EventResult, EventStatus, ForgetReport
from streams.broker import Broker, BrokerUnavailableError, open_admin
from streams.producing import Message, Producer
from streams.record_messages import message_of
from streams.topics import Topics, require

LOOK_EVERY = 10.0  # seconds
"""How often a broker is asked whether it is there while nothing is sent."""
LOOK_AGAIN = 2.0  # seconds
"""And while it is away."""
LOOK_LIMIT = 8.0  # seconds
REFUSE_FOR = 1.0  # seconds
"""After a failure, for how long nothing is tried: a request must not wait for a broker that is known to be away."""

_log = structlog.stdlib.get_logger("streams.query")


class Writer(ABC):
    """Takes the records of one tree."""

    commits: bool
    """Whether a result says which commit holds the record; otherwise that is known later."""

    @abstractmethod
    async def put(self, tree: TreeId, records: Sequence[Record]) -> list[EventResult]:
        """
        Make them safe; results in the records' order.

        Raises:
            TransientError: they are not, or not all; the same call may be repeated.
        """

    @abstractmethod
    async def feedback(self, tree: TreeId, feedback: Sequence[Feedback]) -> list[EventResult]:
        """
        Make feedback safe, of a tree that takes it; results in the given order.

        Raises:
            TransientError: it is not, or not all; the same call may be repeated.
        """

    @abstractmethod
    async def forget(
        self, tree: TreeId, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
    ) -> ForgetReport | Sequence[str]:
        """
        Forget events, a conversation, or what was before a time: exactly one of these is given.

        Returns:
            What went, or where that is known later the ids of the messages that ask for it, which are safe.

        Raises:
            TransientError: it is not done, or not known to be; the same call may be repeated.
            TreeNotFoundError: there is no such tree, as far as that is known here.
        """

    def missing(self) -> dict[str, str]:
        """What is away that records need, with the kind of error."""
        return {}

    async def start(self) -> None:  # noqa: B027  # most need no connection
        """Begin to connect; what is away now is connected to later."""

    async def close(self) -> None:  # noqa: B027
        """Let what is being sent come to its end."""


class DirectWriter(Writer):
    """
    Into the store, in this process.

    Args:
        memory: with the store.
    """

    commits = True

    def __init__(self, memory: LocalMemory) -> None:
        self._memory = memory

    async def put(self, tree: TreeId, records: Sequence[Record]) -> list[EventResult]:  # noqa: ARG002  # they name it
        """See `Writer.put`."""
        results: list[EventResult] = []
        await self._memory.ingest_stream(records, on_batch=results.extend)
        return results

    async def feedback(self, tree: TreeId, feedback: Sequence[Feedback]) -> list[EventResult]:
        """See `Writer.feedback`."""
        return await self._memory.parts.weighing.take(tree, feedback)

    async def forget(
        self, tree: TreeId, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
    ) -> ForgetReport:
        """See `Writer.forget`."""
        return await self._memory.forget(tree, events=events, conversation=conversation, before=before)


async def _demand(broker: Broker, names: Sequence[str]) -> None:
    admin = await open_admin(broker)
    try:
        await require(admin, names, broker.address)
    finally:
        await admin.close()


class KafkaWriter(Writer):
    """
    To Kafka, for the workers.

    Args:
        broker: where Kafka is.
        topics: its topics.
        limit: seconds until a broker that says nothing counts as away.
        make: makes the producer.
        demand: makes sure that topics are there, as `streams.topics.require` does.
    """

    commits = False

    def __init__(
        self,
        broker: Broker,
        topics: Topics,
        *,
        limit: float,
        make: Callable[[Broker], Producer] = Producer,
        demand: Callable[[Broker, Sequence[str]], Awaitable[None]] = _demand,
    ) -> None:
        self._broker = broker
        self._topics = topics
        self._limit = limit
        self._make = make
        self._demand = demand
        self._found: set[str] = set()
        """Topics that are there, of those that are not looked for now and then."""
        self._producer: Producer | None = None
        self._starting = asyncio.Lock()
        self._away: BanyanError | None = BrokerUnavailableError("Kafka was not asked yet")
        self._since = -REFUSE_FOR
        self._looking: asyncio.Task[None] | None = None
        self._sending: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """See `Writer.start`."""
        self._looking = asyncio.create_task(self._look(), name="banyan-broker")

    def missing(self) -> dict[str, str]:
        """See `Writer.missing`."""
        return {} if self._away is None else {"kafka": type(self._away).__name__}

    async def put(self, tree: TreeId, records: Sequence[Record]) -> list[EventResult]:
        """See `Writer.put`."""
        return await self._put(tree, records)

    async def feedback(self, tree: TreeId, feedback: Sequence[Feedback]) -> list[EventResult]:
        """See `Writer.feedback`."""
        await self._find(self._topics.feedback.name)
        return await self._put(tree, feedback)

    async def forget(
        self, tree: TreeId, *, events: Sequence[str] = (), conversation: str | None = None, before: datetime | None = None
    ) -> Sequence[str]:
        """See `Writer.forget`."""
        await self._find(self._topics.forgets.name)
        at = datetime.now(UTC)
        named: Sequence[str | None] = events or (None,)
        forgets = [
            Forget(tree=tree, id=f"forget-{uuid.uuid4()}", event=event, conversation=conversation, before=before, at=at)
            for event in named
        ]
        return [each.id for each in await self._put(tree, forgets)]

    async def _find(self, topic: str) -> None:
        """
        Make sure of a topic, once: an installation from before there was feedback is no reason to refuse turns and documents.

        Raises:
            TransientError: it is not there, or Kafka is away.
        """
        self._let_through()
        if topic in self._found:
            return
        try:
            async with asyncio.timeout(self._limit):
                await self._demand(self._broker, [topic])
        except TimeoutError as error:
            raise BrokerUnavailableError(f"Kafka said nothing within {self._limit:g} s", retry_after=LOOK_AGAIN) from error
        self._found.add(topic)

    def _let_through(self) -> None:
        if self._away is not None and time.monotonic() - self._since < REFUSE_FOR:
            raise BrokerUnavailableError("Kafka is away", retry_after=LOOK_AGAIN)

    async def _put(self, tree: TreeId, given: Sequence[Record | Feedback | Forget]) -> list[EventResult]:
        self._let_through()
        messages = [message_of(self._topics, each) for each in given]
        # Not cancelled with the request: what is half sent is sent, and a second attempt does no harm.
        task = asyncio.create_task(self._send(messages))
        self._sending.add(task)
        task.add_done_callback(self._sent)
        done, _ = await asyncio.wait({task}, timeout=self._limit)
        if not done:
            error = BrokerUnavailableError(f"Kafka did not acknowledge within {self._limit:g} s", retry_after=LOOK_AGAIN)
            self._gone(error)
            raise error
        task.result()
        return [EventResult(tree=tree, id=EventId(each.id), status=EventStatus.ACCEPTED, seq=0) for each in given]

    async def close(self) -> None:
        """See `Writer.close`."""
        if self._looking is not None:
            self._looking.cancel()
        if self._sending:
            await asyncio.wait(self._sending, timeout=self._limit)
        if self._producer is not None:
            await self._producer.stop()

    async def _send(self, messages: Sequence[Message]) -> None:
        try:
            producer = await self._connected()
            await producer.send(messages)
        except BanyanError as error:
            self._gone(error)
            raise
        self._back()

    def _sent(self, task: asyncio.Task[None]) -> None:
        self._sending.discard(task)
        if not task.cancelled():
            task.exception()  # told to the request if it still waits

    async def _connected(self) -> Producer:
        async with self._starting:
            if self._producer is None:
                self._producer = await self._make(self._broker).start()
            return self._producer

    async def _look(self) -> None:
        """Ask the broker now and then: readiness must know before a record fails, and connections must be there when one comes."""
        while True:
            try:
                async with asyncio.timeout(LOOK_LIMIT):
                    await self._connected()
                    await self._demand(self._broker, [self._topics.turns.name, self._topics.documents.name])
                self._back()
            except BanyanError as error:
                self._gone(error)
            except TimeoutError:
                self._gone(BrokerUnavailableError(f"Kafka at {self._broker.address} says nothing"))
            await asyncio.sleep(LOOK_EVERY if self._away is None else LOOK_AGAIN)

    def _gone(self, error: BanyanError) -> None:
        if self._away is None or not isinstance(error, type(self._away)):
            _log.warning("waiting", what="the broker", error=str(error))
        self._away, self._since = error, time.monotonic()

    def _back(self) -> None:
        if self._away is not None:
            _log.info("going on", what="the broker")
        self._away = None


async def ended(writer: Writer) -> None:
    """Close a writer, whatever it says."""
    with contextlib.suppress(BanyanError, OSError):
        await writer.close()
