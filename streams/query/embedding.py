"""Vectors of queries: asked for once, and not waited for when the model is away."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.errors import EmbedderError
from memory.model import EmbeddingModel
from memory.ports.embedder import Embedder, Purpose

ENTRY_OVERHEAD = 200
"""Bytes of one entry beside its text and its vector, roughly."""
AGAIN_AFTER = 2.0  # seconds
"""How long queries do not ask a model that has just failed."""


class QueryEmbedder(Embedder):
    """
    An embedder that remembers the vectors of queries and gives up on a slow model early.

    Documents go straight through: whoever writes waits, whoever asks is answered without.

    Args:
        inner: the model; closed with this.
        bytes_max: memory for vectors; 0 keeps none.
        patience: seconds that a query waits for the model.
        now: monotonic seconds.
    """

    def __init__(self, inner: Embedder, *, bytes_max: int, patience: float, now: Callable[[], float] = time.monotonic) -> None:
        self._inner = inner
        self._bytes_max = bytes_max
        self._patience = patience
        self._now = now
        self._kept: OrderedDict[str, NDArray[np.float32]] = OrderedDict()
        self._away_until = -np.inf
        self.away: EmbedderError | None = None
        """Why the last call for a query failed; None when it did not."""
        self.bytes = 0
        self.hits = 0
        self.misses = 0

    @property
    def model(self) -> EmbeddingModel:
        """See `Embedder.model`."""
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        if purpose != "query":
            return await self._inner.embed(texts, purpose=purpose)
        missing = [text for text in dict.fromkeys(texts) if text not in self._kept]
        self.hits += len(texts) - len(missing)
        self.misses += len(missing)
        found = {text: self._kept[text] for text in texts if text in self._kept}
        for text in found:
            self._kept.move_to_end(text)
        if missing:
            vectors = await self._ask(missing)
            if vectors.shape != (len(missing), self.model.dimension):
                # Whoever called knows how to say what is wrong with it.
                return vectors
            for text, vector in zip(missing, vectors, strict=True):
                found[text] = vector
                self._keep(text, vector)
        return np.stack([found[text] for text in texts]) if texts else np.empty((0, self.model.dimension), np.float32)

    async def close(self) -> None:
        """See `Embedder.close`."""
        self._kept.clear()
        await self._inner.close()

    async def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.away is not None and self._now() < self._away_until:
            raise EmbedderError(str(self.away), retry_after=max(0.0, self._away_until - self._now())) from self.away
        try:
            async with asyncio.timeout(self._patience):
                vectors = await self._inner.embed(texts, purpose="query")
        except TimeoutError as error:
            raise self._gone(EmbedderError(f"{self.model.name} did not answer within {self._patience:g} s")) from error
        except EmbedderError as error:
            raise self._gone(error) from error
        self.away = None
        return vectors

    def _gone(self, error: EmbedderError) -> EmbedderError:
        self.away = error
        self._away_until = self._now() + max(AGAIN_AFTER, min(error.retry_after or 0.0, 60.0))
        return error

    def _keep(self, text: str, vector: NDArray[np.float32]) -> None:
        if not np.isfinite(vector).all():
            return
        size = _size(text, vector)
        if text in self._kept or size > self._bytes_max:
            return
        self._kept[text] = vector.copy()
        self.bytes += size
        while self.bytes > self._bytes_max:
            old, dropped = self._kept.popitem(last=False)
            self.bytes -= _size(old, dropped)


def _size(text: str, vector: NDArray[np.float32]) -> int:
    # A character takes up to four bytes in memory.
    return 4 * len(text) + int(vector.nbytes) + ENTRY_OVERHEAD
