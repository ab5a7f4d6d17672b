"""How long the stages of a use case take, for whoever asks; free of charge while nobody does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from memory.ports.clock import Clock


class Stages:
    """
    Times stages by name.

    Args:
        clock: what they are timed by.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.told: Callable[[str, float], None] | None = None
        """Called after each stage, also one that failed, with its name and the seconds it took, in the context it ran in."""

    def took(self, name: str, seconds: float) -> None:
        """A stage that was timed elsewhere has ended."""
        if self.told is not None:
            self.told(name, seconds)

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Time the body."""
        told = self.told
        if told is None:
            yield
            return
        start = self._clock.monotonic()
        try:
            yield
        finally:
            told(name, self._clock.monotonic() - start)
