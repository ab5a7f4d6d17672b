"""Keywords by the kept library: what it finds, what becomes of phrases so far, and what it needs."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator

import pytest

from memory.adapters.yake import LANGUAGES, YakeKeywords
from memory.adapters.yake.keywords import PHRASES_MAX
from memory.errors import SettingError

TUNNEL = (
    "Ana (2026-05-01): The harbour tunnel opens in May, the mayor says.",
    "Ben: The budget of the harbour tunnel was too small from the start.",
)


@pytest.fixture
async def yake() -> AsyncIterator[YakeKeywords]:
    made = YakeKeywords.open()
    yield made
    await made.close()


async def test_what_a_text_is_about_is_found_without_a_call(yake: YakeKeywords) -> None:
    found = await yake.keywords(TUNNEL)
    assert "harbour tunnel" in found.phrases
    assert not {"Ana", "Ben"} & set(found.phrases), "who speaks is no keyword"
    assert len({phrase.casefold() for phrase in found.phrases}) == len(found.phrases) <= PHRASES_MAX
    assert not any(", " in phrase or "\n" in phrase for phrase in found.phrases)
    assert (found.calls, found.tokens_in, found.tokens_out) == (0, 0, 0)


async def test_it_is_the_same_for_the_same_texts(yake: YakeKeywords) -> None:
    assert await yake.keywords(TUNNEL) == await yake.keywords(TUNNEL)


@pytest.mark.parametrize("texts", [["?! …"], ["Ana: "], [""]])
async def test_a_text_without_words_has_none(yake: YakeKeywords, texts: list[str]) -> None:
    assert (await yake.keywords(texts)).phrases == ()


async def test_phrases_of_before_and_of_now_come_first_and_the_rest_by_how_much_they_stand_for(yake: YakeKeywords) -> None:
    so_far = ["Harbour Tunnel", *(f"garden {number}" for number in range(PHRASES_MAX - 1))]
    long_before = (await yake.keywords(TUNNEL, existing=so_far, covered=198)).phrases
    just_begun = (await yake.keywords(TUNNEL, existing=so_far, covered=2)).phrases
    assert long_before[0] == just_begun[0] == "Harbour Tunnel"
    of_before = [sum(phrase.startswith("garden") for phrase in each) for each in (long_before, just_begun)]
    assert of_before[0] > of_before[1] > 0
    assert len(long_before) == PHRASES_MAX, "what is new takes the place of the least of before"
    assert set(long_before) - set(so_far), "something of what is new is always there"


async def test_few_phrases_so_far_leave_their_room_to_new_ones(yake: YakeKeywords) -> None:
    alone = (await yake.keywords(TUNNEL)).phrases
    assert set((await yake.keywords(TUNNEL, existing=["roses"], covered=1_000)).phrases) >= {"roses", *alone[:5]}


def test_every_language_that_is_offered_has_its_stop_words() -> None:
    for language in LANGUAGES:
        assert YakeKeywords.open(language).name == f"yake:{language}"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yake", None)
    with pytest.raises(SettingError, match=r"banyan-memory\[memgas\]"):
        YakeKeywords.open()
