"""An embedder that fails on demand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import EmbedderError
from memory.ports.embedder import Embedder, EmbeddingModel, Purpose


class EmbedderFault(StrEnum):
    """What a call does instead of answering well."""

    NAN = "nan"
    ZERO = "zero"
    DIMENSION = "dimension"
    FEW = "few"
    BUSY = "busy"
    HANG = "hang"


class FakeEmbedder(Embedder):
    """
    The same vector for the same text; near in words is near in vectors.

    Args:
        dimension: of the vectors.
        name: of the model.
        faults: what the next calls do, one each; afterwards all is well.
        retry_after: seconds that a busy one asks to wait.
    """

    def __init__(
        self,
        dimension: int = 16,
        *,
        name: str = "fake:words",
        faults: Iterable[EmbedderFault] = (),
        retry_after: float | None = None,
    ) -> None:
        self._words = HashingEmbedder(dimension)
        self._model = EmbeddingModel(name=name, dimension=dimension, unrelated_cosine=0.0)
        self._retry_after = retry_after
        self.faults = deque(faults)
        self.calls: list[tuple[str, ...]] = []
        """The texts of each call, failed ones included."""

    @property
    def model(self) -> EmbeddingModel:
        return self._model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        self.calls.append(tuple(texts))
        fault = self.faults.popleft() if self.faults else None
        if fault is EmbedderFault.BUSY:
            raise EmbedderError("the fake model is busy (429)", retry_after=self._retry_after)
        if fault is EmbedderFault.HANG:
            await asyncio.Event().wait()
        vectors = await self._words.embed(texts, purpose=purpose)
        match fault:
            case EmbedderFault.NAN:
                vectors[-1, 0] = np.nan
            case EmbedderFault.ZERO:
                vectors[-1] = 0.0
            case EmbedderFault.DIMENSION:
                vectors = np.ascontiguousarray(vectors[:, :-1])
            case EmbedderFault.FEW:
                vectors = vectors[:-1]
            case _:
                pass
        return vectors
