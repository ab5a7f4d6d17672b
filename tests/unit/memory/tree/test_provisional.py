from __future__ import annotations

from memory.tree.provisional import PROVISIONAL_CHARACTERS_MAX, headline, provisional_text, without_phrases


def test_each_text_gives_its_beginning() -> None:
    texts = ["Ana (2025-09-14): I'm moving to Lisbon next spring. The lease ends in March.", "Ben: Wait. What? Moving for good?"]
    assert provisional_text(texts) == "Ana (2025-09-14): I'm moving to Lisbon next spring.\nBen: Wait. What? Moving for good?"


def test_blank_texts_are_left_out() -> None:
    assert provisional_text([" \n ", "Something."]) == "Something."
    assert provisional_text(["", "\t"]) == ""


def test_long_texts_are_cut_at_a_word() -> None:
    (line,) = provisional_text(["many words " * 100_000]).split("\n")
    assert len(line) <= PROVISIONAL_CHARACTERS_MAX
    assert line.endswith((" many…", " words…"))
    assert len(provisional_text(["x" * 1_000_000])) == PROVISIONAL_CHARACTERS_MAX


def test_other_scripts_end_sentences_too() -> None:
    first = "我昨天在北京的书店买了三本关于大提琴的书和一张旧的城市地图。"
    assert provisional_text([first + "然后我回家了。"]) == first


def test_a_headline_is_the_first_line() -> None:
    assert headline("cello lessons · Lisbon\nAna: I play.", 80) == "cello lessons · Lisbon"


def test_phrases_that_do_not_fit_are_left_out_whole() -> None:
    assert headline("cello lessons · Lisbon · marathon\nAna: I play.", 25) == "cello lessons · Lisbon"
    assert headline("cello lessons · Lisbon", 10) == "cello…"


def test_a_headline_is_one_line_within_its_characters() -> None:
    for text in ("", "  \n a b", "word " * 10_000, "x" * 10_000, "\n" * 9 + "a\tb"):
        for characters in (1, 2, 17, 60):
            line = headline(text, characters)
            assert len(line) <= characters
            assert "\n" not in line


def test_only_a_line_of_key_phrases_is_taken_off() -> None:
    assert without_phrases("cello lessons · Lisbon\nAna: I play.\nBen: I listen.") == "Ana: I play.\nBen: I listen."
    for whole in (
        "Ana moved to Porto.\n\nShe is a baker now.",
        "Ana: I play.\nBen: I listen.",
        "cello · Lisbon",
        "cello · Lisbon\n",
        "A · B.\nC",
        "",
    ):
        assert without_phrases(whole) == whole
