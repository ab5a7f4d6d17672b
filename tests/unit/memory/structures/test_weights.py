"""The weight of an episode against its formula, and that it is the same in whatever order and portions feedback comes."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.records import VERDICTS, Verdict
from memory.structures.parameters import HMemParameters
from memory.structures.weights import APPROVALS, APPROVED_AT, REBUTTALS, WEIGHT_MAX, WEIGHT_MIN, Opinion, heard, weight
from memory.tree.view import AT

START = datetime(2026, 1, 1, tzinfo=UTC)
PARAMETERS = HMemParameters(approval=1.5, rebuttal=0.5, strength_days=10.0)
APPROVAL: Verdict = "approval"
REBUTTAL: Verdict = "rebuttal"

opinions = st.lists(
    st.builds(
        Opinion,
        st.sampled_from(VERDICTS),
        st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001  # hypothesis asks for naive ones
    ),
    min_size=1,
    max_size=12,
)


def days(count: float) -> float:
    return (START + timedelta(days=count)).timestamp()


def told(*said: tuple[Verdict, float]) -> dict[str, str | float]:
    """Attributes of what was said at the start, after these verdicts on these days."""
    given = [Opinion(verdict, START + timedelta(days=day)) for verdict, day in said]
    return {AT: days(0), **(heard({}, given) if given else {})}


@pytest.mark.parametrize(
    ("said", "day", "expected"),
    [
        ((), 0, 1.0),
        ((), 10, math.exp(-1)),
        ((), 20, math.exp(-2)),
        ([(APPROVAL, 0)], 0, 1.5),
        ([(APPROVAL, 0), (APPROVAL, 0)], 0, 2.25),
        ([(REBUTTAL, 0)], 0, 0.5),
        ([(APPROVAL, 0), (REBUTTAL, 0)], 0, 0.75),
        # An approval begins the curve anew, and makes it twice as long.
        ([(APPROVAL, 10)], 10, 1.5),
        ([(APPROVAL, 10)], 30, 1.5 * math.exp(-1)),
        # A rebuttal does neither.
        ([(REBUTTAL, 10)], 10, 0.5 * math.exp(-1)),
        # What lies after the time that is asked for is as fresh as then.
        ([(APPROVAL, 50)], 0, 1.5),
    ],
)
def test_the_formula(said: list[tuple[Verdict, float]], day: float, expected: float) -> None:
    assert weight(told(*said), days(day), PARAMETERS) == pytest.approx(expected)


def test_without_a_time_silence_does_not_count() -> None:
    assert weight({}, days(1_000), PARAMETERS) == 1.0
    assert weight({REBUTTALS: 1.0}, days(1_000), PARAMETERS) == 0.5
    assert weight({APPROVALS: 1.0, APPROVED_AT: days(0)}, days(20), PARAMETERS) == pytest.approx(1.5 * math.exp(-1))
    assert weight({AT: days(0)}, -math.inf, PARAMETERS) == 1.0


def test_it_is_bounded() -> None:
    assert weight(told(*[(APPROVAL, 0.0)] * 1_000), days(0), PARAMETERS) == pytest.approx(WEIGHT_MAX)
    assert weight(told(*[(REBUTTAL, 0.0)] * 1_000), days(0), PARAMETERS) == pytest.approx(WEIGHT_MIN)
    assert weight(told(), days(1e6), PARAMETERS) == pytest.approx(WEIGHT_MIN)


@given(opinions, st.randoms(use_true_random=False), st.integers(1, 5))
def test_neither_the_order_nor_the_portions_matter(said: list[Opinion], random: object, size: int) -> None:
    at_once = heard({AT: days(0)}, said)
    shuffled = list(said)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    bit_by_bit: dict[str, str | float] = {AT: days(0)}
    for start in range(0, len(shuffled), size):
        bit_by_bit |= heard(bit_by_bit, shuffled[start : start + size])
    assert bit_by_bit == {AT: days(0), **at_once}
