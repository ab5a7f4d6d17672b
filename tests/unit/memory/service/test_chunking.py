"""Documents are cut without losing or repeating a word."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.records import Document, Turn
from memory.service.chunking import chunks, items

WORDS = st.text(alphabet="abcdefgh .!?\n。", min_size=1, max_size=600).filter(str.strip)


@given(WORDS, st.integers(16, 120))
def test_nothing_but_white_space_is_lost_and_no_chunk_is_too_long(text: str, limit: int) -> None:
    parts = chunks(text, characters_max=limit)

    assert "".join("".join(parts).split()) == "".join(text.split())
    assert all(0 < len(part) <= limit for part in parts)


def test_a_short_text_is_one_chunk() -> None:
    assert chunks(" A few words. ", characters_max=100) == ["A few words."]


def test_cuts_are_made_at_sentences_and_pieces_are_of_similar_length() -> None:
    text = " ".join(f"Sentence number {number} has exactly a few words." for number in range(30))
    parts = chunks(text, characters_max=400)

    assert all(part.endswith(".") for part in parts)
    assert min(map(len, parts)) * 2 > max(map(len, parts))


def test_one_giant_word_is_cut_all_the_same() -> None:
    assert [len(part) for part in chunks("x" * 1_000, characters_max=300)] == [300, 300, 300, 100]


@pytest.mark.parametrize("count", [1, 40])
def test_a_document_becomes_numbered_items_with_its_source(count: int) -> None:
    document = Document(tree="t", id="d", text="One short sentence here. " * count, title="T", source="S")
    made = items(document, chunk_tokens=32)

    assert [item.chunk for item in made] == list(range(len(made)))
    assert {item.chunks for item in made} == {len(made)}
    assert {(item.event_id, item.title, item.source) for item in made} == {("d", "T", "S")}
    assert (made[0].sequence is None) == (len(made) == 1)


def test_a_turn_is_one_item_with_neighbours_in_its_conversation() -> None:
    (item,) = items(Turn(tree="t", id="x", text="Hi", conversation="c", speaker="Ana"), chunk_tokens=256)

    assert (item.sequence, item.speaker, item.chunks) == ("c:c", "Ana", 1)
