"""The two clocks: the machine's, and the one that tests move."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from memory.adapters.embedded.clock import SystemClock
from tests.fakes.clock import FakeClock


async def test_the_system_clock() -> None:
    clock = SystemClock()
    before, wall = clock.monotonic(), clock.now()
    await clock.sleep(0)
    await clock.sleep(-1)
    await clock.sleep(0.01)
    assert clock.monotonic() - before >= 0.009
    assert clock.now() >= wall
    assert wall.utcoffset() == timedelta(0)


async def test_a_fake_clock_stands_still_until_it_is_moved() -> None:
    clock = FakeClock()
    start = clock.now()
    sleeper = asyncio.create_task(clock.sleep(5))
    await clock.advance(4.75)
    assert not sleeper.done()
    assert clock.sleeping == 1
    await clock.advance(0.5)
    assert sleeper.done()
    assert (clock.now() - start).total_seconds() == clock.monotonic() == 5.25


async def test_sleepers_wake_in_order_each_at_its_own_time() -> None:
    clock = FakeClock()
    woken: list[tuple[str, float]] = []

    async def sleep(name: str, *seconds: float) -> None:
        for some in seconds:
            await clock.sleep(some)
            woken.append((name, clock.monotonic()))

    tasks = [asyncio.create_task(sleep("a", 3, 3)), asyncio.create_task(sleep("b", 1, 1, 2)), asyncio.create_task(sleep("c", 3))]
    await clock.advance(10)
    assert woken == [("b", 1), ("b", 2), ("a", 3), ("c", 3), ("b", 4), ("a", 6)]
    await asyncio.gather(*tasks)


async def test_a_cancelled_sleeper_is_gone() -> None:
    clock = FakeClock()
    sleeper = asyncio.create_task(clock.sleep(1))
    await clock.settle()
    sleeper.cancel()
    await clock.advance(2)
    assert sleeper.cancelled()
    assert clock.sleeping == 0
