"""An embedder for tests: hashed words, no model. Near in words is near in vectors; meaning plays no part. Never a default."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from memory.errors import SettingError
from memory.ports import embedder as ports

_WORD: Final = re.compile(r"\w+", re.UNICODE)


class HashingEmbedder(ports.Embedder):
    """
    Each word is a direction drawn from a hash of it; a text is the normalised sum over its words.

    The same on every machine and in every process. Unrelated texts are nearly orthogonal, the more so the higher the dimension.

    Args:
        dimension: length of the vectors, 2 to 8192.
    """

    def __init__(self, dimension: int = 64) -> None:
        if not 2 <= dimension <= 8192:
            raise SettingError(f"The hashing embedder's dimension must be 2 to 8192, not {dimension}.")
        self._dimension = dimension
        self._directions: dict[str, NDArray[np.float32]] = {}

    @property
    def model(self) -> ports.EmbeddingModel:
        """`hashing:<dimension>`."""
        return ports.EmbeddingModel(name=f"hashing:{self._dimension}", dimension=self._dimension, unrelated_cosine=0.0)

    async def embed(self, texts: Sequence[str], *, purpose: ports.Purpose = "document") -> NDArray[np.float32]:
        """Embed; see the port. Queries and documents are alike."""
        del purpose
        vectors = np.empty((len(texts), self._dimension), np.float32)
        for row, text in enumerate(texts):
            if row % 64 == 0:
                await asyncio.sleep(0)
            # A text without words is its own word, so that no vector is zero.
            words = _WORD.findall(text.casefold()) or [text]
            total = np.sum([self._direction(word) for word in words], axis=0)
            norm = np.linalg.norm(total)
            vectors[row] = total / norm if norm > 1e-6 else self._direction(text)
        return vectors

    def _direction(self, word: str) -> NDArray[np.float32]:
        known = self._directions.get(word)
        if known is None:
            seed = hashlib.blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest()
            drawn = np.random.default_rng(int.from_bytes(seed, "little")).standard_normal(self._dimension)
            known = self._directions[word] = np.asarray(drawn / np.linalg.norm(drawn), np.float32)
        return known
