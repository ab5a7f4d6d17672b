"""Models that are watched: an embedder that tells how long queries kept it, a summarizer that tells what it was asked."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.model import Vector
from memory.ports.embedder import Embedder, EmbeddingModel, Purpose
from memory.ports.summarizer import Summarizer, Summary, SummaryRequest, estimate_tokens


@dataclass(slots=True)
class Asked:
    """What a summarizer was asked, whether or not a model is behind it."""

    calls: int = 0
    tokens_in: int = 0
    """Of the texts that were given, estimated as characters / 4; prompts not counted."""
    tokens_out: int = 0


class TimedEmbedder(Embedder):
    """
    Another embedder, with a stopwatch. What it tells is only right for queries that are asked one after the other.

    Args:
        inner: does the work.
        known: vectors of documents by their text, which are not asked for again; gets none.
    """

    def __init__(self, inner: Embedder, *, known: Mapping[str, Vector] | None = None) -> None:
        self._inner = inner
        self._known = known or {}
        self._query_s = 0.0

    @property
    def model(self) -> EmbeddingModel:
        """The inner one's."""
        return self._inner.model

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """See `Embedder.embed`."""
        if purpose == "document" and self._known and all(text in self._known for text in texts):
            return np.stack([self._known[text] for text in texts])
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


class CountedSummarizer(Summarizer):
    """
    Another summarizer, counted: what a model in its place would have been asked.

    Args:
        inner: does the work.
    """

    def __init__(self, inner: Summarizer) -> None:
        self._inner = inner
        self.asked = Asked()

    @property
    def name(self) -> str:
        """The inner one's."""
        return self._inner.name

    @property
    def vector_from_text(self) -> bool:
        """The inner one's."""
        return self._inner.vector_from_text

    @property
    def tokens_max(self) -> int:
        """The inner one's."""
        return self._inner.tokens_max

    async def summarize(self, request: SummaryRequest) -> Summary:
        """See `Summarizer.summarize`."""
        summary = await self._inner.summarize(request)
        self.asked.calls += 1
        self.asked.tokens_in += sum(map(estimate_tokens, (*request.new, *([request.existing] if request.existing else []))))
        self.asked.tokens_out += estimate_tokens(summary.text)
        return summary

    async def close(self) -> None:
        """Close the inner one."""
        await self._inner.close()
