"""Vectors of queries: bounded in bytes, asked for once, not waited for."""

from __future__ import annotations

import numpy as np
import pytest

from memory.errors import EmbedderError
from streams.query import embedding
from streams.query.embedding import QueryEmbedder
from tests.fakes.embedder import EmbedderFault, FakeEmbedder


async def test_it_never_holds_more_than_it_may() -> None:
    inner = FakeEmbedder(dimension=16)
    asked = QueryEmbedder(inner, bytes_max=3_000, patience=1)
    for number in range(50):
        await asked.embed([f"query {number}"], purpose="query")
        assert asked.bytes <= 3_000
    before = len(inner.calls)
    await asked.embed(["query 49"], purpose="query")
    assert len(inner.calls) == before, "the last one is still there"
    await asked.embed(["query 0"], purpose="query")
    assert len(inner.calls) == before + 1, "the first one is not"
    await asked.embed(["x" * 5_000], purpose="query")
    assert asked.bytes <= 3_000, "what is too long alone is not kept"


async def test_answers_are_those_of_the_model_in_the_order_of_the_texts() -> None:
    plain = FakeEmbedder()
    asked = QueryEmbedder(FakeEmbedder(), bytes_max=10_000, patience=1)
    await asked.embed(["b"], purpose="query")
    for texts in (["a", "b", "a"], ["b", "c"], []):
        expected = await plain.embed(texts, purpose="query") if texts else np.empty((0, 16), np.float32)
        assert np.array_equal(await asked.embed(texts, purpose="query"), expected)


async def test_documents_go_straight_through() -> None:
    inner = FakeEmbedder()
    asked = QueryEmbedder(inner, bytes_max=10_000, patience=0.01)
    await asked.embed(["a"])
    await asked.embed(["a"])
    assert (len(inner.calls), asked.bytes, asked.misses) == (2, 0, 0)


async def test_a_model_that_failed_is_left_alone_for_a_while() -> None:
    now = 10.0
    inner = FakeEmbedder(faults=[EmbedderFault.BUSY, EmbedderFault.BUSY], retry_after=30)
    asked = QueryEmbedder(inner, bytes_max=10_000, patience=1, now=lambda: now)
    for _ in range(5):
        with pytest.raises(EmbedderError):
            await asked.embed(["a"], purpose="query")
    assert len(inner.calls) == 1
    now += 31
    with pytest.raises(EmbedderError):
        await asked.embed(["a"], purpose="query")
    now += 31
    assert (await asked.embed(["a"], purpose="query")).shape == (1, 16)
    assert asked.away is None
    assert embedding.AGAIN_AFTER < 30


@pytest.mark.parametrize("fault", [EmbedderFault.NAN, EmbedderFault.DIMENSION, EmbedderFault.FEW])
async def test_rubbish_is_not_kept(fault: EmbedderFault) -> None:
    asked = QueryEmbedder(FakeEmbedder(faults=[fault]), bytes_max=10_000, patience=1)
    await asked.embed(["a"], purpose="query")
    assert asked.bytes == 0
    assert np.isfinite(await asked.embed(["a"], purpose="query")).all()
