"""Texts to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Purpose = Literal["document", "query"]
"""What a text is embedded for; models that tell the two apart add their own prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingModel:
    """What identifies an embedding space; a tree remembers it and refuses another."""

    name: str
    """Scheme and model, e.g. `local:all-MiniLM-L6-v2`. Precision is not part of it where vectors stay comparable."""
    dimension: int
    """Length of a vector, 1 to 8192."""
    unrelated_cosine: float
    """Mean cosine of unrelated texts under this model, in [-1, 1). The zero of calibrated cosine (design section 3):
    `similarity = (cosine - unrelated_cosine) / (1 - unrelated_cosine)`, rescaled so that MiniLM's own cosines stay as they are."""


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
