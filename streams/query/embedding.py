"""Vectors of queries: asked for once, several in one call, and not waited for when the model is away."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict, deque
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
CALLS_MAX = 4
"""Calls for queries at the same time; a model far away is not waited for by one after the other."""
TEXTS_MAX = 16
"""Queries of one call."""


class QueryEmbedder(Embedder):
    """
    An embedder that remembers the vectors of queries and gives up on a slow model early.

    Documents go straight through: whoever writes waits, whoever asks is answered without. Queries that come while `CALLS_MAX` calls
    run go into the next one together: a model takes half as long for them so.

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
        self._asked: dict[str, asyncio.Future[NDArray[np.float32]]] = {}
        """By text, a row each: what is waited for."""
        self._waiting: deque[str] = deque()
        """Texts that no call asks for yet."""
        self._calls: set[asyncio.Task[None]] = set()
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
        self._waiting.clear()
        for call in self._calls:
            call.cancel()
        await self._inner.close()

    async def _ask(self, texts: Sequence[str]) -> NDArray[np.float32]:
        if self.away is not None and self._now() < self._away_until:
            raise EmbedderError(str(self.away), retry_after=max(0.0, self._away_until - self._now())) from self.away
        rows = [self._row(text) for text in texts]
        self._call_on()
        try:
            async with asyncio.timeout(self._patience):
                # Others may wait for them too.
                return np.concatenate([await asyncio.shield(row) for row in rows])
        except TimeoutError as error:
            raise self._gone(self._too_late()) from error

    def _row(self, text: str) -> asyncio.Future[NDArray[np.float32]]:
        row = self._asked.get(text)
        if row is None:
            row = self._asked[text] = asyncio.get_running_loop().create_future()
            # Whoever asked may be gone by the time it fails.
            row.add_done_callback(lambda done: done.cancelled() or done.exception())
            self._waiting.append(text)
        return row

    def _call_on(self) -> None:
        while self._waiting and len(self._calls) < CALLS_MAX:
            texts = [self._waiting.popleft() for _ in range(min(TEXTS_MAX, len(self._waiting)))]
            call = asyncio.create_task(self._call(texts), name="banyan-embed-queries")
            self._calls.add(call)
            call.add_done_callback(self._called)

    def _called(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        self._call_on()

    async def _call(self, texts: Sequence[str]) -> None:
        """Ask for these, and tell whoever waits."""
        try:
            async with asyncio.timeout(self._patience):
                vectors = await self._inner.embed(texts, purpose="query")
        except TimeoutError:
            self._tell(texts, self._gone(self._too_late()))
        except EmbedderError as error:
            self._tell(texts, self._gone(error))
        except asyncio.CancelledError:
            self._tell(texts, EmbedderError(f"{self.model.name} is closed"))
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, it is for those who asked
            if len(texts) == 1:
                self._tell(texts, error)
            for text in texts if len(texts) > 1 else ():
                # One text's fault is not the others'.
                await self._call([text])
        else:
            self.away = None
            fits = len(vectors) == len(texts)
            for number, text in enumerate(texts):
                self._tell([text], vectors[number : number + 1] if fits else vectors[:0])

    def _tell(self, texts: Sequence[str], found: NDArray[np.float32] | Exception) -> None:
        for text in texts:
            row = self._asked.pop(text)
            if isinstance(found, Exception):
                row.set_exception(found)
            else:
                row.set_result(found)

    def _too_late(self) -> EmbedderError:
        return EmbedderError(f"{self.model.name} did not answer within {self._patience:g} s")

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
