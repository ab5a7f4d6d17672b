"""Rates and requests at once, by key, under any clock."""

from __future__ import annotations

import pytest

from streams.query import limits as module
from streams.query.limits import Limits
from streams.query.problems import Problem


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def take(limits: Limits, key: str = "k", rate: float | None = None) -> bool:
    try:
        with limits.request(key, rate):
            return True
    except Problem:
        return False


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    limits = Limits(rate=10, concurrency=5, now=clock)
    assert sum(take(limits) for _ in range(100)) == 10 * module.BURST_SECONDS
    clock.now += 1.0
    assert sum(take(limits) for _ in range(100)) == 10
    clock.now += 1_000.0
    assert sum(take(limits) for _ in range(100)) == 10 * module.BURST_SECONDS


def test_it_says_when_there_is_room_again() -> None:
    limits = Limits(rate=0.25, concurrency=5, now=Clock())
    take(limits)
    with pytest.raises(Problem) as caught, limits.request("k"):
        pass
    assert caught.value.retry_after == pytest.approx(4.0)


def test_a_clock_that_goes_back_gives_and_takes_nothing() -> None:
    clock = Clock()
    limits = Limits(rate=1, concurrency=5, now=clock)
    assert [take(limits) for _ in range(3)] == [True, True, False]
    clock.now -= 50.0
    assert not take(limits)
    clock.now += 1.0
    assert take(limits)


def test_streams_count_as_requests_at_once() -> None:
    limits = Limits(rate=1_000, concurrency=2, now=Clock())
    with limits.stream("k"), limits.stream("k"):
        assert not take(limits)
        assert take(limits, "other")
    assert take(limits)


def test_keys_that_come_and_go_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEYS_MAX", 10)
    limits = Limits(rate=1, concurrency=1, now=Clock())
    with limits.request("held"):
        for number in range(100):
            take(limits, f"k{number}")
        assert len(limits._states) <= 10
        assert not take(limits, "held"), "one with a request in hand is not forgotten"
