"""Values as the command line shows them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from streams.cli.console import Output, date


@pytest.mark.parametrize(
    ("at", "shown"),
    [(datetime(2026, 5, 8, 13, tzinfo=UTC), "2026-05-08"), (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01"), (None, "")],
)
def test_a_day_has_four_digits_of_year(at: datetime | None, shown: str) -> None:
    assert date(at) == shown


def test_a_terminal_that_cannot_redraw_a_line_gets_plain_ones(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    output = Output(as_json=False)
    assert (output.err.is_terminal, output.err.is_dumb_terminal) == (True, True)
    with output.progress("ingesting", total=2) as progress:
        progress.update(1)
    # A bar leaves an empty line behind there, and nothing else.
    assert capfd.readouterr().err == ""
