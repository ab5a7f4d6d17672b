"""The `fastembed:<model>` embedder."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from memory.errors import EmbedderAnswerError, SettingError
from memory.ports import embedder as ports

_TEXTS_A_CALL: Final = 64


class TextEmbedding(Protocol):
    """What is used of the library's class of that name."""

    def passage_embed(self, texts: Iterable[str], **kwargs: Any) -> Iterable[NDArray[np.float32]]:
        """Vectors of documents."""

    def query_embed(self, query: str | Iterable[str], **kwargs: Any) -> Iterable[NDArray[np.float32]]:
        """Vectors of queries."""


class FastembedEmbedder(ports.Embedder):
    """
    A model of the library fastembed, on ONNX Runtime; the library fetches the weights.

    The library cuts texts at the model's window. One thread calls it.

    Args:
        name: the model's name there, e.g. `BAAI/bge-small-en-v1.5`.
        dimension: length of its vectors.
        library: the loaded model.
        unrelated_cosine: zero of calibrated cosine; measure it with `memory.ports.embedder.measure_unrelated_cosine`.
    """

    def __init__(self, *, name: str, dimension: int, library: TextEmbedding, unrelated_cosine: float = 0.0) -> None:
        self._model = ports.EmbeddingModel(name=f"fastembed:{name}", dimension=dimension, unrelated_cosine=unrelated_cosine)
        self._library = library
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="fastembed")

    @classmethod
    def open(cls, name: str, *, cache_dir: Path | None = None, threads: int | None = None, unrelated_cosine: float = 0.0) -> Self:
        """
        Load a model, fetching it when the library has not yet.

        Raises:
            SettingError: the library is missing, knows no such model, or cannot load it.
        """
        try:
            import fastembed  # noqa: PLC0415  # optional
        except ImportError as error:
            raise SettingError(f"The embedder fastembed:{name} needs its library: `pip install fastembed`.") from error
        try:
            library = fastembed.TextEmbedding(name, cache_dir=str(cache_dir) if cache_dir else None, threads=threads)
            dimension = len(next(iter(library.passage_embed(["length"]))))
        except Exception as error:  # the library passes on its own, the hub's and the runtime's errors
            raise SettingError(f"The library fastembed cannot load {name!r}: {type(error).__name__}: {error}") from error
        return cls(name=name, dimension=dimension, library=library, unrelated_cosine=unrelated_cosine)

    @property
    def model(self) -> ports.EmbeddingModel:
        """`fastembed:<model>`."""
        return self._model

    async def embed(self, texts: Sequence[str], *, purpose: ports.Purpose = "document") -> NDArray[np.float32]:
        """Embed; see the port."""
        vectors = np.empty((len(texts), self._model.dimension), np.float32)
        loop = asyncio.get_running_loop()
        for start in range(0, len(texts), _TEXTS_A_CALL):
            some = [text.encode("utf-8", "replace").decode() for text in texts[start : start + _TEXTS_A_CALL]]
            rows = await loop.run_in_executor(self._pool, self._rows, some, purpose)
            if len(rows) != len(some) or any(np.shape(row) != (self._model.dimension,) for row in rows):
                raise EmbedderAnswerError(f"{self._model.name} gave too few vectors or vectors of another length.")
            vectors[start : start + len(some)] = rows
        norms = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(norms).all() and (norms > 0).all()):
            raise EmbedderAnswerError(f"{self._model.name} gave a vector with NaN or nothing but zeros.")
        return np.asarray(vectors / norms, np.float32)

    async def close(self) -> None:
        """Let the thread go; may be called again."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _rows(self, texts: list[str], purpose: ports.Purpose) -> list[NDArray[np.float32]]:
        embed = self._library.query_embed if purpose == "query" else self._library.passage_embed
        return list(embed(texts))
