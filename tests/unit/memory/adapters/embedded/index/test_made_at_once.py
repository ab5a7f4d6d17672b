"""An index file that others make at the same moment."""

from __future__ import annotations

import sqlite3
import time
from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.embedded.index.file import LOOKS_AGAIN, SegmentFile
from memory.errors import StoreUnavailableError


class Disturbed(SegmentFile):
    """Finds what stands beside the file gone, so often."""

    times = 0

    def _open(self) -> sqlite3.Connection:
        if type(self).times:
            type(self).times -= 1
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_IOERR_FSTAT, "SQLITE_IOERR_FSTAT"
            raise error
        return super()._open()


@pytest.mark.parametrize(("times", "opens"), [(1, True), (len(LOOKS_AGAIN), True), (len(LOOKS_AGAIN) + 1, False)])
def test_an_error_that_passes_is_looked_at_again_and_one_that_stays_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: int, *, opens: bool
) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    monkeypatch.setattr(Disturbed, "times", times)
    if not opens:
        with pytest.raises(StoreUnavailableError):
            Disturbed(tmp_path / "index.db", form="a", busy_wait=timedelta(seconds=1))
        return
    Disturbed(tmp_path / "index.db", form="a", busy_wait=timedelta(seconds=1)).close()
