from __future__ import annotations

import pytest

from memory.adapters.embedded.extractive.sentences import cut, split_label, split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Meyer met J. K. Holm at 5 p.m. sharp. He left.", ["Dr. Meyer met J. K. Holm at 5 p.m. sharp.", "He left."]),
        ('She said "No." Then she left.', ['She said "No."', "Then she left."]),
        ("It costs 3.50 at https://a.example/b.c?d=e today", ["It costs 3.50 at https://a.example/b.c?d=e today"]),
        ("我在北京。你呢？很好！", ["我在北京。", "你呢？", "很好！"]),
        ("「はい。」と言った。", ["「はい。」", "と言った。"]),
        ("كيف حالك؟ أنا بخير.", ["كيف حالك؟", "أنا بخير."]),
        ("def f():\n    return 1\n\nDone.", ["def f():", "return 1", "Done."]),
        ("  spread \t over   blanks  ", ["spread over blanks"]),
        ("", []),
        (" \n\t ", []),
    ],
)
def test_sentences_end_where_readers_end_them(text: str, sentences: list[str]) -> None:
    assert list(split_sentences(text)) == sentences


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Ana (2025-09-14): Hello: you.", ("Ana", "2025-09-14", "Hello: you.")),
        ("Ana: Hello.", ("Ana", "", "Hello.")),
        ("(2025-09-14): Hello.", ("", "2025-09-14", "Hello.")),
        ("Tunnel: what now? (2025-10-02): It is built.", ("Tunnel: what now?", "2025-10-02", "It is built.")),
        ("There is one thing I want to say: no.", ("", "", "There is one thing I want to say: no.")),
        ("https://a.example/b", ("", "", "https://a.example/b")),
        ("12:30 is fine", ("", "", "12:30 is fine")),
        ("", ("", "", "")),
    ],
)
def test_labels_are_told_from_text(text: str, parts: tuple[str, str, str]) -> None:
    assert split_label(text) == parts


def test_a_cut_ends_at_a_word() -> None:
    assert cut("one two three", 9) == "one two…"
    assert cut("one two", 7) == "one two"
    assert cut("x" * 50, 10) == "x" * 9 + "…"
