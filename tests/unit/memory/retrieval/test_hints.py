"""What a question says about who and when."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.retrieval.hints import DateHint, date_hints, named_speakers, without_names


@pytest.mark.parametrize(
    ("question", "hints"),
    [
        ("What happened on 8 May 2026?", [DateHint(year=2026, month=5, day=8)]),
        ("What happened on May 8, 2026?", [DateHint(year=2026, month=5, day=8)]),
        ("the 3rd of June", [DateHint(month=6, day=3)]),
        ("on Sept. 21st, 2026", [DateHint(year=2026, month=9, day=21)]),
        ("in december 2026", [DateHint(year=2026, month=12)]),
        ("What did she do in June?", [DateHint(month=6)]),
        ("since 2026-05-08", [DateHint(year=2026, month=5, day=8)]),
        ("in 2026-05", [DateHint(year=2026, month=5)]),
        ("How often in 2026?", [DateHint(year=2026)]),
        ("between 3 May and 5 June 2026", [DateHint(month=5, day=3), DateHint(year=2026, month=6, day=5)]),
        ("May I march with April and June?", []),
        ("Who won 2026 euros?", []),
        ("2026-13-01", []),
        ("last summer", []),
    ],
)
def test_dates_in_questions(question: str, hints: list[DateHint]) -> None:
    assert list(date_hints(question)) == hints


def test_a_day_is_taken_with_those_beside_it() -> None:
    hint = DateHint(month=6, day=1)
    assert hint.matches(datetime(2026, 5, 31, 23, tzinfo=UTC))
    assert hint.matches(datetime(2026, 6, 2, 1, tzinfo=UTC))
    assert not hint.matches(datetime(2026, 6, 3, tzinfo=UTC))
    assert not hint.matches(datetime(2026, 5, 30, tzinfo=UTC))


@pytest.mark.parametrize("edge", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_first_and_the_last_day_that_there_is_have_neighbours_too(edge: datetime) -> None:
    assert DateHint(month=edge.month, day=edge.day).matches(edge)
    assert not DateHint(month=7, day=1).matches(edge)


def test_the_word_before_a_month_is_a_whole_one() -> None:
    assert date_hints(f"{'x' * 40} during May") == (DateHint(month=5),)
    assert date_hints(f"{'x' * 40}during May") == ()


def test_what_is_not_named_is_left_open() -> None:
    assert DateHint(month=6).matches(datetime(2019, 6, 30, tzinfo=UTC))
    assert not DateHint(year=2026, month=6).matches(datetime(2019, 6, 30, tzinfo=UTC))
    assert DateHint(year=2019).matches(datetime(2019, 1, 1, tzinfo=UTC))


def test_a_day_that_a_month_does_not_have_matches_nothing() -> None:
    assert not DateHint(month=2, day=30).matches(datetime(2026, 3, 1, tzinfo=UTC))


def test_speakers_are_named_by_any_word_of_their_name() -> None:
    speakers = ["Ana Lima", "Ben", "Will", None]
    assert named_speakers("what did ana's brother say, and who will go?", speakers) == {"Ana Lima"}
    assert named_speakers("What did Ana and BEN do?", speakers) == {"Ana Lima", "Ben"}
    assert named_speakers("What did Anabel do?", speakers) == frozenset()


def test_names_are_taken_out_of_the_question() -> None:
    assert without_names("When did Ana's sister visit ana?", ["Ana"]) == "When did sister visit ?"
    assert without_names("What did Anabel do?", ["Ana"]) == "What did Anabel do?"
    assert without_names("Ana?", ["Ana"]) == ""
    assert without_names("Where?", []) == "Where?"
