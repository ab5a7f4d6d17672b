"""A context filter that keeps what holds a word."""

from __future__ import annotations

from collections.abc import Sequence

from memory.errors import FilterError
from memory.ports.context_filter import ContextFilter


class FakeContextFilter(ContextFilter):
    """
    Keeps passages with a word.

    Args:
        word: of those that stay.
        away: it always fails with this.
    """

    def __init__(self, word: str, *, away: str = "") -> None:
        self._word = word
        self._away = away
        self.asked: list[str] = []

    @property
    def name(self) -> str:
        """See `ContextFilter.name`."""
        return "fake:words"

    async def keep(self, question: str, passages: Sequence[str]) -> str:
        """See `ContextFilter.keep`."""
        self.asked.append(question)
        if self._away:
            raise FilterError(self._away)
        return "\n".join(each for each in passages if self._word in each)
