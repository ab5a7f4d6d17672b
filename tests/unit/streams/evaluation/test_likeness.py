"""How alike answers are to the right ones: all measures over all answers, and a model's where its library is installed."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

from streams.evaluation import likeness as measured
from streams.evaluation.judge import Exam, Judged, Marks
from streams.evaluation.likeness import MEASURES, likeness
from streams.evaluation.report import judged


@pytest.fixture(autouse=True)
def without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "_LIBRARY", "no_such_library")


def test_means_over_answers() -> None:
    found = likeness([("The train arrived late today", "the train arrived late today"), ("a bus", "two trains")])
    assert tuple(found) == MEASURES
    same = {"f1", "bleu_1", "bleu_2", "bleu_4", "rouge_1", "rouge_2", "rouge_l"}
    assert {name: found[name] for name in same} == dict.fromkeys(same, 0.5), "one is the same, one has nothing in common"
    assert (found["distinct_1"], found["distinct_2"]) == (1.0, 0.5), "one word has no pair"


@pytest.mark.parametrize("pair", [("", "right"), ("said", ""), ("?!", "right")])
def test_a_text_without_words_has_nothing_in_common(pair: tuple[str, str]) -> None:
    found = likeness([pair])
    assert not any(found[name] for name in MEASURES if not name.startswith("distinct"))


def test_no_answers_no_figures() -> None:
    assert likeness([]) == {}


def test_a_long_answer_is_compared_as_far_as_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "ANSWER_WORDS_MAX", 2)
    assert likeness([("one two three", "one two four")])["f1"] == 1.0


def test_where_the_library_is_installed_its_model_is_asked_once_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[list[str], list[str], str]] = []

    def score(candidates: list[str], references: list[str], *, lang: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        asked.append((candidates, references, lang))
        return np.zeros(2), np.zeros(2), np.array([0.8, 0.9])

    library = ModuleType("made_up_scores")
    library.__spec__ = __spec__
    library.score = score  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, library.__name__, library)
    monkeypatch.setattr(measured, "_LIBRARY", library.__name__)
    found = likeness([("a bus", "a train"), ("a car", "a train")])
    assert found["bertscore"] == pytest.approx(0.85)
    assert asked == [(["a bus", "a car"], ["a train", "a train"], "en")]


def test_questions_without_an_answer_are_left_out_and_categories_told_apart() -> None:
    def one(category: str, predicted: str) -> Judged:
        exam = Exam(id=predicted, category=category, query="?", context="", answer="in May")
        return Judged(exam=exam, predicted=predicted, verdict="wrong" if predicted else "unanswered")

    outcomes = (one("when", "in May"), one("when", ""), one("where", "nowhere"))
    marks = Marks(judged=outcomes, calls=0, known=0, tokens_in=0, tokens_out=0, failure="")
    found = judged("m", {"hybrid": marks}, 0)["strategies"]["hybrid"]
    assert found["likeness"]["f1"] == 0.5
    assert {name: row["likeness"]["f1"] for name, row in found["by_category"].items()} == {"when": 1.0, "where": 0.0}
