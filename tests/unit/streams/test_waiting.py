"""How much waits in the store is looked at now and then, and never at the cost of the work."""

from __future__ import annotations

import asyncio
from typing import cast

from memory.errors import StoreUnavailableError
from memory.ports.store import Pending, TreeStore
from streams.workers.waiting import EVERY, SHARE, Waiting
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
        waiting = Waiting(cast("TreeStore", store), LoopClock())
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


def test_a_look_that_takes_long_is_seldom() -> None:
    async def main() -> None:
        store = Store()
        store.seconds = EVERY
        waiting = Waiting(cast("TreeStore", store), LoopClock())
        waiting.start()
        await asyncio.sleep(10 * SHARE * EVERY)
        assert len(store.looks) <= 10
        await waiting.stop()

    run_virtually(main())
