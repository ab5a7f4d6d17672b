"""How much waits in the store is looked at now and then, and never at the cost of the work."""

from __future__ import annotations

import asyncio
from typing import cast

from memory.adapters.embedded.claims import InProcessClaims
from memory.errors import StoreUnavailableError
from memory.ports.store import Pending, TreeStore
from streams.workers.waiting import EVERY, SHARE, TURN, Waiting
from tests.fakes.virtual_time import LoopClock, run_virtually


class Store:
    """Has more waiting at each look."""

    def __init__(self) -> None:
        self.looks: list[float] = []
        self.seconds = 0.0
        self.away = False

    async def pending(self) -> Pending:
        self.looks.append(asyncio.get_running_loop().time())
        await asyncio.sleep(self.seconds)
        if self.away:
            raise StoreUnavailableError("the fake store is away")
        return Pending(trees=1, contributions=len(self.looks), nodes=1)


def test_it_is_looked_at_every_so_often_and_what_was_seen_last_stays_while_the_store_is_away() -> None:
    async def main() -> None:
        store = Store()
        clock = LoopClock()
        waiting = Waiting(cast("TreeStore", store), InProcessClaims(clock), clock)
        waiting.start()
        await asyncio.sleep(EVERY / 2)
        assert waiting.found == Pending(trees=1, contributions=1, nodes=1)
        store.away = True
        await asyncio.sleep(10 * EVERY)
        assert waiting.found == Pending(trees=1, contributions=1, nodes=1)
        store.away = False
        await asyncio.sleep(EVERY)
        assert waiting.found == Pending(trees=1, contributions=12, nodes=1)
        assert [round(look / EVERY, 3) for look in store.looks] == list(range(12))
        await waiting.stop()
        await waiting.stop()
        await asyncio.sleep(10 * EVERY)
        assert len(store.looks) == 12

    run_virtually(main())


def test_one_of_several_looks_until_it_stops_and_then_another_does() -> None:
    async def main() -> None:
        clock, store = LoopClock(), Store()
        claims = InProcessClaims(clock)
        workers = [Waiting(cast("TreeStore", store), claims, clock) for _ in range(3)]
        for each in workers:
            each.start()
        await asyncio.sleep(9.5 * EVERY)
        assert len(store.looks) == 10, "no matter how many workers there are"
        looks, *others = sorted(workers, key=lambda each: each.found is None)
        assert looks.found == Pending(trees=1, contributions=10, nodes=1)
        assert [each.found for each in others] == [None, None]
        await looks.stop()
        await asyncio.sleep(EVERY)
        assert len(store.looks) == 11
        assert sum(each.found is not None for each in others) == 1
        for each in others:
            await each.stop()

    run_virtually(main())


def test_one_that_is_gone_without_a_word_is_replaced_and_says_nothing_when_it_comes_back() -> None:
    async def main() -> None:
        clock, store = LoopClock(), Store()
        claims = InProcessClaims(clock)
        hung, other = (Waiting(cast("TreeStore", store), claims, clock) for _ in range(2))
        hung.start()
        await asyncio.sleep(EVERY / 2)
        other.start()
        store.seconds = 10 * TURN.total_seconds()
        await asyncio.sleep(EVERY)
        assert (len(store.looks), other.found) == (2, None), "the first is in its second look, and stays there"
        store.seconds = 0.0
        await asyncio.sleep(TURN.total_seconds() + EVERY)
        assert other.found is not None
        await asyncio.sleep(10 * TURN.total_seconds())
        assert hung.found is None, "it was told that its turn is over"
        for each in (hung, other):
            await each.stop()

    run_virtually(main())


def test_a_look_that_takes_long_is_seldom() -> None:
    async def main() -> None:
        store = Store()
        store.seconds = EVERY
        clock = LoopClock()
        waiting = Waiting(cast("TreeStore", store), InProcessClaims(clock), clock)
        waiting.start()
        await asyncio.sleep(10 * SHARE * EVERY)
        assert len(store.looks) <= 10
        await waiting.stop()

    run_virtually(main())
