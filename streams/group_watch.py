"""
What the broker and the client say of this worker: its partitions, what waits in them, and whether it is in its group at all.

The client alone is not asked whether it is in the group: one that has left for good still names its partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from streams.broker import Broker, BrokerUnavailableError, open_admin, translated
from streams.progress import PartitionLook

if TYPE_CHECKING:
    from aiokafka.admin import AIOKafkaAdminClient

LOOK_LIMIT = 10.0  # seconds


async def may_join(admin: AIOKafkaAdminClient, group: str, address: str) -> None:
    """
    Make sure that a group is not closed to this user: the client would wait for it for ever, and say nothing.

    Raises:
        BrokerRefusedError: it is. Whatever else keeps it from being seen may pass.
    """
    with suppress(BrokerUnavailableError), translated(address):
        await admin.find_coordinator(group)


class GroupWatch:
    """
    Looks at one worker's place in its group, over a connection of its own.

    Args:
        app: the Faust app.
        broker: where Kafka is.
        client: what this worker, and no other, is called in the group (`client.id`).
        delivered: the last offset that was given to Faust, by topic and partition.
    """

    def __init__(self, app: Any, broker: Broker, client: str, delivered: Mapping[tuple[str, int], int]) -> None:
        self._app = app
        self._delivered = delivered
        self._broker = broker
        self._client = client
        self._admin: AIOKafkaAdminClient | None = None

    async def look(self) -> tuple[list[PartitionLook], bool | None]:
        """
        The partitions that are held, and whether the broker has this worker in its group (None: it does not say).

        Raises:
            BrokerUnavailableError, BrokerRefusedError: nothing is known.
        """
        try:
            with translated(self._broker.address):
                async with asyncio.timeout(LOOK_LIMIT):
                    return await self._look()
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Disconnect; idempotent."""
        admin, self._admin = self._admin, None
        if admin is not None:
            await admin.close()

    async def _look(self) -> tuple[list[PartitionLook], bool | None]:
        if self._admin is None:
            self._admin = await open_admin(self._broker)
        group = self._app.conf.id
        coordinator = await self._admin.find_coordinator(group)
        member = self._among(await self._admin.describe_consumer_groups([group], group_coordinator_id=coordinator))
        consumer = self._app.consumer
        held = sorted(consumer.assignment()) if consumer is not None else []
        if not held:
            return [], member
        committed = await self._admin.list_consumer_group_offsets(group, group_coordinator_id=coordinator)
        offsets = {(each.topic, each.partition): found.offset for each, found in committed.items()}
        looks = []
        for partition, end in (await consumer.highwaters(*held)).items():
            place = (partition.topic, partition.partition)
            offset = offsets.get(place, -1)
            looks.append(
                PartitionLook(
                    topic=partition.topic,
                    partition=partition.partition,
                    end=end,
                    position=await consumer.position(partition) or 0,
                    delivered=self._delivered.get(place),
                    committed=offset if offset >= 0 else None,
                )
            )
        return looks, member

    def _is_this(self, member: Any) -> bool:
        instance = self._app.conf.consumer_group_instance_id
        if instance:
            # A static member that came back keeps the id of the client that it was before, and gets a new id that begins so.
            return str(member[0]).startswith(f"{instance}-")
        return member[1] == self._client  # type: ignore[no-any-return]

    def _among(self, answers: Any) -> bool | None:
        for answer in answers:
            for error, _group, _state, _type, _protocol, members, *_ in answer.groups:
                return None if error else any(self._is_this(member) for member in members)
        return None
