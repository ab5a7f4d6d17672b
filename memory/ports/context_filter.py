"""Takes out of what was found what does not matter to the question (MemGAS, section 2.4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence


class ContextFilter(ABC):
    """
    Keeps the parts of passages that bear on a question.

    What it gives is made of the passages' own words: it leaves out, and adds nothing. Implementations must be safe for concurrent
    calls, must not block the event loop, and must bound their own time.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Scheme and model, e.g. `openai:gpt-5-mini`."""

    @abstractmethod
    async def keep(self, question: str, passages: Sequence[str]) -> str:
        """
        The parts that matter, in the passages' order.

        Args:
            question: in words.
            passages: what was found, each with its speaker and date where it has them; at least one.

        Raises:
            FilterError: the model is away, refused for now, or answered with what is not of the passages; all of them stay.
        """

    async def close(self) -> None:  # noqa: B027  # most hold nothing
        """Release what it holds; it is not used afterwards."""
