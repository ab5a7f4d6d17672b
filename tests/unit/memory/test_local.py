"""The library's front door: what is no record is answered, never raised."""

from __future__ import annotations

from typing import Any

import pytest

from memory import open_local
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.records import Turn
from memory.results import EventStatus


@pytest.mark.parametrize("given", ["text", None, 5, ["id"], {}, {"id": 1}, Turn(tree="a/b", id="x", text="x")])
async def test_what_is_no_record_is_answered_and_the_rest_goes_in(given: Any) -> None:
    async with await open_local(embedder=HashingEmbedder()) as memory:
        good = {"id": "x", "text": "Ana moved to Porto."}
        first, second = await memory.ingest([given, good], tree="t")
        assert (first.status, second.status) == (EventStatus.REJECTED, EventStatus.ACCEPTED)
        assert first.reason
