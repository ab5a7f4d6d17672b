"""Where a repair begins."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from memory.errors import SettingError
from streams.repairing import parse_start

NOW = datetime(2026, 5, 8, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("0", 0),
        (" 120000 ", 120_000),
        ("2h", NOW - timedelta(hours=2)),
        ("90m", NOW - timedelta(minutes=90)),
        ("500ms", NOW - timedelta(milliseconds=500)),
        ("2026-05-08T10:00:00Z", NOW - timedelta(hours=2)),
        ("2026-05-08T12:00:00+02:00", NOW - timedelta(hours=2)),
        ("2026-05-08", datetime(2026, 5, 8, tzinfo=UTC)),
    ],
)
def test_an_offset_a_time_or_how_long_ago(text: str, start: int | datetime) -> None:
    assert parse_start(text, NOW) == start


@pytest.mark.parametrize("text", ["", "-1", "yesterday", "2h ago", "2026-13-01", "99999999999h", "²"])
def test_anything_else_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(SettingError, match="no offset, no time such as"):
        parse_start(text, NOW)
