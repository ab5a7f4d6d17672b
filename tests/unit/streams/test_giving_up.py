"""Summaries that cannot be made: one letter each, none for what every other would meet, and never a message held for ever."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
import structlog

from memory.errors import PermanentError, SettingError, StoreDamagedError, SummarizerAnswerError
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from streams.acknowledging import Message
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.producing import Message as Sent
from streams.retrying import Retry
from streams.workers.giving_up import GivingUp
from tests.fakes.clock import FakeClock
from tests.fakes.producer import FakeProducer

JOB = SummaryJob(tree=TreeId("t"), node=NodeId("n"))
LOG = structlog.stdlib.get_logger("test")


class Broken(FakeProducer):
    async def send(self, messages: Iterable[Sent]) -> None:
        del messages
        raise PermanentError("the topic is gone")


def made(producer: FakeProducer) -> tuple[GivingUp, list[str]]:
    clock, ended = FakeClock(), list[str]()
    dead = DeadLetters(producer, "dead", clock)
    return GivingUp(dead, "jobs", retry=Retry(clock, LOG), end=ended.append, log=LOG), ended


def message(offset: int) -> Message:
    return Message(Delivery(topic="jobs", partition=0, offset=offset, key=b"k", value=b"v"), lambda: None)


@pytest.mark.parametrize("messages", [[], [message(0)], [message(0), message(1)]])
async def test_a_job_is_one_letter_however_many_messages_it_has(messages: list[Message]) -> None:
    producer = FakeProducer()
    giving_up, ended = made(producer)
    giving_up.give_up(JOB, messages, SummarizerAnswerError("no use"))
    await giving_up.ended()
    assert (len(producer.of("dead")), ended) == (1, [])


@pytest.mark.parametrize("error", [SettingError("the key is refused"), StoreDamagedError("cut short")])
async def test_what_every_other_job_would_meet_ends_the_process_and_is_no_letter(error: Exception) -> None:
    producer = FakeProducer()
    giving_up, ended = made(producer)
    with pytest.raises(type(error)):
        giving_up.give_up(JOB, [message(0)], error)
    await giving_up.ended()
    assert producer.sent == []
    assert [str(error) in reason for reason in ended] == [True]


async def test_letters_that_can_never_be_sent_end_the_process() -> None:
    giving_up, ended = made(Broken())
    giving_up.give_up(JOB, [message(0)], SummarizerAnswerError("no use"))
    with pytest.raises(PermanentError):
        await giving_up.ended()
    assert ["the topic is gone" in reason for reason in ended] == [True]
