"""How much one key may ask for: requests a second, and at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from streams.query.problems import Problem

BURST_SECONDS = 2.0
"""Seconds of the rate that may come at once after a pause."""
KEYS_MAX = 20_000


@dataclass(slots=True)
class _State:
    tokens: float
    at: float
    in_hand: int = 0


class Limits:
    """
    Rates and requests at once, by key; in this process.

    Args:
        rate: requests a second, of a key without one of its own.
        concurrency: requests of one key at once.
        now: monotonic seconds: no jump of the clock lets anybody in or keeps anybody out.
    """

    def __init__(self, *, rate: float, concurrency: int, now: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._concurrency = concurrency
        self._now = now
        self._states: OrderedDict[str, _State] = OrderedDict()

    @contextmanager
    def request(self, key: str, rate: float | None = None) -> Iterator[None]:
        """
        One request of a key.

        Raises:
            Problem: one too many (429).
        """
        state = self._take(key, rate or self._rate)
        if state.in_hand >= self._concurrency:
            raise Problem("concurrency", f"{self._concurrency} requests of this key are being answered; wait for one of them")
        with _held(state):
            yield

    @contextmanager
    def stream(self, key: str) -> Iterator[None]:
        """An answer that goes on after its request: counts as one of the key's requests at once for as long."""
        state = self._states.get(key)
        if state is None:
            state = self._states[key] = _State(tokens=self._rate, at=self._now())
        with _held(state):
            yield

    def _take(self, key: str, rate: float) -> _State:
        now = self._now()
        burst = max(1.0, rate * BURST_SECONDS)
        state = self._states.get(key)
        if state is None:
            self._drop()
            state = self._states[key] = _State(tokens=burst, at=now)
        self._states.move_to_end(key)
        state.tokens = min(burst, state.tokens + max(0.0, now - state.at) * rate)
        state.at = now
        if state.tokens < 1.0:
            raise Problem("rate", f"this key may ask {rate:g} times a second", retry_after=(1.0 - state.tokens) / rate)
        state.tokens -= 1.0
        return state

    def _drop(self) -> None:
        """Forget keys that ask for nothing just now; a key's own state is small, but keys come and go."""
        if len(self._states) >= KEYS_MAX:
            for key in [key for key, state in self._states.items() if not state.in_hand][: KEYS_MAX // 10]:
                del self._states[key]


@contextmanager
def _held(state: _State) -> Iterator[None]:
    state.in_hand += 1
    try:
        yield
    finally:
        state.in_hand -= 1
