"""Vectors of queries: bounded in bytes, asked for once, not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from memory.errors import EmbedderAnswerError, EmbedderError
from memory.ports.embedder import Purpose
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


class Gated(FakeEmbedder):
    """Answers no call before it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.go = asyncio.Event()

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        if "wrong" in texts:
            raise EmbedderAnswerError("one text is at fault")
        self.calls.append(tuple(texts))
        await self.go.wait()
        self.calls.pop()
        return await super().embed(texts, purpose=purpose)


async def test_what_is_asked_while_calls_run_goes_into_the_next_one_together() -> None:
    inner, plain = Gated(), FakeEmbedder()
    asked = QueryEmbedder(inner, bytes_max=100_000, patience=60)
    texts = [f"query {number}" for number in range(embedding.CALLS_MAX + embedding.TEXTS_MAX + 3)]
    tasks = [asyncio.create_task(asked.embed([text], purpose="query")) for text in [*texts, texts[0], "wrong", texts[-1]]]
    await asyncio.sleep(0.01)
    assert [len(call) for call in inner.calls] == [1] * embedding.CALLS_MAX
    tasks[1].cancel()
    inner.go.set()
    answers = await asyncio.gather(*tasks, return_exceptions=True)
    assert [len(call) for call in inner.calls[: embedding.CALLS_MAX + 1]] == [*[1] * embedding.CALLS_MAX, embedding.TEXTS_MAX]
    assert sum(len(call) for call in inner.calls) == len(texts), "no text twice"
    assert isinstance(answers[1], asyncio.CancelledError)
    assert isinstance(answers[-2], EmbedderAnswerError)
    expected = await plain.embed(texts, purpose="query")
    for number in (0, 2, len(texts) - 1):
        assert np.array_equal(answers[number], expected[number : number + 1])  # type: ignore[arg-type]
    assert np.array_equal(answers[-1], expected[-1:])  # type: ignore[arg-type]
    assert asked.bytes > 0
    await asked.close()


async def test_whoever_asks_waits_no_longer_than_it_may_whoever_else_asks() -> None:
    asked = QueryEmbedder(Gated(), bytes_max=1_000, patience=0.02)
    answers = await asyncio.gather(*(asked.embed([f"{n}"], purpose="query") for n in range(30)), return_exceptions=True)
    assert all(isinstance(answer, EmbedderError) for answer in answers)
    assert asked.away is not None
    await asked.close()
