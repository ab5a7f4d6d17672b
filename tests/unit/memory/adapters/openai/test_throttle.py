"""Calls wait for their turn, and what a provider says to one worker holds back all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from memory.adapters.embedded.budget import InProcessBudget
from memory.adapters.openai.summarizer import QUOTA_WAIT_S, OpenAISummarizer
from memory.errors import SettingError, StoreUnavailableError, SummarizerError
from memory.ports.budget import CallBudget, Rate, Turn
from memory.ports.summarizer import SummaryRequest
from tests.fakes.clock import FakeClock
from tests.fakes.openai_server import FakeOpenAIServer

REQUEST = SummaryRequest(existing="Ana plays the cello.", new=("Ana: I moved.", "Ben: To Lisbon?"), descendants=9, covered=7)


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as running:
        yield running


class Party:
    """Workers that share a budget; sleeping moves the clock."""

    def __init__(self, server: FakeOpenAIServer) -> None:
        self.server = server
        self.clock = FakeClock()
        self.slept: list[float] = []
        self.workers: list[OpenAISummarizer] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await self.clock.advance(seconds)

    def budget(self, **limits: int) -> InProcessBudget:
        return InProcessBudget(Rate(**limits), self.clock)

    def worker(self, budget: CallBudget, *, wait_max: float = 10.0, attempts: int = 3) -> OpenAISummarizer:
        made = OpenAISummarizer(
            model="fake",
            api_key=None,
            base_url=self.server.base_url,
            sleep=self.sleep,
            budget=budget,
            wait_max=wait_max,
            attempts=attempts,
        )
        self.workers.append(made)
        return made


@pytest.fixture
async def party(server: FakeOpenAIServer) -> AsyncIterator[Party]:
    made = Party(server)
    yield made
    for worker in made.workers:
        await worker.close()


async def test_calls_are_made_at_the_rate_that_is_given(party: Party) -> None:
    one = party.worker(budget := party.budget(requests_per_minute=60))
    two = party.worker(budget)
    for _ in range(10):
        await one.summarize(REQUEST)
        await two.summarize(REQUEST)
    assert party.clock.monotonic() == pytest.approx(20 - 6 - 1, abs=0.1)
    assert one.throttle is not None
    assert (one.throttle.counts.turns, one.throttle.counts.refused) == (10, 0)
    assert one.throttle.counts.waited_s == pytest.approx(sum(party.slept) / 2, abs=1.1)


async def test_what_a_call_really_cost_is_what_counts(party: Party) -> None:
    worker = party.worker(budget := party.budget(tokens_per_minute=6_000))
    summary = await worker.summarize(REQUEST)
    turn = await budget.take(0, wait_max=1_000)
    # A hundred tokens a second, six seconds in hand.
    assert turn.wait == pytest.approx(max(0.0, (summary.tokens_in + summary.tokens_out) / 100 - 6), abs=0.01)


async def test_one_that_is_told_to_wait_holds_back_all(party: Party) -> None:
    one, two = (party.worker(budget) for budget in [party.budget()] * 2)
    party.server.fail_next("status", status=429, retry_after="7")
    await one.summarize(REQUEST)
    assert party.clock.monotonic() >= 7
    party.server.fail_next("status", status=429, retry_after="60")
    with pytest.raises(SummarizerError):
        await one.summarize(REQUEST)
    asked = len(party.server.requests)
    with pytest.raises(SummarizerError, match="asked to be left alone") as caught:
        await two.summarize(REQUEST)
    assert caught.value.retry_after == pytest.approx(60)
    assert len(party.server.requests) == asked
    await party.clock.advance(60)
    await two.summarize(REQUEST)


@pytest.mark.parametrize(("status", "message", "seconds"), [(429, "slow down", 0.5), (402, "please pay", QUOTA_WAIT_S)])
async def test_a_refusal_without_a_time_holds_back_all_too(party: Party, status: int, message: str, seconds: float) -> None:
    budget = party.budget()
    party.server.fail_next("status", status=status, message=message)
    with pytest.raises(SummarizerError):
        await party.worker(budget, attempts=1).summarize(REQUEST)
    assert await budget.paused() == pytest.approx(seconds)


@pytest.mark.parametrize("status", [500, 401])
async def test_other_failures_hold_back_nobody(party: Party, status: int) -> None:
    budget = party.budget()
    party.server.fail_next("status", status=status)
    with pytest.raises((SummarizerError, SettingError)):
        await party.worker(budget, attempts=1).summarize(REQUEST)
    assert await budget.paused() == 0


async def test_a_call_whose_turn_is_far_away_is_put_off_and_costs_nothing(party: Party) -> None:
    budget = party.budget(requests_per_minute=1)
    worker = party.worker(budget, wait_max=5.0)
    await worker.summarize(REQUEST)
    with pytest.raises(SummarizerError, match="used up") as caught:
        await worker.summarize(REQUEST)
    assert caught.value.retry_after == pytest.approx(54)
    assert len(party.server.requests) == 1
    assert worker.throttle is not None
    assert worker.throttle.counts.refused == 1


async def test_a_pause_that_begins_while_a_turn_is_waited_for_is_kept(party: Party) -> None:
    budget = party.budget(requests_per_minute=60)
    worker = party.worker(budget)
    for _ in range(7):
        await budget.take(0, wait_max=100)
    advance = party.sleep
    called = False

    async def sleep(seconds: float) -> None:
        nonlocal called
        await advance(seconds)
        if not called:
            called = True
            await budget.pause(4)

    assert worker.throttle is not None
    worker.throttle._sleep = sleep
    await worker.summarize(REQUEST)
    assert party.clock.monotonic() >= 5


class Away(InProcessBudget):
    """Its server is away."""

    async def take(self, tokens: int, *, wait_max: float) -> Turn:
        raise StoreUnavailableError(f"the budget is away for {tokens} tokens and {wait_max} s")


async def test_without_its_budget_no_call_is_made(party: Party) -> None:
    with pytest.raises(StoreUnavailableError):
        await party.worker(Away(Rate(), party.clock)).summarize(REQUEST)
    assert party.server.requests == []
