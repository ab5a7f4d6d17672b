"""Keywords without a model: topics and names, never greetings or who speaks."""

from __future__ import annotations

import pytest

from memory.adapters.embedded.extractive import ExtractiveKeywords
from memory.adapters.embedded.extractive.summarizer import INLINE_CHARACTERS_MAX

CHAT = (
    "Ana (2025-09-14): Hey Ben! Wow, great to see you!",
    "Ben (2025-09-14): Hey Ana! I adopted a rescue greyhound called Biscuit.",
    "Ana (2025-09-14): Cool! Does the greyhound like the pottery studio in Lisbon?",
    "Ben (2025-09-14): The greyhound sleeps next to the pottery kiln.",
)


async def test_topics_are_found_and_small_talk_is_not() -> None:
    found = (await ExtractiveKeywords().keywords(CHAT)).phrases
    words = {word.lower() for phrase in found for word in phrase.split()}
    assert {"greyhound", "biscuit", "lisbon", "pottery"} <= words
    assert not {"hey", "wow", "great", "cool", "ana", "ben"} & words


async def test_phrases_are_bounded_in_number_and_length() -> None:
    many = [f"Ben (2025-09-14): The {'abcdefghijklmnopqrstuvwxyz'[number] * 5}ton museum burned down." for number in range(26)]
    few = (await ExtractiveKeywords(phrases_max=5).keywords(many)).phrases
    assert len(few) == 5
    short = (await ExtractiveKeywords(characters_max=30).keywords(many)).phrases
    assert 0 < sum(map(len, short)) <= 30


async def test_what_was_found_earlier_stays_while_it_counts_for_more() -> None:
    extractor = ExtractiveKeywords(phrases_max=4)
    earlier = ("tax law", "court appeal")
    found = (await extractor.keywords(CHAT[-1:], existing=earlier, covered=40)).phrases
    assert set(earlier) <= set(found)
    assert any("greyhound" in phrase for phrase in (await extractor.keywords(CHAT, existing=earlier, covered=2)).phrases)


@pytest.mark.parametrize("texts", [["Ben: Hey!"], ["   "], [""], ["\x00\ud800"]])
async def test_texts_without_keywords_give_none(texts: list[str]) -> None:
    found = await ExtractiveKeywords().keywords(texts)
    assert (found.phrases, found.calls) == ((), 0)


async def test_long_texts_give_the_same_from_a_thread() -> None:
    long = [f"{text} {'The greyhound ran to the lighthouse. ' * 60}" for text in CHAT]
    assert sum(map(len, long)) > INLINE_CHARACTERS_MAX
    found = await ExtractiveKeywords().keywords(long)
    assert "greyhound" in " ".join(found.phrases)
    assert found == await ExtractiveKeywords().keywords(long)
