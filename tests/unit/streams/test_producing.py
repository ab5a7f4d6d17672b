"""A producer that can send no more is replaced, once, however many are sending."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Self

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.errors import OutOfOrderSequenceNumber

from streams.broker import Broker, BrokerUnavailableError
from streams.producing import Message, Producer

MESSAGE = Message(topic="t", value=b"v")


class Client:
    """Of the vendor's library, as far as it is used."""

    def __init__(self) -> None:
        self.sent = 0
        self.running = True
        self.refusal: Exception | None = None
        self._sender = SimpleNamespace(sender_task=asyncio.ensure_future(asyncio.Event().wait()))

    async def send(self, *_: object, **__: object) -> asyncio.Future[object]:
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.sent += 1
        if self.refusal is None:
            future.set_result(None)
        else:
            future.set_exception(self.refusal)
        return future

    async def stop(self) -> None:
        await asyncio.sleep(0)
        self.running = False
        self.die()

    def die(self) -> None:
        self._sender.sender_task.cancel()


class Restarting(Producer):
    """Counts what it starts."""

    def __init__(self) -> None:
        super().__init__(Broker("nowhere:0"))
        self.clients: list[Client] = []
        self.away = False

    @property
    def now(self) -> Client:
        return self.clients[-1]

    async def start(self) -> Self:
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailableError("away")
        self.clients.append(Client())
        self._producer: Any = self.now
        self._broken = False
        return self


@pytest.fixture
async def producer() -> Restarting:
    return await Restarting().start()


async def lose_the_sequence(producer: Restarting) -> None:
    producer.now.refusal = OutOfOrderSequenceNumber()
    with pytest.raises(BrokerUnavailableError):
        await producer.send([MESSAGE])


async def test_of_many_senders_one_replaces_it(producer: Restarting) -> None:
    await lose_the_sequence(producer)
    await asyncio.gather(*(producer.send([MESSAGE]) for _ in range(5)))
    assert [client.running for client in producer.clients] == [False, True], "none is left behind"
    assert producer.now.sent == 5


async def test_one_whose_sending_has_died_is_replaced(producer: Restarting) -> None:
    producer.now.die()
    await asyncio.sleep(0)
    await producer.send([MESSAGE])
    assert (len(producer.clients), producer.now.sent) == (2, 1)


async def test_where_no_other_can_be_had_the_next_sender_tries_again(producer: Restarting) -> None:
    producer.now.die()
    await asyncio.sleep(0)
    producer.away = True
    for _ in range(2):
        with pytest.raises(BrokerUnavailableError):
            await producer.send([MESSAGE])
    producer.away = False
    await producer.send([MESSAGE])
    assert (len(producer.clients), producer.now.sent) == (2, 1)


async def test_the_library_says_where_its_sending_runs() -> None:
    vendors = AIOKafkaProducer(bootstrap_servers="nowhere:0", enable_idempotence=True)
    assert vendors._sender.sender_task is None, "not started"
    await vendors.client.close()
