"""The `openai:<model>` embedder: OpenAI's embeddings, or those of any compatible server."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from memory.adapters.openai.client import Endpoint, call, open_client
from memory.errors import EmbedderAnswerError, EmbedderError, SettingError
from memory.ports import embedder as ports

if TYPE_CHECKING:
    import openai
    from openai.types import CreateEmbeddingResponse

MODEL_DIMENSIONS: Final = {"text-embedding-3-small": 1536, "text-embedding-3-large": 3072, "text-embedding-ada-002": 1536}
"""Own lengths of OpenAI's models."""

DEFAULT_UNRELATED_COSINE: Final = 0.0
"""For models whose unrelated texts lie near 0.2, as MiniLM's do. OpenAI's text-embedding-3 models are taken to be such; measure
another model with `memory.ports.embedder.measure_unrelated_cosine`."""

_KNOWN_UNRELATED_COSINES: Final = {"text-embedding-ada-002": 0.62, "multilingual-e5": 0.79}
"""By the start of the model's name, for models whose unrelated texts lie far from 0.2."""

DIMENSION_MAX: Final = 8192
TEXT_CHARS_MAX: Final = 400_000
"""Characters of one text that are read; what follows does not count."""

_BYTES_A_TOKEN: Final = 2
"""Below what tokenizers need for nearly every text (English 4, Chinese 2.5), so that a window sized by it fits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestLimits:
    """What one request may hold; the defaults keep within OpenAI's own limits."""

    texts_max: int = 256
    """OpenAI takes 2,048; fewer lose less when a request fails."""
    bytes_max: int = 250_000
    """UTF-8 bytes of all texts together: a token is at least a byte, so 300,000 tokens are never reached."""
    window_tokens: int = 8191
    """Longest text the model reads. Longer ones become the mean of windows, of half as many tokens as a rule of thumb, of as many
    bytes when the server finds that too long."""
    concurrent: int = 4
    """Requests in flight at once, over all callers."""


