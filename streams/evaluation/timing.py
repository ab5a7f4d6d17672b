"""An embedder that tells how long queries kept it, so that a search's time can be given with and without it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.ports.embedder import Embedder, EmbeddingModel, Purpose


class TimedEmbedder(Embedder):
    """
    Another embedder, with a stopwatch. What it tells is only right for queries that are asked one after the other.

    Args:
        inner: does the work.
    """

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._query_s = 0.0

    @property
    def model(self) -> EmbeddingModel:
        """The inner one's."""
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        started = time.perf_counter()
        vectors = await self._inner.embed(texts, purpose=purpose)
        if purpose == "query":
            self._query_s += time.perf_counter() - started
        return vectors

    def take_query_s(self) -> float:
        """Seconds spent on queries since the last call."""
        spent, self._query_s = self._query_s, 0.0
        return spent

    async def close(self) -> None:
        """Close the inner one."""
        await self._inner.close()
