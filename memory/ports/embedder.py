"""Texts to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from memory.model import EmbeddingModel

Purpose = Literal["document", "query"]
"""What a text is embedded for; models that tell the two apart add their own prefix."""


__all__ = ["Embedder", "EmbeddingModel", "Purpose"]


class Embedder(ABC):
    """
    Embeds texts in batches.

    Implementations must be safe for concurrent calls, must not block the event loop, must not alter the texts' order, and must
    cut or average texts longer than the model's window themselves.
    """

    @property
    @abstractmethod
    def model(self) -> EmbeddingModel:
        """The space the vectors live in; constant over the embedder's life."""

    @abstractmethod
    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """
        Embed texts.

        Args:
            texts: any number, also none; each non-empty.
            purpose: what the vectors are for.

        Returns:
            (len(texts), dimension) float32, rows of unit length, in the order of the texts.

        Raises:
            EmbedderError: the model is away or refused for now; nothing was embedded.
            EmbedderAnswerError: the model's answer is no embedding (NaN, wrong dimension, wrong count, a zero vector).
        """

    async def close(self) -> None:  # noqa: B027  # most embedders hold nothing
        """Release what the embedder holds; it is not used afterwards."""
