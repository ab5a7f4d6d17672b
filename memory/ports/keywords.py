"""Keywords of what was said: the coarsest of MemGAS' granularities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Keywords:
    """Phrases, and what they cost."""

    phrases: tuple[str, ...]
    """Most telling first, each once; empty where the texts hold none (greetings alone)."""
    calls: int = 0
    """Model calls it took, retries included; 0 for an extractor without a model."""
    tokens_in: int = 0
    tokens_out: int = 0


class KeywordExtractor(ABC):
    """
    Finds the words and short phrases that tell what texts are about (MemGAS, equation 1).

    Implementations must be safe for concurrent calls, must not block the event loop, and must bound their own time and the number
    and length of their phrases. A phrase has no line break and no comma followed by a space: phrases are kept joined by those.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Scheme and model, e.g. `extractive`."""

    @property
    @abstractmethod
    def tokens_max(self) -> int:
        """Budget for the texts of one call, in tokens (estimated as characters / 4)."""

    @abstractmethod
    async def keywords(self, texts: Sequence[str], *, existing: Sequence[str] = (), covered: int = 0) -> Keywords:
        """
        Find the keywords of a session that goes on.

        Args:
            texts: what is new, oldest first; at least one. Each carries its speaker and date where it has them.
            existing: the phrases so far, most telling first, of texts that are not given again. The answer stands for those texts
                too: it takes the place of these phrases.
            covered: leaves that the phrases so far stand for; 0 where there are none.

        Raises:
            SummarizerError: the model is away or refused for now.
            SummarizerAnswerError: its answers were unusable; what is there must stay.
        """

    async def close(self) -> None:  # noqa: B027  # most hold nothing
        """Release what it holds; it is not used afterwards."""
