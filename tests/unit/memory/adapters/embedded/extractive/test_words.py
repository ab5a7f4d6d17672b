from __future__ import annotations

import pytest

from memory.adapters.embedded.extractive.words import stem, words


@pytest.mark.parametrize(
    ("forms", "other"),
    [
        (("lesson", "lessons", "lesson's", "Lessons"), "lease"),
        (("plan", "plans", "planned", "planning"), "player"),
        (("city", "cities"), "citizen"),
        (("bus",), "busy"),
    ],
)
def test_forms_of_a_word_have_one_key(forms: tuple[str, ...], other: str) -> None:
    assert len({stem(form) for form in forms}) == 1
    assert stem(other) != stem(forms[0])


def test_names_numbers_and_nouns_weigh_more_than_common_and_function_words() -> None:
    weight = {word.surface: word.weight for word in words("Yesterday the nice tunnel to Lisbon cost 31 crowns")}
    assert weight["Lisbon"] > weight["tunnel"] > weight["nice"] > weight["the"] == 0
    assert weight["31"] > weight["nice"]


def test_facts_are_names_numbers_and_dates() -> None:
    facts = [word.surface for word in words("We meet Marta in March at 19:30 with the cello") if word.fact]
    assert facts == ["Marta", "March", "19:30"]


def test_shouting_makes_no_names() -> None:
    assert not any(word.named for word in words("WE BOUGHT A CELLO"))


def test_scripts_without_spaces_become_pairs() -> None:
    assert [word.surface for word in words("大提琴 ok")] == ["大提", "提琴", "ok"]


def test_places_are_kept() -> None:
    sentence = "Ana's 3.2-kilometre run, https://a.example/x and 50%."
    assert all(sentence[word.start : word.end] == word.surface for word in words(sentence))
