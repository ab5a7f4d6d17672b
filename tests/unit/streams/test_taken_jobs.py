"""Jobs from a topic: coalesced by node, done in any order, acknowledged in order."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest
import structlog

from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from streams.deliveries import Delivery
from streams.workers import jobs as jobs_module
from streams.workers.jobs import Message, TakenJobs
from tests.fakes.virtual_time import LoopClock, run_virtually

TREE = TreeId("t")


class Taken:
    """Jobs, and what was acknowledged."""

    def __init__(self, room: int = 1_000) -> None:
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.letters_sent = 0
        clock = LoopClock()
        self.jobs = TakenJobs(
            InProcessSummaryJobs(clock),
            room=room,
            before=self.before,
            clock=clock,
            log=structlog.stdlib.get_logger("test"),
        )

    async def before(self) -> None:
        self.letters_sent += 1

    def message(self, partition: int, offset: int) -> Message:
        delivery = Delivery(topic="jobs", partition=partition, offset=offset, key=None, value=None)
        return Message(delivery, lambda: self.acknowledged[partition].append(offset))

    async def take(self, node: str, offset: int, partition: int = 0) -> Message:
        message = self.message(partition, offset)
        self.jobs.stand(message)
        await self.jobs.take(SummaryJob(tree=TREE, node=NodeId(node)), message)
        return message


def test_messages_of_one_node_are_one_job() -> None:
    async def main() -> None:
        taken = Taken()
        for offset in range(4):
            await taken.take("a", offset)
        job = await taken.jobs.claim()
        assert len(taken.jobs.messages(job)) == 4
        await taken.jobs.done(job)
        assert taken.acknowledged[0] == [0, 1, 2, 3]
        assert (taken.jobs.backlog(), taken.jobs.in_hand) == (0, 0)

    run_virtually(main())


def test_a_message_that_comes_while_its_node_is_worked_on_waits_for_the_next_call() -> None:
    async def main() -> None:
        taken = Taken()
        await taken.take("a", 0)
        first = await taken.jobs.claim()
        await taken.take("a", 1)
        await taken.jobs.done(first)
        assert taken.acknowledged[0] == [0]
        await taken.jobs.done(await taken.jobs.claim())
        assert taken.acknowledged[0] == [0, 1]

    run_virtually(main())


def test_a_job_that_failed_keeps_its_messages_and_holds_those_behind_it() -> None:
    async def main() -> None:
        taken = Taken()
        await taken.take("a", 0)
        await taken.take("b", 1)
        failing = await taken.jobs.claim()
        await taken.jobs.done(await taken.jobs.claim())
        await taken.jobs.retry(failing, after=5.0)
        assert taken.acknowledged[0] == []
        again = await taken.jobs.claim()
        assert (again.node, again.attempt) == ("a", 1)
        await taken.jobs.done(again)
        assert taken.acknowledged[0] == [0, 1]

    run_virtually(main())


def test_nothing_is_acknowledged_before_dead_letters_are_sent() -> None:
    async def main() -> None:
        taken = Taken()
        seen: list[dict[int, list[int]]] = []

        async def before() -> None:
            seen.append({partition: list(offsets) for partition, offsets in taken.acknowledged.items()})

        taken.jobs._before = before
        await taken.take("a", 0)
        await taken.jobs.done(await taken.jobs.claim())
        assert seen == [{}]
        assert taken.acknowledged[0] == [0]

    run_virtually(main())


def test_room_is_waited_for() -> None:
    async def main() -> None:
        taken = Taken(room=3)
        for offset in range(3):
            await taken.take(f"n{offset}", offset)
        waiting = asyncio.ensure_future(taken.jobs.room())
        await asyncio.sleep(1)
        assert not waiting.done()
        await taken.jobs.done(await taken.jobs.claim())
        await waiting

    run_virtually(main())


def test_messages_behind_one_that_waits_are_not_taken_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "HELD_MAX", 20)

    async def main() -> None:
        taken = Taken()
        await taken.take("slow", 0)
        slow = await taken.jobs.claim()
        for offset in range(1, 20):
            await asyncio.wait_for(taken.jobs.room(), 1)
            await taken.take("quick", offset)
            await taken.jobs.done(await taken.jobs.claim())
        waiting = asyncio.ensure_future(taken.jobs.room())
        await asyncio.sleep(1)
        assert not waiting.done(), f"{taken.jobs.in_hand} messages are held, of one job"
        await taken.jobs.done(slow)
        await waiting
        assert taken.acknowledged[0] == list(range(20))

    run_virtually(main())


def test_draining_begins_nothing_and_waits_for_what_was_begun() -> None:
    async def main() -> None:
        taken = Taken()
        await taken.take("a", 0)
        await taken.take("b", 1)
        job = await taken.jobs.claim()
        taken.jobs.draining = True
        resting = asyncio.ensure_future(taken.jobs.rest())
        claiming = asyncio.ensure_future(taken.jobs.claim())
        await asyncio.sleep(1)
        assert not resting.done()
        assert not claiming.done()
        await taken.jobs.done(job)
        await resting
        assert taken.acknowledged[0] == [0]
        claiming.cancel()

    run_virtually(main())


def test_whatever_the_order_of_work_each_partition_is_acknowledged_in_order_and_completely() -> None:
    for seed in range(50):
        run_virtually(_at_random(random.Random(seed)))


async def _at_random(rng: random.Random) -> None:  # noqa: C901  # one branch a thing that happens
    taken = Taken()
    offsets = [0, 0, 0]
    claimed: list[SummaryJob] = []
    bad: list[Message] = []
    for _ in range(200):
        match rng.randrange(5):
            case 0 | 1:
                partition = rng.randrange(3)
                if rng.random() < 0.1:
                    message = taken.message(partition, offsets[partition])
                    taken.jobs.stand(message)
                    bad.append(message)
                else:
                    await taken.take(f"p{partition}n{rng.randrange(4)}", offsets[partition], partition)
                offsets[partition] += 1
            case 2 if taken.jobs.backlog() > len(claimed):
                claimed.append(await taken.jobs.claim())
            case 3 if claimed:
                job = claimed.pop(rng.randrange(len(claimed)))
                await taken.jobs.done(job)
            case 4 if claimed and rng.random() < 0.3:
                await taken.jobs.retry(claimed.pop(), after=rng.random())
            case _:
                pass
        for acknowledged in taken.acknowledged.values():
            assert acknowledged == list(range(len(acknowledged)))
        if bad and rng.random() < 0.2:
            await taken.jobs.settle(bad)
            bad = []
    await taken.jobs.settle(bad)
    for job in claimed:
        await taken.jobs.done(job)
    while taken.jobs.backlog():
        await taken.jobs.done(await taken.jobs.claim())
    assert [len(taken.acknowledged[partition]) for partition in range(3)] == offsets
