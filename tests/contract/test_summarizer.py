"""What every summarizer promises (memory/ports/summarizer.py), over all that can run here."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from memory.adapters.embedded.extractive import ApartSummarizer, ExtractiveSummarizer
from memory.adapters.openai.summarizer import OpenAISummarizer
from memory.ports.summarizer import Summarizer, SummaryRequest
from tests.fakes.openai_server import FakeOpenAIServer

ODD_TEXTS = (
    "a",
    "...",
    "NUL \x00 inside",
    "a lone surrogate \ud83d here",
    "😀🎉🔥",
    "مرحبا بالعالم",
    "我在北京买书。",
    "x" * 9_000,
    "{n}",
)


@pytest.fixture(params=["extractive", "apart", "openai"])
async def summarizer(request: pytest.FixtureRequest) -> AsyncIterator[Summarizer]:
    if request.param == "extractive":
        yield ExtractiveSummarizer()
        return
    if request.param == "apart":
        apart = ApartSummarizer()
        yield apart
        await apart.close()
        return
    with FakeOpenAIServer() as server:
        made = OpenAISummarizer(model="fake", api_key=None, base_url=server.base_url)
        yield made
        await made.close()


def request_of(*new: str, existing: str = "", covered: int = 0) -> SummaryRequest:
    return SummaryRequest(existing=existing, new=new, descendants=covered + len(new), covered=covered)


async def test_texts_become_one_text(summarizer: Summarizer) -> None:
    summary = await summarizer.summarize(request_of("Ana: I moved to Lisbon.", "Ben: In March, then."))
    assert summary.text.strip()
    assert summary.calls >= 0
    assert (summary.tokens_in > 0) == (summary.tokens_out > 0) == (summary.calls > 0)


async def test_an_existing_text_is_brought_up_to_date(summarizer: Summarizer) -> None:
    summary = await summarizer.summarize(request_of("Ana: I left.", existing="Ana moved to Lisbon.", covered=2))
    assert summary.text.strip()


@pytest.mark.parametrize("text", ODD_TEXTS)
async def test_odd_texts_give_a_text_that_can_be_stored(summarizer: Summarizer, text: str) -> None:
    summary = await summarizer.summarize(request_of(text, existing=text, covered=1))
    assert summary.text.strip()
    assert "\x00" not in summary.text
    summary.text.encode("utf-8")


async def test_an_answer_is_bounded_whatever_comes_in(summarizer: Summarizer) -> None:
    big = "many words " * 100_000
    summary = await summarizer.summarize(request_of(big, big, existing=big, covered=5))
    assert len(summary.text) <= 8_000


async def test_the_event_loop_goes_on(summarizer: Summarizer) -> None:
    task = asyncio.create_task(summarizer.summarize(request_of(*["Some words about a boat. " * 200] * 20)))
    turns = 0
    while not task.done():
        turns += 1
        await asyncio.sleep(0)
    await task
    assert turns > 3


async def test_concurrent_calls_do_not_mix(summarizer: Summarizer) -> None:
    texts = [f"Ana: The boat number {k} is painted in colour {k} today." for k in range(12)]
    summaries = await asyncio.gather(*(summarizer.summarize(request_of(text)) for text in texts))
    alone = [await summarizer.summarize(request_of(text)) for text in texts]
    assert [summary.text for summary in summaries] == [summary.text for summary in alone]


def test_it_has_a_name_and_a_budget(summarizer: Summarizer) -> None:
    assert summarizer.name.split(":")[0] in {"extractive", "openai"}
    assert summarizer.tokens_max >= 100
    assert isinstance(summarizer.vector_from_text, bool)


async def test_it_closes_twice(summarizer: Summarizer) -> None:
    await summarizer.close()
    await summarizer.close()
