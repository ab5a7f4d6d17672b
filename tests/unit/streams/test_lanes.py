"""Trees take turns inside an ingest worker, and everything is acknowledged in order all the same (P8)."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from streams.acknowledging import Message
from streams.agents import lanes as lanes_module
from streams.agents.consuming import consume
from streams.agents.lanes import CALM, TURN, Lanes
from streams.deliveries import Delivery, Later
from streams.runtime import Runtime
from streams.settings import Settings
from tests.fakes.virtual_time import run_virtually


class Acknowledged:
    """By partition, in the order of the acknowledgements."""

    def __init__(self) -> None:
        self.offsets: dict[int, list[int]] = defaultdict(list)

    def message(self, offset: int, tree: str, *, partition: int = 0, value: bytes | None = None) -> Message:
        body = json.dumps({"id": str(offset), "text": "a text", "tree": tree}).encode() if value is None else value
        delivery = Delivery(topic="turns", partition=partition, offset=offset, key=b"k", value=body)
        return Message(delivery, lambda: self.offsets[partition].append(offset))


def lanes(*, window: int = 1_000, share: int = 4) -> Lanes:
    return Lanes(window=window, share=share, now=lambda: asyncio.get_running_loop().time())


def trees(messages: Sequence[Message]) -> list[str]:
    return [json.loads(message.delivery.value or b"")["tree"] for message in messages]


def test_a_batch_is_filled_from_all_trees_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "TURN", 1)

    async def main() -> None:
        made, acknowledged = lanes(), Acknowledged()
        made.stand([acknowledged.message(offset, "flood" if offset < 90 else f"t{offset}") for offset in range(95)])
        first = await made.take(8)
        assert Counter(trees(first)) == {"flood": 3, "t90": 1, "t91": 1, "t92": 1, "t93": 1, "t94": 1}
        assert Counter(trees(await made.take(8))) == {"flood": 4}, "its share, although there is room: others have just come"

    run_virtually(main())


def test_at_its_turn_a_tree_gives_several_records_so_that_they_share_a_commit() -> None:
    async def main() -> None:
        made, acknowledged = lanes(share=20), Acknowledged()
        made.stand([acknowledged.message(offset, f"t{offset % 10}") for offset in range(200)])
        batches = [trees(await made.take(40)) for _ in range(5)]
        assert [len(set(batch)) for batch in batches] == [*[40 // TURN] * 4, 10]
        assert len({tree for batch in batches[:2] for tree in batch}) == 10

    run_virtually(main())


def test_more_trees_than_a_batch_holds_all_have_their_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "TURN", 1)

    async def main() -> None:
        made, acknowledged = lanes(), Acknowledged()
        made.stand([acknowledged.message(offset, f"t{offset % 30}") for offset in range(90)])
        assert sorted(trees([*await made.take(10), *await made.take(10), *await made.take(10)])) == sorted(
            f"t{number}" for number in range(30)
        )

    run_virtually(main())


def test_a_tree_that_has_long_been_alone_fills_whole_batches() -> None:
    async def main() -> None:
        made, acknowledged = lanes(), Acknowledged()
        made.stand([acknowledged.message(offset, "only") for offset in range(50)])
        assert len(await made.take(20)) == 4
        await asyncio.sleep(CALM)
        assert len(await made.take(20)) == 20
        made.stand([acknowledged.message(51, "other"), acknowledged.message(52, "only")])
        assert Counter(trees(await made.take(20))) == {"only": 4, "other": 1}

    run_virtually(main())


def test_reading_stops_where_the_window_ends_and_goes_on_when_records_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        made, acknowledged = lanes(window=10), Acknowledged()
        made.stand([acknowledged.message(offset, "t") for offset in range(10)])
        waiting = asyncio.ensure_future(made.room())
        await asyncio.sleep(1)
        assert not waiting.done()
        made.settle(await made.take(4))
        made.committed()
        await waiting
        monkeypatch.setattr(lanes_module, "BYTES_MAX", 1_000)
        made.stand([acknowledged.message(10, "t", value=b"x" * 2_000)])
        waiting = asyncio.ensure_future(made.room())
        await asyncio.sleep(1)
        assert not waiting.done()
        while made.waiting:
            made.settle(await made.take(4))
        made.committed()
        await waiting

    run_virtually(main())


def test_records_behind_one_that_was_put_off_are_not_read_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes_module, "HELD_MAX", 20)

    async def main() -> None:
        made, acknowledged = lanes(window=10), Acknowledged()
        made.stand([acknowledged.message(0, "early")])
        (early,) = await made.take(1)
        made.put_off(early, 60.0)
        made.committed()
        for offset in range(1, 20):
            await asyncio.wait_for(made.room(), 1)
            made.stand([acknowledged.message(offset, "t")])
            made.settle(await made.take(1))
            made.committed()
        waiting = asyncio.ensure_future(made.room())
        await asyncio.sleep(1)
        assert not waiting.done()
        made.settle(await made.take(1))
        made.committed()
        await waiting
        assert acknowledged.offsets[0] == list(range(20))

    run_virtually(main())


def test_reading_goes_on_once_a_batch_is_committed_and_stops_while_it_is_not() -> None:
    async def main() -> None:
        made, acknowledged = lanes(), Acknowledged()
        made.stand([acknowledged.message(offset, "t") for offset in range(4)])
        taken = await made.take(4)
        waiting = asyncio.ensure_future(made.room())
        await asyncio.sleep(1)
        assert not waiting.done(), "nothing is committed"
        made.committed()
        await waiting
        assert not acknowledged.offsets
        made.stand([acknowledged.message(4, "t")])
        waiting = asyncio.ensure_future(made.room())
        made.settle(taken)
        assert acknowledged.offsets == {0: [0, 1, 2, 3]}
        await asyncio.sleep(1)
        assert not waiting.done(), "what came since is not committed"
        made.committed()
        await waiting

    run_virtually(main())


def test_what_cannot_be_read_has_a_lane_too() -> None:
    async def main() -> None:
        made, acknowledged = lanes(), Acknowledged()
        odd = [b"", b"\xff", b"{", b'{"tree":7}', b"[]"]
        made.stand([acknowledged.message(offset, "", value=value) for offset, value in enumerate(odd)])
        taken = [*await made.take(3), *await made.take(3)]
        made.settle(taken)
        assert acknowledged.offsets[0] == [0, 1, 2, 3, 4]

    run_virtually(main())


def test_whatever_is_taken_when_each_partition_is_acknowledged_in_order_and_each_tree_keeps_its_order() -> None:
    for seed in range(30):
        run_virtually(_at_random(random.Random(seed)))


async def _at_random(rng: random.Random) -> None:
    made, acknowledged = lanes(share=rng.randint(1, 8)), Acknowledged()
    offsets = [0, 0, 0]
    held: list[list[Message]] = []
    order: dict[tuple[str, int], list[int]] = defaultdict(list)
    for _ in range(100):
        if rng.random() < 0.5:
            came = []
            for _ in range(rng.randint(1, 12)):
                partition = rng.randrange(3)
                tree = "flood" if rng.random() < 0.7 else f"t{rng.randrange(5)}"
                came.append(acknowledged.message(offsets[partition], tree, partition=partition))
                offsets[partition] += 1
            made.stand(came)
        elif made.waiting and rng.random() < 0.7:
            batch = await made.take(rng.randint(1, 10))
            for message, tree in zip(batch, trees(batch), strict=True):
                order[tree, message.delivery.partition].append(message.delivery.offset)
            held.append(batch)
        elif held:
            made.settle(held.pop(rng.randrange(len(held))))
        for found in acknowledged.offsets.values():
            assert found == list(range(len(found)))
    while made.waiting:
        held.append(await made.take(10))
    for batch in held:
        made.settle(batch)
    assert [len(acknowledged.offsets[partition]) for partition in range(3)] == offsets
    assert made.in_hand == 0
    assert all(found == sorted(found) for found in order.values())


# ------------------------------------------------------------------------------------------------------------ the whole loop

BATCH, SHARE = 200, 64
COMMIT, RECORD, ROUND, SEND = 0.02, 0.000_5, 0.005, 0.005  # seconds
RATE = 16.0
"""Records a second of each of ten trees; the worker manages about 1,000 of one tree beside them."""
FLOODS = {
    "50 times the rate": [(number / (50 * RATE), "flood") for number in range(int(50 * RATE * 20))],
    "1,500 at once": [(5.0 + number * 1e-6, "flood") for number in range(1_500)],
}


class Worker:
    """What a worker's batches cost: a round, each record's embedding, and commits of a tree one after the other."""

    def __init__(self) -> None:
        self.done: dict[tuple[str, int], float] = {}
        self.batches = self
        self.failure: Exception | None = None
        self.stages = ()

    async def take(self, deliveries: Sequence[Delivery], *, committed: Callable[[], None]) -> None:
        if self.failure is not None:
            raise self.failure
        records = [(json.loads(delivery.value or b"")["tree"], delivery) for delivery in deliveries]
        largest = max(Counter(tree for tree, _ in records).values())
        await asyncio.sleep(ROUND + RECORD * len(records) + COMMIT * -(-largest // SHARE))
        now = asyncio.get_running_loop().time()
        for tree, delivery in records:
            self.done[tree, delivery.offset] = now
        committed()
        await asyncio.sleep(SEND)


class Event:
    """As Faust gives it."""

    def __init__(self, delivery: Delivery, acknowledged: list[int]) -> None:
        self.message = delivery
        self._acknowledged = acknowledged

    def ack(self) -> None:
        self._acknowledged.append(self.message.offset)


class Partition:
    """A stream of one partition, whose records are there from their time on."""

    def __init__(self, arrivals: Sequence[tuple[float, str]]) -> None:
        self.arrivals = sorted(arrivals)
        self.acknowledged: list[int] = []

    async def noack_take(self, most: int, within: float) -> AsyncIterator[list[Any]]:
        position = 0
        loop = asyncio.get_running_loop()
        while position < len(self.arrivals):
            await asyncio.sleep(max(0.0, self.arrivals[position][0] - loop.time()) + within)
            batch: list[Event] = []
            while position < len(self.arrivals) and len(batch) < most and self.arrivals[position][0] <= loop.time():
                value = json.dumps({"tree": self.arrivals[position][1]}).encode()
                delivery = Delivery(topic="turns", partition=0, offset=position, key=b"k", value=value)
                batch.append(Event(delivery, self.acknowledged))
                position += 1
            yield batch


def evenly(tree: str, rate: float, seconds: float, first: float = 0.0) -> list[tuple[float, str]]:
    return [(first + number / rate, tree) for number in range(int(rate * seconds))]


def others(seconds: float) -> list[tuple[float, str]]:
    return [each for number in range(10) for each in evenly(f"t{number}", RATE, seconds, first=0.013 * number)]


def waits(arrivals: Sequence[tuple[float, str]], *, share: int = SHARE) -> tuple[NDArray[np.float64], Partition]:
    """Seconds from arrival to commit, of all trees but the flood."""
    partition, worker = Partition(arrivals), Worker()

    async def main() -> None:
        async def opened(_settings: Settings) -> Any:
            return worker

        settings = Settings()
        object.__setattr__(settings.memory.ingest, "batch_items", share)
        await consume(partition, Runtime(settings, cast("Any", opened)))

    run_virtually(main())
    found = [worker.done[tree, offset] - at for offset, (at, tree) in enumerate(partition.arrivals) if tree != "flood"]
    return np.array(found), partition


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flooding_tree_makes_others_wait_no_more_than_three_times_as_long(flood: list[tuple[float, str]]) -> None:
    alone, _ = waits(others(20.0))
    beside, partition = waits([*others(20.0), *flood])
    assert np.percentile(beside, 99) <= 3 * np.percentile(alone, 99)
    assert partition.acknowledged == list(range(len(partition.arrivals)))


def test_in_order_of_arrival_they_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """That the test above can fail."""
    alone, _ = waits(others(20.0))
    monkeypatch.setattr(lanes_module, "_tree_of", lambda _: "")
    beside, _ = waits([*others(20.0), *FLOODS["1,500 at once"]], share=BATCH)
    assert np.percentile(beside, 99) > 3 * np.percentile(alone, 99)


def test_an_error_in_a_batch_ends_the_loop_with_it() -> None:
    ended: list[str] = []

    async def main() -> None:
        worker = Worker()
        worker.failure = ZeroDivisionError("a mistake")

        async def opened(_settings: Settings) -> Any:
            return worker

        partition = Partition(evenly("t", 10.0, 60.0))
        with pytest.raises(ZeroDivisionError):
            await consume(partition, Runtime(Settings(), cast("Any", opened), end=ended.append))
        assert partition.acknowledged == []
        assert asyncio.get_running_loop().time() < 1

    run_virtually(main())
    assert len(ended) == 1


def test_draining_begins_no_batch_and_leaves_the_rest_to_others() -> None:
    async def main() -> None:
        worker = Worker()

        async def opened(_settings: Settings) -> Any:
            return worker

        partition = Partition(evenly("t", 1_000.0, 10.0))
        runtime: Runtime[Any] = Runtime(Settings(), cast("Any", opened))
        consuming = asyncio.ensure_future(consume(partition, runtime))
        await asyncio.sleep(2)
        runtime.draining = True
        await asyncio.sleep(1)
        count = len(partition.acknowledged)
        await asyncio.sleep(5)
        assert len(partition.acknowledged) == count > 0
        consuming.cancel()
        await asyncio.gather(consuming, return_exceptions=True)

    run_virtually(main())


def test_what_is_put_off_comes_again_in_its_time_and_holds_up_acknowledgements_alone() -> None:
    class Putting(Worker):
        """Puts one record off, twice."""

        def __init__(self) -> None:
            super().__init__()
            self.tries: list[float] = []

        async def take(self, deliveries: Sequence[Delivery], *, committed: Callable[[], None]) -> Sequence[Later]:  # type: ignore[override]
            await super().take(deliveries, committed=committed)
            early = [each for each in deliveries if each.offset == 3]
            self.tries += [asyncio.get_running_loop().time() for _ in early]
            return [Later(each, 10.0) for each in early] if len(self.tries) < 3 else []

    async def main() -> None:
        worker = Putting()

        async def opened(_settings: Settings) -> Any:
            return worker

        partition = Partition(evenly("t", 10.0, 5.0))
        consuming = asyncio.ensure_future(consume(partition, Runtime(Settings(), cast("Any", opened))))
        await asyncio.sleep(9)
        assert partition.acknowledged == [0, 1, 2]
        assert len(worker.done) == len(partition.arrivals), "all others are dealt with meanwhile"
        await consuming
        assert partition.acknowledged == list(range(len(partition.arrivals)))
        first, second, third = worker.tries
        assert second - first == pytest.approx(10, abs=0.1)
        assert third - second == pytest.approx(10, abs=0.1)

    run_virtually(main())
