"""Word overlap, against values worked out by hand."""

from __future__ import annotations

import math

import pytest

from streams.evaluation.overlap import bleu, distinct, f1, rouge, rouge_l, words


def test_words_are_normalized_as_parlai_does() -> None:
    assert words("The cat's on a Mat, isn't it?") == ["cats", "on", "mat", "isnt", "it"]


def test_f1_counts_each_word_as_often_as_both_have_it() -> None:
    assert f1(["x", "x", "y"], ["x", "z"]) == pytest.approx(2 * (1 / 3) * (1 / 2) / (1 / 3 + 1 / 2))
    assert f1(["x"], ["y"]) == f1([], ["y"]) == 0.0
    assert f1(["x", "y"], ["y", "x"]) == 1.0


def test_bleu() -> None:
    gold = ["the", "guard", "of", "the", "eight", "oclock", "train", "arrived", "late"]
    said = ["the", "guard", "arrived", "late", "because", "of", "train"]
    one = 6 / 7
    assert bleu(said, gold, 1) == pytest.approx(math.exp(1 - 9 / 7) * one)
    assert bleu(said, gold, 2) == pytest.approx(math.exp(1 - 9 / 7) * math.sqrt(one * 2 / 6))
    assert bleu(said, gold, 3) == 0.0, "no three words in a row are the same"
    assert bleu(gold, gold, 2) == pytest.approx(1.0)
    assert bleu([*gold, "indeed"], gold, 1) == pytest.approx(9 / 10), "a longer one has no brevity penalty"


def test_distinct() -> None:
    assert distinct(["x", "y", "x", "y"], 1) == 0.5
    assert distinct(["x", "y", "x", "y"], 2) == pytest.approx(2 / 3)
    assert distinct(["x"], 2) == 0.0


def test_rouge() -> None:
    gold, said = ["police", "killed", "the", "gunman"], ["police", "kill", "the", "gunman"]
    assert rouge(said, gold, 1) == 0.75
    assert rouge(said, gold, 2) == pytest.approx(1 / 3)
    assert rouge(["x"], gold, 2) == rouge([], [], 1) == 0.0
    assert rouge(["x", "x"], ["x"], 1) == pytest.approx(2 / 3), "a word counts as often as both have it"


@pytest.mark.parametrize(
    ("said", "share"),
    [
        (["police", "kill", "the", "gunman"], 3 / 4),
        (["the", "gunman", "kill", "police"], 2 / 4),
        (["gunman", "the", "killed", "police"], 1 / 4),
        (["nobody"], 0.0),
        ([], 0.0),
    ],
)
def test_rouge_l_goes_by_the_order_of_words(said: list[str], share: float) -> None:
    gold = ["police", "killed", "the", "gunman"]
    assert rouge_l(said, gold) == pytest.approx(share)
    assert rouge_l(gold, said) == pytest.approx(share)
