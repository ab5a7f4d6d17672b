"""Which domain, category and memory trace something belongs to (H-MEM, section 3.1)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

Labels = tuple[str, str, str]
"""Domain, category and memory trace, from the general to the particular; each a few words, never empty."""


class LabelExtractor(ABC):
    """
    Says where things belong. Safe for concurrent calls; bounds its own time.

    What it says of one text may differ from call to call: what it once said is kept with the episode, and is what a replay reads.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """Scheme and model, e.g. `openai:gpt-5-mini`."""

    @property
    @abstractmethod
    def texts_max(self) -> int:
        """Texts of one call at most."""

    @abstractmethod
    async def labels(self, texts: Sequence[str], *, known: Sequence[Labels]) -> list[Labels]:
        """
        The labels of each text, in order.

        Args:
            texts: 1 to `texts_max`, each with its speaker and date where it has them.
            known: what others of the tree were labelled, so that what belongs together is called the same; may be empty.

        Raises:
            LabelError: the model is away or refused for now, or its answers were unusable each time.
            SettingError: the key or the model was refused.
        """

    async def close(self) -> None:  # noqa: B027  # most hold nothing
        """Release what it holds; it is not used afterwards."""
