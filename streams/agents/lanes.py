"""
Trees take turns: what an ingest worker has read and not yet put into trees, a lane for each tree.

Kafka gives a partition's records in order, so what is behind a flood can only be reached by reading past it. The worker reads
ahead, up to a bound; each batch is filled from all lanes in turn; within a lane, and so within a key, the order of arrival stays.
Records are acknowledged in order all the same (`streams.acknowledging`).
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import msgspec

from streams.acknowledging import Message, Standing
from streams.deliveries import Delivery

BYTES_MAX = 64_000_000
"""Of records read ahead, whatever their number."""
HELD_MAX = 30_000
"""Records in hand, those included that are done with and stand behind one that was put off."""
TURN = 8
"""Records of one tree that are taken at its turn: one commit for them costs little more than for one, and the others wait less."""
CALM = 1.0  # seconds
"""After so long with one tree alone, batches are filled with its records: nobody else is waiting for their end."""


class _Address(msgspec.Struct):
    """All that is looked at."""

    tree: str = ""


class Lanes:
    """
    Records in hand.

    Args:
        window: records read ahead, above which `room` waits; it also waits above `HELD_MAX` records in hand.
        share: most records of one tree in a batch while others come too: what is committed at once, so that no tree has to wait for
            two commits of another.
        now: monotonic seconds; tell when a tree has been alone for long.
    """

    def __init__(self, *, window: int, share: int, now: Callable[[], float]) -> None:
        self._window = window
        self._share = share
        self._now = now
        self._standing = Standing()
        self._lanes: dict[str, deque[Message]] = {}
        """Those that are not empty, in the order of their turns."""
        self.waiting = 0
        """Records in the lanes."""
        self._bytes = 0
        self._last = ""
        self._mixed_at = -CALM
        """When records of two trees were last seen after one another."""
        self._fresh = False
        """Whether records came since the last batch was taken."""
        self._ended = asyncio.Event()
        """A batch was committed since records came last."""
        self._came = asyncio.Event()
        self._left = asyncio.Event()

    @property
    def in_hand(self) -> int:
        """Records that are not acknowledged."""
        return self._standing.count

    def stand(self, messages: Sequence[Message]) -> None:
        """Records have come, in this order."""
        for message in messages:
            self._standing.stand(message)
            tree = _tree_of(message.delivery)
            if tree != self._last:
                self._last, self._mixed_at = tree, self._now()
            self._lanes.setdefault(tree, deque()).append(message)
            self._bytes += len(message.delivery.value or b"")
        self.waiting += len(messages)
        if messages:
            self._fresh = True
            self._ended.clear()
            self._came.set()

    async def room(self) -> None:
        """
        Wait until a batch is committed and there is room for more.

        Reading and committing take turns: side by side they would share one processor, and batches would be small. While a batch's
        jobs are on their way to the broker there is nothing else to do.
        """
        await self._ended.wait()
        while self.waiting >= self._window or self._bytes >= BYTES_MAX or self.in_hand >= HELD_MAX:
            self._left.clear()
            await self._left.wait()

    async def rest(self) -> None:
        """Wait until everything that came is acknowledged."""
        while self.in_hand:
            self._left.clear()
            await self._left.wait()

    async def take(self, most: int, *, within: float = 0.0) -> list[Message]:
        """
        Wait for records and take some: up to `TURN` of each tree in turn, until there are `most` or each tree has its share.

        What is taken is no longer counted by `room`, and is acknowledged once it is settled.

        Args:
            most: records.
            within: seconds to wait for the reader where there is only what an earlier batch left.
        """
        while not self.waiting:
            self._came.clear()
            await self._came.wait()
        if not self._fresh and within and self.waiting < self._window:
            self._came.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(within):
                    await self._came.wait()
        self._fresh = False
        alone = len(self._lanes) == 1 and self._now() - self._mixed_at >= CALM
        share = most if alone else self._share
        taken: list[Message] = []
        counts: Counter[str] = Counter()
        served: dict[str, deque[Message]] = {}
        while self._lanes and len(taken) < most:
            tree = next(iter(self._lanes))
            lane = self._lanes.pop(tree)
            for _ in range(min(TURN, len(lane), share - counts[tree], most - len(taken))):
                taken.append(lane.popleft())
                counts[tree] += 1
            if lane:
                # At the end of its queue; those that have had their share wait for the next batch behind all others.
                (served if counts[tree] >= share else self._lanes)[tree] = lane
        self._lanes |= served
        self.waiting -= len(taken)
        self._bytes -= sum(len(message.delivery.value or b"") for message in taken)
        self._left.set()
        return taken

    def put_off(self, message: Message, seconds: float) -> None:
        """What was taken waits outside of its lane, holding up nothing but acknowledgements, and then stands at the lane's end."""
        asyncio.get_running_loop().call_later(seconds, self._again, message)

    def _again(self, message: Message) -> None:
        self._lanes.setdefault(_tree_of(message.delivery), deque()).append(message)
        self._bytes += len(message.delivery.value or b"")
        self.waiting += 1
        self._came.set()

    def committed(self) -> None:
        """A batch is in the store: reading may go on."""
        self._ended.set()

    def settle(self, messages: Sequence[Message]) -> Sequence[Delivery]:
        """Everything that these caused is durable; tells which were acknowledged."""
        acknowledged = self._standing.settle(messages)
        self._left.set()
        return acknowledged


def _tree_of(delivery: Delivery) -> str:
    """The tree that a record names; what cannot be read shares a lane."""
    try:
        return msgspec.json.decode(delivery.value or b"", type=_Address).tree
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return ""
