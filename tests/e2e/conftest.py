"""The command line, ready to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.commands import Banyan


@pytest.fixture
def banyan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Banyan:
    """The command line in a temporary folder."""
    return Banyan(tmp_path, monkeypatch, capfd)
