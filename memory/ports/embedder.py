"""Texts to vectors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from memory.model import EmbeddingModel

Purpose = Literal["document", "query"]
"""What a text is embedded for; models that tell the two apart add their own prefix."""


__all__ = ["ANCHOR_COSINE", "Embedder", "EmbeddingModel", "Purpose", "measure_unrelated_cosine"]

ANCHOR_COSINE: Final = 0.21
"""
Mean cosine of unrelated texts under MiniLM: 0.206, standard deviation 0.11, over turns of different LoCoMo conversations.

Calibrated cosine is anchored there: on MiniLM's plain cosines the paper's thresholds work, so MiniLM states `unrelated_cosine` 0,
and a model whose unrelated texts have mean cosine m states (m - 0.21) / (1 - 0.21); its unrelated texts are then as similar, after
calibration, as MiniLM's are.
"""


class Embedder(ABC):
    """
    Embeds texts in batches.

    Implementations must be safe for concurrent calls, must not block the event loop, must not alter the texts' order, must cut or
    average texts longer than the model's window themselves, and must take any string that is not empty, also one of lone surrogates
    or control characters. `close` may be called more than once.
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
            SettingError: the service refused the key or does not know the model.
            EmbedderAnswerError: the model's answer is no embedding (NaN, wrong dimension, wrong count, a zero vector).
        """

    async def close(self) -> None:  # noqa: B027  # most embedders hold nothing
        """Release what the embedder holds; it is not used afterwards."""


async def measure_unrelated_cosine(embedder: Embedder, texts: Sequence[str]) -> float:
    """
    Measure what a model should state as `unrelated_cosine`.

    Args:
        embedder: gives the vectors.
        texts: at least two of the kind the memory will hold, drawn at random so that most pairs are unrelated; a few hundred do.

    Returns:
        The zero of calibrated cosine, anchored at MiniLM: near 0 for MiniLM itself, near 0.8 for models of the E5 family.

    Raises:
        ValueError: fewer than two texts.
    """
    count = len(texts)
    if count < 2:
        raise ValueError("a cosine needs two texts")
    total = (await embedder.embed(texts)).astype(np.float64).sum(axis=0)
    # The mean over all pairs without building their matrix: |sum of unit vectors|² = n + 2 · sum of the pairs' cosines.
    mean = (float(total @ total) - count) / (count * (count - 1))
    return (mean - ANCHOR_COSINE) / (1 - ANCHOR_COSINE)
