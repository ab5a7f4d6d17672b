"""Summaries of what lies below a node."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryRequest:
    """One aggregation (MemTree, section 3.1 and A.1.2): existing text and new texts, conditioned on the descendants."""

    existing: str
    """The node's present text; empty when it has none but a provisional one."""
    new: tuple[str, ...]
    """Texts that are not in it yet, oldest first; at least one. Each carries its speaker and date where it has them."""
    descendants: int
    """Leaves below the node, those in `new` included; at least 1. The more, the more abstract the summary."""
    covered: int
    """Leaves that `existing` already covers; 0 when it is empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """A usable summary and what it cost."""

    text: str
    """Never empty."""
    calls: int = 0
    """Model calls it took, retries included; 0 for a summarizer without a model."""
    tokens_in: int = 0
    tokens_out: int = 0


class Summarizer(ABC):
    """
    Aggregates texts into one.

    Implementations must be safe for concurrent calls, must not block the event loop, must bound their own time and the size of
    their answer, and retry on their own only within one bounded call budget.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Scheme and model, e.g. `extractive` or `openai:gpt-5-mini`."""

    @property
    @abstractmethod
    def vector_from_text(self) -> bool:
        """True: the summary's vector is the embedding of its text. False: it is the mean of the leaves it covers."""

    @property
    @abstractmethod
    def tokens_max(self) -> int:
        """Budget for `SummaryRequest.new` in one call, in tokens (estimated as characters / 4)."""

    @abstractmethod
    async def summarize(self, request: SummaryRequest) -> Summary:
        """
        Make one summary.

        Raises:
            SummarizerError: the model is away or refused for now.
            SummarizerAnswerError: the answers were unusable (empty, refused, truncated, too long); the old text must stay.
        """

    async def close(self) -> None:  # noqa: B027  # most summarizers hold nothing
        """Release what the summarizer holds; it is not used afterwards."""


def estimate_tokens(text: str) -> int:
    """Tokens of a text, roughly: four characters each, at least one. Good to ±30 % for English; budgets leave room for it."""
    return max(1, len(text) // 4)


def within_budget(texts: Sequence[str], tokens_max: int) -> int:
    """How many of the texts, from the first on, fit a budget of `tokens_max`; at least one when there is any."""
    used = 0
    for count, text in enumerate(texts):
        used += estimate_tokens(text)
        if used > tokens_max and count:
            return count
    return len(texts)
