"""What `CallBudget` promises (memory/ports/budget.py), over every adapter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from memory.ports.budget import BURST, CallBudget, Rate
from tests.contract.conftest import Elapse, Family

pytestmark = pytest.mark.real_time
MakeBudget = Callable[[Rate], CallBudget]
WAIT_MAX = 3_600.0
NEAR = 0.1
"""Seconds that rounding and a call may take; what a whole test's calls take on a busy machine is added."""


@pytest.fixture
def make(family: Family) -> MakeBudget:
    return lambda rate: family.budget("provider", rate)


async def waits(budget: CallBudget, count: int, tokens: int = 0) -> list[float]:
    return [(await budget.take(tokens, wait_max=WAIT_MAX)).wait for _ in range(count)]


class Near:
    """Equal but for the time that passed since it was made."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def __call__(self, seconds: float, scale: float = 1.0) -> object:
        return pytest.approx(seconds, abs=(NEAR + time.monotonic() - self._start) * scale)


@pytest.fixture
def near() -> Near:
    return Near()


async def test_without_limits_nobody_waits(make: MakeBudget) -> None:
    assert set(await waits(make(Rate()), 50, tokens=1_000_000)) == {0.0}


async def test_a_burst_is_let_through_then_the_rate_holds(make: MakeBudget, near: Near) -> None:
    budget = make(Rate(requests_per_minute=600))
    found = await waits(budget, 100)
    burst = int(BURST * 10)
    assert sum(wait == 0.0 for wait in found) == near(burst, 20)
    assert found[-1] == near((100 - burst) / 10)
    assert found == sorted(found), "who asks later has a later turn"


async def test_the_rate_of_tokens_holds_too(make: MakeBudget, near: Near) -> None:
    found = await waits(make(Rate(requests_per_minute=6_000, tokens_per_minute=60_000)), 20, tokens=1_000)
    assert sum(wait == 0.0 for wait in found) == near(BURST + 1, 10)
    assert found[-1] == near(20 - BURST - 1, 10)


async def test_a_call_that_costs_more_than_a_bucket_holds_is_let_through_and_paid_for_by_the_next(
    make: MakeBudget, near: Near
) -> None:
    budget = make(Rate(tokens_per_minute=600))
    first, second = await waits(budget, 2, tokens=1_000)
    assert first == 0.0
    assert second == near(100 - BURST)


async def test_what_would_wait_too_long_takes_nothing(make: MakeBudget, near: Near) -> None:
    budget = make(Rate(tokens_per_minute=600))
    await budget.take(1_000, wait_max=WAIT_MAX)
    for _ in range(5):
        turn = await budget.take(1_000, wait_max=1.0)
        assert not turn.granted
        assert turn.wait == near(100 - BURST)
    assert (await budget.take(0, wait_max=WAIT_MAX)).wait == near(100 - BURST)


async def test_what_was_not_used_comes_back_with_time(make: MakeBudget, elapse: Elapse) -> None:
    budget = make(Rate(requests_per_minute=600))
    before = (await waits(budget, 100))[-1]
    await elapse(2)
    [after] = await waits(budget, 1)
    assert before - 2.1 <= after < before


async def test_the_cost_of_a_call_is_put_right(make: MakeBudget, near: Near) -> None:
    budget = make(Rate(tokens_per_minute=600))
    await budget.take(1_000, wait_max=WAIT_MAX)
    await budget.correct(-800)
    assert (await budget.take(0, wait_max=WAIT_MAX)).wait == near(20 - BURST)
    await budget.correct(100)
    assert (await budget.take(0, wait_max=WAIT_MAX)).wait == near(30 - BURST)


@pytest.mark.parametrize("rate", [Rate(), Rate(requests_per_minute=600, tokens_per_minute=60_000)])
async def test_a_pause_holds_everybody_back_and_is_never_shortened(make: MakeBudget, near: Near, rate: Rate) -> None:
    budget = make(rate)
    assert await budget.paused() == 0
    await budget.pause(50)
    await budget.pause(20)
    assert await budget.paused() == near(50)
    assert (await budget.take(0, wait_max=WAIT_MAX)).wait == near(50)
    assert not (await budget.take(0, wait_max=5.0)).granted


async def test_after_a_pause_not_all_come_at_once(make: MakeBudget, near: Near) -> None:
    budget = make(Rate(requests_per_minute=600))
    await budget.pause(10)
    found = await waits(budget, 50)
    assert found[-1] - found[0] == near(4.9)


async def test_many_at_once_are_given_different_turns(make: MakeBudget, near: Near) -> None:
    budget = make(Rate(requests_per_minute=60))
    await budget.pause(1)
    turns = await asyncio.gather(*(budget.take(0, wait_max=WAIT_MAX) for _ in range(20)))
    assert max(turn.wait for turn in turns) == near(20)


async def test_all_that_name_a_provider_share_its_budget(family: Family) -> None:
    rate = Rate(requests_per_minute=60)
    one, same, other = (family.budget(name, rate) for name in ("a", "a", "b"))
    await one.pause(30)
    assert await same.paused() > 0
    assert await other.paused() == 0
