"""What people say of themselves: the facts of a profile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One sentence that says something of who says it."""

    text: str
    """Word for word, without line breaks, at most 240 characters."""
    worth: float
    """How much it says, above 0; comparable with other statements of the same finder."""


class StatementFinder(ABC):
    """
    Finds statements.

    Pure, safe for several threads, and fast (well under a millisecond a turn): of few turns it is called in the event loop.
    """

    @abstractmethod
    def statements(self, text: str) -> list[Statement]:
        """What the author of a text says in it of themselves, in the text's order; often nothing."""
