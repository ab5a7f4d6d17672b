"""Texts and terms: what can be found, and by which words."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.model import EventId, Item
from memory.retrieval.text import KEY, attributed_text, embedded_text, lexical_text, mention_keys, plain, terms, title_key

TURN = Item(
    event_id=EventId("t1"),
    text="I moved to Porto.",
    conversation="c1",
    speaker="Ana",
    at=datetime(2026, 5, 8, 13, 56, tzinfo=UTC),
)
DOCUMENT = Item(event_id=EventId("d1"), text="A river town.", title="Porto (city)", source="The Atlas")


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("running", "He runs every day"),
        ("cafes", "the Café"),
        ("Łódź", "from łódz with love"),
        ("Ana", "Ana's bike"),
        ("dont", "I don't"),
        ("dont", "I don’t"),
        ("2026", "on 2026-05-08"),
        ("京都", "東京都に行く"),
        ("วันนี้", "ไปเที่ยววันนี้กัน"),
        ("서울", "서울에서"),
        ("हिन्दी", "मैं हिन्दी बोलता हूँ"),
        ("Straße", "STRASSE"),
        ("ｗｉｄｅ", "wide"),
    ],
)
def test_a_word_is_found_in_its_other_forms(query: str, said: str) -> None:
    assert set(terms(query)) <= set(terms(said))
    assert terms(query)


def test_function_words_are_no_terms() -> None:
    assert terms("When did she go to the market?") == terms("go market")
    assert terms("what is it?") == []


def test_a_single_character_of_an_unspaced_script_is_a_term() -> None:
    assert terms("猫") == ["猫"]
    assert terms("abc猫犬12") == ["abc", "猫犬", "12"]


def test_repetitions_and_order_are_kept() -> None:
    assert terms("cat dog cat") == ["cat", "dog", "cat"]


def test_threads_do_not_disturb_one_another() -> None:
    texts = [f"running jumps number{n} happily" for n in range(200)]
    expected = [terms(text) for text in texts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(terms, texts)) == expected


@given(st.text())
def test_any_text_has_terms_and_keys(text: str) -> None:
    for term in terms(text):
        assert term
    for key in mention_keys(text, capitals=False):
        assert terms(key) == [key]
    assert not any(KEY in term for term in terms(plain(text)))


def test_the_date_of_an_item_is_indexed_in_words() -> None:
    assert set(terms("in May 2026")) <= set(terms(lexical_text(TURN)))
    assert set(terms("May 8")) <= set(terms(lexical_text(TURN)))


def test_speaker_title_and_source_are_indexed() -> None:
    assert set(terms("Ana")) <= set(terms(lexical_text(TURN)))
    assert set(terms("Porto city Atlas")) <= set(terms(lexical_text(DOCUMENT)))


def test_only_the_first_chunk_carries_the_key_of_the_title() -> None:
    first = Item(event_id=EventId("d"), text="a", title="Porto", chunk=0, chunks=2)
    second = Item(event_id=EventId("d"), text="b", title="Porto", chunk=1, chunks=2)
    assert title_key("Porto") in terms(lexical_text(first))
    assert title_key("Porto") not in terms(lexical_text(second))


def test_a_text_cannot_forge_a_key() -> None:
    forged = Item(event_id=EventId("t"), text=f"look: {title_key('Porto')}", speaker="Eve")
    assert title_key("Porto") not in terms(lexical_text(forged))


def test_a_mention_of_a_title_has_the_title_s_key() -> None:
    keys = mention_keys("She was born in Porto, near the House of Music.", capitals=True)
    assert title_key("Porto (city)") in keys
    assert title_key("House of Music") in keys
    assert title_key("born") not in keys
    assert title_key("house of music") in mention_keys("who built the house of music?", capitals=False)


def test_titles_that_nobody_would_write_out_have_no_key() -> None:
    assert title_key("Nine words are more than anyone writes out here") == ""
    assert title_key("(…)") == ""
    assert title_key("") == ""


def test_texts_for_models_say_who_speaks() -> None:
    assert embedded_text(TURN) == "Ana: I moved to Porto."
    assert embedded_text(DOCUMENT) == "Porto (city). A river town."
    assert attributed_text(TURN) == "Ana (2026-05-08): I moved to Porto."
    assert attributed_text(replace(TURN, at=datetime(1, 1, 1, tzinfo=UTC))) == "Ana (0001-01-01): I moved to Porto."