class OpenAIEmbedder(ports.Embedder):
    """
    Embeddings over the OpenAI API.

    Texts are sent in batches within `limits`, several at once; vectors are put in the order of the texts by the answer's `index`
    and given unit length. A text longer than the model's window is the normalised mean of its windows.

    Args:
        model: the model's name at the server.
        api_key: needed by OpenAI itself; never shown.
        base_url: None is OpenAI itself.
        dimensions: length to ask the server for, 1 to 8192; None leaves the model's own, which must then be known (see `open`).
        unrelated_cosine: zero of calibrated cosine; None is the model's known one, else `DEFAULT_UNRELATED_COSINE`.
        timeout: seconds for one attempt.
        attempts: tries of one request, the first included.
        wait_max: longest wait between two tries, in seconds; a longer Retry-After is passed on in `EmbedderError.retry_after`.
        limits: bounds of a request.
        sleep: waits between tries.

    Raises:
        SettingError: the library openai is missing, there is no key, the address is none, or the length is unknown or out of range.
    """

    def __init__(
        self,
        *,
        model: str,
        api_key: str | None,
        base_url: str | None = None,
        dimensions: int | None = None,
        unrelated_cosine: float | None = None,
        timeout: float = 30.0,  # the time-out of requests, not of this call
        attempts: int = 3,
        wait_max: float = 10.0,
        limits: RequestLimits | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._endpoint = Endpoint(base_url=base_url, api_key=api_key, timeout_s=timeout, attempts=attempts, wait_max_s=wait_max)
        self._limits = limits or RequestLimits()
        self._sleep = sleep
        self._name = model
        self._dimensions = dimensions
        if unrelated_cosine is None:
            known = (zero for start, zero in _KNOWN_UNRELATED_COSINES.items() if model.startswith(start))
            unrelated_cosine = next(known, DEFAULT_UNRELATED_COSINE)
        dimension = MODEL_DIMENSIONS.get(model) if dimensions is None else dimensions
        if dimension is None:
            raise SettingError(f"The length of the vectors of {model!r} is not known: open it with `await OpenAIEmbedder.open(…)`.")
        if not 1 <= dimension <= DIMENSION_MAX:
            raise SettingError(f"Dimensions must be 1 to {DIMENSION_MAX}, not {dimension}.")
        self._model = ports.EmbeddingModel(name=f"openai:{model}", dimension=dimension, unrelated_cosine=unrelated_cosine)
        self._client: openai.AsyncOpenAI = open_client(self._endpoint)
        self._slots = asyncio.Semaphore(self._limits.concurrent)
        self._window_bytes = self._limits.window_tokens * _BYTES_A_TOKEN

    @classmethod
    async def open(cls, *, model: str, dimensions: int | None = None, **others: Any) -> Self:
        """
        Make an embedder of any model: the length of an unknown model's vectors is learned by embedding one word.

        Args:
            model: as in the constructor.
            dimensions: as in the constructor.
            others: the constructor's other arguments.

        Raises:
            SettingError: as the constructor.
            EmbedderError: the service had to be asked and is away.
            EmbedderAnswerError: it had to be asked and its answer is no embedding.
        """
        if dimensions is not None or model in MODEL_DIMENSIONS:
            return cls(model=model, dimensions=dimensions, **others)
        embedder = cls(model=model, dimensions=DIMENSION_MAX, **others)
        embedder._dimensions = None
        answer = await embedder._request(["length"])
        try:
            length = len(answer.data[0].embedding)
        except (AttributeError, IndexError, TypeError) as error:
            await embedder.close()
            raise EmbedderAnswerError(f"{embedder._where} answered a probe with something that is no embedding.") from error
        embedder._model = ports.EmbeddingModel(
            name=embedder._model.name, dimension=length, unrelated_cosine=embedder._model.unrelated_cosine
        )
        return embedder

    def __repr__(self) -> str:
        return f"OpenAIEmbedder({self._where!r}, dimension={self._model.dimension})"

    @property
    def model(self) -> ports.EmbeddingModel:
        """`openai:<model>` with the length in use."""
        return self._model

    async def embed(self, texts: Sequence[str], *, purpose: ports.Purpose = "document") -> NDArray[np.float32]:
        """Embed; see the port. The API does not tell queries from documents."""
        del purpose
        try:
            return await self._embed_windows(texts, self._window_bytes)
        except _TooLongError:
            # A token is at least a byte, so windows of that many bytes fit whatever the text is made of.
            return await self._embed_windows(texts, self._limits.window_tokens)

    async def close(self) -> None:
        """Close the connections; may be called again."""
        await self._client.close()

    @property
    def _where(self) -> str:
        return f"{self._model.name} at {self._endpoint.shown_url}"

    async def _embed_windows(self, texts: Sequence[str], window_bytes: int) -> NDArray[np.float32]:
        sums = np.zeros((len(texts), self._model.dimension), np.float32)
        windows = [(owner, window) for owner, text in enumerate(texts) for window in _split(text, window_bytes)]
        sent = [window for _, window in windows]
        tasks = [asyncio.create_task(self._embed_batch(sent[batch.start : batch.stop])) for batch in _batches(sent, self._limits)]
        try:
            answers = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        if answers:
            np.add.at(sums, [owner for owner, _ in windows], np.concatenate(answers))
        return _unit(sums, self._where)

    async def _embed_batch(self, texts: Sequence[str]) -> NDArray[np.float32]:
        async with self._slots:
            answer = await self._request(texts)
        return self._vectors(answer, len(texts))

    async def _request(self, texts: Sequence[str]) -> CreateEmbeddingResponse:
        options: dict[str, Any] = {} if self._dimensions is None else {"dimensions": self._dimensions}

        async def attempt() -> CreateEmbeddingResponse:
            return await self._client.embeddings.create(model=self._name, input=list(texts), encoding_format="float", **options)

        return await call(
            attempt,
            endpoint=self._endpoint,
            what=self._model.name,
            transient=EmbedderError,
            permanent=_refused,
            unreadable=EmbedderAnswerError,
            sleep=self._sleep,
        )

    def _vectors(self, answer: CreateEmbeddingResponse, count: int) -> NDArray[np.float32]:
        """The answer's vectors in the order of the texts, unit length; everything in it is doubted."""
        rows = getattr(answer, "data", None)
        if not isinstance(rows, list) or len(rows) != count:
            found = len(rows) if isinstance(rows, list) else "no"
            raise EmbedderAnswerError(f"{self._where} gave {found} vectors for {count} texts.")
        vectors: list[NDArray[np.float32] | None] = [None] * count
        for row in rows:
            index = getattr(row, "index", None)
            if not isinstance(index, int) or not 0 <= index < count or vectors[index] is not None:
                raise EmbedderAnswerError(f"{self._where} gave vectors whose `index` fields are not 0 to {count - 1}.")
            vectors[index] = self._vector(getattr(row, "embedding", None))
        return _unit(np.array(vectors, np.float32), self._where)

    def _vector(self, embedding: object) -> NDArray[np.float32]:
        try:
            vector = np.asarray(embedding, np.float32)
        except (TypeError, ValueError) as error:
            raise EmbedderAnswerError(f"{self._where} gave a vector with components that are no numbers.") from error
        if vector.shape != (self._model.dimension,):
            raise EmbedderAnswerError(f"{self._where} gave a vector of shape {vector.shape}, not ({self._model.dimension},).")
        return vector


class _TooLongError(EmbedderAnswerError):
    """The server found a text longer than its window."""


def _refused(message: str) -> EmbedderAnswerError:
    too_long = any(words in message.lower() for words in ("context length", "too long", "maximum input", "too many tokens"))
    return _TooLongError(message) if too_long else EmbedderAnswerError(message)


def _unit(vectors: NDArray[np.float32], where: str) -> NDArray[np.float32]:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(norms).all() and (norms > 0).all()):
        raise EmbedderAnswerError(f"{where} gave a vector with NaN, infinity or nothing but zeros.")
    return np.asarray(vectors / norms, np.float32)


def _split(text: str, window_bytes: int) -> list[str]:
    """Cut a text into pieces of nearly equal length, none of more bytes than the window; most texts are one piece."""
    read = text[:TEXT_CHARS_MAX]
    encoded = read.encode("utf-8", "replace")
    if len(encoded) <= window_bytes:
        return [encoded.decode()]
    # A cut inside a character drops that character's bytes on both sides, which no mean will notice.
    size = math.ceil(len(encoded) / math.ceil(len(encoded) / window_bytes))
    pieces = (encoded[start : start + size].decode("utf-8", "ignore") for start in range(0, len(encoded), size))
    return [piece for piece in pieces if piece.strip()] or [" "]


def _batches(texts: Sequence[str], limits: RequestLimits) -> Iterator[range]:
    """Runs of texts, in order, each within the limits or a single text."""
    start, used = 0, 0
    for position, text in enumerate(texts):
        size = len(text.encode())
        if position > start and (position - start >= limits.texts_max or used + size > limits.bytes_max):
            yield range(start, position)
            start, used = position, 0
        used += size
    if texts:
        yield range(start, len(texts))
