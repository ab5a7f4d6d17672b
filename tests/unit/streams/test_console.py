"""Values as the command line shows them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.cli.console import date


@pytest.mark.parametrize(
    ("at", "shown"),
    [(datetime(2026, 5, 8, 13, tzinfo=UTC), "2026-05-08"), (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01"), (None, "")],
)
def test_a_day_has_four_digits_of_year(at: datetime | None, shown: str) -> None:
    assert date(at) == shown
