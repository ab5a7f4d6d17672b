"""The library's front door: what is no record is answered, never raised."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memory import open_local
from memory.adapters.embedded.extractive import ExtractiveSummarizer
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import ClosedError, StoreDamagedError
from memory.local import INDEX_FILE
from memory.records import Turn
from memory.results import EventStatus
from memory.settings import MemorySettings, RetrievalSettings


@pytest.mark.parametrize("given", ["text", None, 5, ["id"], {}, {"id": 1}, Turn(tree="a/b", id="x", text="x")])
async def test_what_is_no_record_is_answered_and_the_rest_goes_in(given: Any) -> None:
    async with await open_local(embedder=HashingEmbedder()) as memory:
        good = {"id": "x", "text": "Ana moved to Porto."}
        first, second = await memory.ingest([given, good], tree="t")
        assert (first.status, second.status) == (EventStatus.REJECTED, EventStatus.ACCEPTED)
        assert first.reason


class _Embedder(HashingEmbedder):
    closed = 0

    async def close(self) -> None:
        self.closed += 1


class _StuckSummarizer(ExtractiveSummarizer):
    async def close(self) -> None:
        raise ZeroDivisionError


async def test_one_part_that_cannot_be_closed_keeps_no_other_open() -> None:
    embedder = _Embedder()
    memory = await open_local(embedder=embedder, summarizer=_StuckSummarizer())
    store: Any = memory._parts.store
    folder = store._path.parent
    assert folder.is_dir()
    with pytest.raises(ZeroDivisionError):
        await memory.close()
    assert embedder.closed == 1
    with pytest.raises(ClosedError, match="open it again"):
        await memory.trees()
    assert not folder.exists()
    await memory.close()
    assert embedder.closed == 1


async def test_what_cannot_be_opened_closes_the_embedder_it_made_and_not_a_given_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, given = _Embedder(), _Embedder()
    monkeypatch.setattr("memory.adapters.minilm.MiniLmEmbedder.open", lambda: made)
    path = tmp_path / "notes.db"
    path.write_text("no store, but a file of someone's notes, long enough to be looked at. " * 20)
    with pytest.raises(StoreDamagedError):
        await open_local(path)
    with pytest.raises(StoreDamagedError):
        await open_local(path, embedder=given)
    assert (made.closed, given.closed) == (1, 0)


async def test_one_record_is_no_list_of_records() -> None:
    async with await open_local(embedder=HashingEmbedder()) as memory:
        record = {"tree": "t", "id": "a", "text": "Ana moved to Porto."}
        with pytest.raises(TypeError, match="into a list"):
            await memory.ingest(record)  # type: ignore[arg-type]  # what people try
        await memory.ingest([record])
        # Taken as a sequence of ids it would forget "a" here, and for ever refuse "i" and "d" elsewhere.
        with pytest.raises(TypeError, match="into a list"):
            await memory.forget("t", events="a")
        assert (await memory.stats("t")).leaves == 1


async def test_the_index_is_followed_behind_and_forgotten_tree_by_tree() -> None:
    async with await open_local(embedder=HashingEmbedder()) as memory:
        await memory.ingest([{"tree": f"t{number}", "id": "x", "text": "Ana moved to Porto."} for number in range(5)])
        behind = memory._behind
        assert behind is not None
        await asyncio.wait_for(asyncio.gather(*behind.running), 120)
        await asyncio.sleep(0)
        assert behind.running == []


async def test_bm25_is_as_the_settings_say(tmp_path: Path) -> None:
    texts = {"short": "copper", "repeated": "copper copper copper river stone paper apple"}
    records = [{"id": name, "text": text} for name, text in texts.items()]

    async def scores(**given: float) -> dict[str, float]:
        settings = MemorySettings(retrieval=RetrievalSettings(**given))  # type: ignore[arg-type]
        async with await open_local(tmp_path, embedder=HashingEmbedder(), settings=settings) as memory:
            await memory.ingest(records, tree="t")
            hits = (await memory.search("t", "copper", explain=True)).hits
            return {hit.event_id: hit.parts["bm25"] for hit in hits if hit.event_id}

    flat = await scores(bm25_k1=0.0)
    assert flat["short"] == pytest.approx(flat["repeated"])
    repeats = await scores(bm25_k1=2.0, bm25_b=0.0)
    assert repeats["short"] < repeats["repeated"]
    lengths = await scores(bm25_k1=2.0, bm25_b=1.0)
    assert lengths["repeated"] / lengths["short"] < repeats["repeated"] / repeats["short"]


async def test_feedback_is_told_of_one_by_one(tmp_path: Path) -> None:
    async with await open_local(tmp_path, embedder=HashingEmbedder(), summaries=False, structure="hmem") as memory:
        await memory.ingest([{"tree": "me", "id": "t1", "text": "I moved to Porto.", "at": "2026-05-08"}])
        about: dict[str, Any] = {"event": "t1", "verdict": "approval"}
        given: list[Any] = [{**about, "id": "f1"}, {**about, "id": "f1"}, {**about, "id": "f2", "verdict": "maybe"}, "none"]
        results = await memory.feedback(given, tree="me")
        assert [each.status.value for each in results] == ["accepted", "duplicate", "rejected", "rejected"]
        assert results[2].reason == "verdict: is 'maybe', there is approval and rebuttal"


async def test_an_index_whose_rows_are_damaged_is_made_anew_before_it_answers(tmp_path: Path) -> None:
    async with await open_local(tmp_path, embedder=HashingEmbedder()) as memory:
        await memory.ingest([{"tree": "t", "id": "a", "text": "Ana moved to Porto."}])
        await memory.search("t", "Porto")
    with closing(sqlite3.connect(tmp_path / INDEX_FILE)) as file:
        # Only what a segment holds: the file itself stays one that SQLite reads, and says what it covers.
        file.execute("UPDATE segments SET data = zeroblob(length(data))")
        file.commit()
    async with await open_local(tmp_path, embedder=HashingEmbedder()) as memory:
        answer = await memory.search("t", "Porto")
        assert [hit.event_id for hit in answer.hits] == ["a"]
        assert answer.seq == (await memory.stats("t")).seq
