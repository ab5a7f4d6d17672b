"""
What Faust commits, on a real broker: the naive forms lose records, ours does not.

In each case one record's effect never happens, as if the process died while it was worked on; then another process goes on from the
committed offsets. A record is lost when it does not come again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest
import structlog

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from streams.agents.consuming import consume
from streams.app import Role, make_app
from streams.deliveries import Delivery, delivery
from streams.pipelines import Ingesting
from streams.runtime import Runtime
from streams.settings import Settings
from streams.topics import topics
from streams.workers.jobs import Message, TakenJobs
from tests.integration.kafka.workers import LIMIT, committed, send_raw

pytestmark = pytest.mark.slow
COUNT = 20
HELD = b"0"
"""The record whose effect never happens; at the head of its partition."""
KEY = b"one key, so that all are in one partition"
Agent = Callable[[Any], Awaitable[None]]


@asynccontextmanager
async def running(settings: Settings, agent: Agent, *, concurrency: int = 1) -> AsyncIterator[None]:
    """Our app, with another agent."""
    runtime: Runtime[Any] = Runtime(settings, _nothing)
    app = make_app(Role.SUMMARIES, runtime)
    app.agents.clear()
    topic = app.topic(runtime.topics.turns.name, key_serializer="raw", value_serializer="raw")
    app.agent(topic, name="tried", concurrency=concurrency)(agent)
    await app.start()
    try:
        yield
    finally:
        await app.stop()


async def _nothing(_settings: Settings) -> Any:
    raise AssertionError("no pipeline is opened")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():  # noqa: ASYNC110  # what is waited for happens in a library
            await asyncio.sleep(0.02)


async def sent(settings: Settings) -> None:
    await send_raw(settings, topics(settings.kafka).turns.name, *(str(number).encode() for number in range(COUNT)), key=KEY)


async def offset(settings: Settings) -> int:
    """What the group has committed of the one partition that is used."""
    group = f"{settings.kafka.prefix}-summaries"
    return max((await committed(settings, group, topics(settings.kafka).turns.name)).values())


async def come_again(settings: Settings) -> list[bytes]:
    """What the next process gets, up to a record sent last."""
    await send_raw(settings, topics(settings.kafka).turns.name, b"last", key=KEY)
    found: list[bytes] = []

    async def take(stream: Any) -> None:
        async for events in stream.noack_take(100, within=0.02):
            found.extend(event.message.value for event in events)

    async with running(settings, take):
        await until(lambda: b"last" in found)
    return found[:-1]


async def test_acknowledging_out_of_order_loses_the_record_at_the_head(installed: Settings) -> None:
    await sent(installed)
    done: list[bytes] = []

    async def out_of_order(stream: Any) -> None:
        async for events in stream.noack_take(100, within=0.02):
            for event in events:
                if event.message.value != HELD:
                    done.append(event.message.value)
                    event.ack()

    async with running(installed, out_of_order):
        await until(lambda: len(done) == COUNT - 1)
    assert await offset(installed) == COUNT
    assert HELD not in await come_again(installed)


async def test_concurrency_loses_the_record_that_is_worked_on_longest(installed: Settings) -> None:
    await sent(installed)
    done: list[bytes] = []

    async def automatic(stream: Any) -> None:
        async for value in stream:
            if value == HELD:
                await asyncio.Event().wait()
            done.append(value)

    async with running(installed, automatic, concurrency=2):
        await until(lambda: len(done) == COUNT - 1)
    assert await offset(installed) == COUNT
    assert HELD not in await come_again(installed)


class Stuck:
    """Batches of which the one with the held record never ends."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    async def take(self, deliveries: list[Delivery], *, committed: Callable[[], None]) -> None:
        values = [each.value or b"" for each in deliveries]
        self.taken.extend(values)
        if HELD in values:
            await asyncio.Event().wait()
        committed()


async def test_ours_loses_nothing_when_a_batch_never_ends(installed: Settings) -> None:
    await sent(installed)
    stuck = Stuck()
    pipeline = cast("Ingesting", type("Pipeline", (), {"batches": stuck, "stages": ()}))

    async def opened(_settings: Settings) -> Ingesting:
        return pipeline

    runtime = Runtime(installed, opened)
    async with running(installed, lambda stream: consume(stream, runtime)):
        await until(lambda: HELD in stuck.taken)
        await asyncio.sleep(0.5)
    assert await offset(installed) == 0
    assert await come_again(installed) == [str(number).encode() for number in range(COUNT)]


async def test_jobs_done_out_of_order_are_acknowledged_in_order(installed: Settings) -> None:
    await sent(installed)
    clock = SystemClock()

    async def nothing() -> None:
        pass

    jobs = TakenJobs(InProcessSummaryJobs(clock), room=100, before=nothing, clock=clock, log=structlog.stdlib.get_logger("test"))
    done: list[str] = []

    async def take(stream: Any) -> None:
        async for events in stream.noack_take(100, within=0.02):
            for event in events:
                message = Message(delivery(event), event.ack)
                jobs.stand(message)
                job = SummaryJob(tree=TreeId("t"), node=NodeId((message.delivery.value or b"").decode()))
                await jobs.take(job, message)

    async def work() -> None:
        while True:
            job = await jobs.claim()
            if job.node.encode() == HELD:
                continue  # never done
            done.append(job.node)
            await jobs.done(job)

    async with running(installed, take):
        working = asyncio.create_task(work())
        await until(lambda: len(done) == COUNT - 1)
        working.cancel()
    assert await offset(installed) == 0
    assert await come_again(installed) == [str(number).encode() for number in range(COUNT)]
