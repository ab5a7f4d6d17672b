"""An application for tests that need nothing special of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.http.served import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """Without keys."""
    async with serving(tmp_path) as found:
        yield found
