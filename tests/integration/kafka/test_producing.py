"""Many messages given to our producer at once share batches, and are where, and in the order in which, single ones are."""

from __future__ import annotations

import pytest

from streams import producing
from streams.broker import Broker
from streams.producing import Message, Producer
from streams.settings import Settings
from streams.topics import topics
from tests.integration.kafka.workers import read

COUNT = 400


@pytest.mark.parametrize("size", [40, producing.SMALL // 2, producing.SMALL + 1], ids=["small", "several batches", "large"])
async def test_many_at_once_are_where_single_ones_are(installed: Settings, size: int) -> None:
    name = topics(installed.kafka).turns.name
    count = COUNT if size == 40 else 24
    keys = [f"tree/c{number % 7}".encode() for number in range(count)]
    producer = await Producer(Broker.of(installed)).start()
    try:
        for number, key in enumerate(keys):
            await producer.send([Message(topic=name, value=b"single %d" % number, key=key)])
        headers = [("banyan-schema", b"turn/1")]
        await producer.send(
            Message(topic=name, value=(b"many %d " % number).ljust(size, b"."), key=key, headers=headers)
            for number, key in enumerate(keys)
        )
    finally:
        await producer.stop()
    found = await read(installed, name)
    singles = [(one.partition, one.key, int(one.value.split()[1])) for one in found if one.value.startswith(b"single")]
    many = [(one.partition, one.key, int(one.value.split()[1])) for one in found if one.value.startswith(b"many")]
    assert len(many) == count
    assert many == singles, "in the same partitions, in the same order"
    assert {tuple(one.headers) for one in found if one.value.startswith(b"many")} == {tuple(headers)}
    assert {len(one.value) for one in found if one.value.startswith(b"many")} == {size}
