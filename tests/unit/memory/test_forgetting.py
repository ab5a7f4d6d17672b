"""Forgetting in a memory of one's own (P6): what is answered, and that its files hold nothing of it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory import LocalMemory, open_local
from memory.adapters.codec import STORED
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.errors import StoreBusyError, TreeNotFoundError
from memory.model import EventId, NodeId, NodeKind, TreeId
from memory.results import EventStatus
from memory.service.indexing import ASIDE
from memory.service.reindexing import Reindexing
from memory.structures import registry

SECRET = "Zanzibar"
COUNT = 90
SECRETS = tuple(range(4, COUNT, 9))


async def opened(folder: Path, structure: str = "memtree", **options: Any) -> LocalMemory:
    return await open_local(folder, embedder=HashingEmbedder(), structure=structure, **options)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[LocalMemory]:
    async with await opened(tmp_path / "memory") as made:
        yield made


def turns(numbers: Iterable[int], *, secrets: Iterable[int] = SECRETS, length: int = 1) -> list[dict[str, object]]:
    """Turns of which some hold the secret; long ones do not fit a page of the store's file."""
    hidden = set(secrets)
    return [
        {
            "tree": "t",
            "id": f"e{number}",
            "conversation": f"{SECRET}-c" if number in hidden else f"c{number % 5}",
            "speaker": f"Ana of {SECRET}" if number in hidden else "Ben",
            "text": " ".join(f"topic{number % 7} subject{(number + step) % 11}" for step in range(3 * length))
            + (f" we hid it in {SECRET}." if number in hidden else " we saw it."),
            "at": f"2026-05-{1 + number % 28:02d}T10:00:00Z",
            "metadata": {"where": SECRET} if number in hidden else {},
        }
        for number in numbers
    ]


def ids(numbers: Iterable[int]) -> list[str]:
    return [f"e{number}" for number in numbers]


def found_in(folder: Path, *patterns: bytes) -> dict[str, int]:
    """How often any of the patterns stands in each of a folder's files, whatever its case."""
    counts: dict[str, int] = {}
    for file in sorted(folder.iterdir()):
        content = file.read_bytes().lower()
        if count := sum(content.count(pattern.lower()) for pattern in patterns):
            counts[file.name] = count
    return counts


# --------------------------------------------------------------------------------------------------------------- the proof


@pytest.mark.parametrize("structure", registry.NAMES)
@pytest.mark.parametrize("length", [1, 150])
async def test_nothing_of_it_is_left_in_any_file(tmp_path: Path, structure: str, length: int) -> None:
    """By the words, which are nowhere else, and by the vectors: of the items, and of all that summaries were since."""
    folder = tmp_path / "memory"
    async with await opened(folder, structure) as memory:
        for start in range(0, COUNT, 30):  # summaries are made several times, each time longer
            await memory.ingest(turns(range(start, start + 30), length=length))
            await memory.fresh("t")
            await memory.search("t", "where did we hide it?")
        assert found_in(folder, SECRET.encode()).keys() >= {"store.db"}
        vectors = await of_what_is_gone(memory, ids(SECRETS))
        assert found_in(folder, *vectors)
        report = await memory.forget("t", events=ids(SECRETS))
        assert (report.forgotten, report.leaves) == (len(SECRETS), len(SECRETS))
        assert found_in(folder, SECRET.encode()) == {}, "while it is open"
        # A summary that has lost its latest leaf may be again what it was before that came.
        vectors = list(set(vectors) - {vector async for vector in now(memory)})
        assert len(vectors) > len(SECRETS)
        assert found_in(folder, *vectors) == {}
        await memory.fresh("t")
        await memory.ingest(turns(range(COUNT, COUNT + 20)))
        hits = (await memory.search("t", SECRET, k=50)).hits
        assert all(SECRET not in hit.text and f"Ana of {SECRET}" != (hit.source and hit.source.speaker) for hit in hits)
        assert (await memory.check("t")).clean
    assert found_in(folder, SECRET.encode(), *vectors) == {}, "after it was closed"
    async with await opened(folder, structure) as again:
        assert (await again.check("t")).clean
        assert found_in(folder, SECRET.encode(), *vectors) == {}


async def of_what_is_gone(memory: LocalMemory, events: Iterable[str]) -> list[bytes]:
    """As stored, every vector that the tree has of these events' leaves, and ever had of the summaries above them."""
    store, tree = memory.parts.store, TreeId("t")
    receipts = await store.receipts(tree, [EventId(event) for event in events])
    leaves = [leaf for receipt in receipts.values() for leaf in receipt.leaves]
    lineage = await store.lineage(tree, leaves)
    packed: dict[bytes, None] = {}
    for node in (await store.nodes(tree, leaves, vectors=True)).values():
        assert node.vector is not None
        packed[node.vector.astype(STORED).tobytes()] = None
    for entry in await store.changes(tree, 0, limit=10_000):
        for step in entry.steps:
            vector = getattr(step, "vector", None)
            name: NodeId | None = getattr(step, "node", None) or getattr(step, "id", None)
            if vector is not None and name in lineage and lineage[name].kind is NodeKind.SUMMARY:
                packed[np.asarray(vector).astype(STORED).tobytes()] = None
    return [vector for vector in packed if any(vector)]


async def now(memory: LocalMemory) -> AsyncIterator[bytes]:
    """The vectors of all nodes that are there, as stored."""
    async for node in memory.parts.store.all_nodes(TreeId("t"), vectors=True):
        if node.vector is not None:
            yield node.vector.astype(STORED).tobytes()


# ------------------------------------------------------------------------------------------------------------------ selecting


async def test_events_that_are_named(memory: LocalMemory) -> None:
    await memory.ingest(turns(range(20)))
    before = await memory.stats("t")
    report = await memory.forget("t", events=["e3", "e5", "e3", "never"])
    assert (report.tree, report.forgotten, report.unknown, report.already, report.leaves) == ("t", 2, 1, 0, 2)
    # Summaries may have been written since.
    assert before.seq < report.seq <= (await memory.stats("t")).seq
    assert (await memory.stats("t")).events == before.events - 2
    again = await memory.forget("t", events=["e3", "never"])
    assert (again.forgotten, again.unknown, again.already, again.leaves) == (0, 0, 2, 0)
    assert again.seq >= report.seq


async def test_a_conversation(memory: LocalMemory) -> None:
    await memory.ingest(turns(range(20), secrets=()))
    report = await memory.forget("t", conversation="c2")
    assert report.forgotten == 4
    assert {one.id for one in await memory.ingest(turns(range(20), secrets=())) if one.status is EventStatus.FORGOTTEN} == set(
        ids([2, 7, 12, 17])
    )
    assert (await memory.forget("t", conversation="c2")).forgotten == 0


@pytest.mark.parametrize("limit", ["2026-05-04T10:00:00", "2026-05-04T10:00:00+00:00", "2026-05-04T12:00:00+02:00"])
async def test_what_was_said_before_a_time(memory: LocalMemory, limit: str) -> None:
    timeless = {"tree": "t", "id": "timeless", "text": "nobody knows when."}
    await memory.ingest([*turns(range(20)), timeless])
    report = await memory.forget("t", before=datetime.fromisoformat(limit))
    assert report.forgotten == 3
    assert {one.status for one in await memory.ingest([*turns([3]), timeless])} == {EventStatus.DUPLICATE}
    assert {one.status for one in await memory.ingest(turns([0, 1, 2]))} == {EventStatus.FORGOTTEN}


async def test_all_that_is_named_in_several_ways(memory: LocalMemory) -> None:
    await memory.ingest(turns(range(20), secrets=()))
    report = await memory.forget(
        "t", events=["e2", "e19"], conversation="c2", before=datetime.fromisoformat("2026-05-02T00:00:00Z")
    )
    assert report.forgotten == len({2, 19, 7, 12, 17, 0})


async def test_a_document_goes_with_all_its_chunks(memory: LocalMemory) -> None:
    text = " ".join(f"Sentence number {number} tells of subject{number % 9}." for number in range(600))
    await memory.ingest([{"tree": "t", "id": "d", "title": "Long", "text": text}, *turns(range(5))])
    chunks = (await memory.stats("t")).leaves - 5
    assert chunks > 3
    report = await memory.forget("t", events=["d"])
    assert (report.forgotten, report.leaves) == (1, chunks)
    assert (await memory.check("t")).clean


async def test_many_go_in_several_commits_and_are_counted_together(memory: LocalMemory) -> None:
    await memory.ingest(turns(range(COUNT)))
    report = await memory.forget("t", events=ids(range(80)))
    assert (report.forgotten, report.leaves) == (80, 80)
    log = await memory.parts.store.changes(TreeId("t"), 0, limit=10_000)
    assert [len(entry.forgets) for entry in log if entry.forgets] == [64, 16]


async def test_summaries_are_asked_for_once_however_many_commits_change_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with await opened(tmp_path, summaries=False) as memory:
        await memory.ingest(turns(range(200)))
        store, jobs = memory.parts.store, memory.parts.jobs
        put: list[tuple[set[NodeId], int]] = []

        async def noted(tree: TreeId, nodes: Iterable[NodeId], *, seq: int = 0) -> None:
            assert tree == "t"
            put.append((set(nodes), seq))

        monkeypatch.setattr(jobs, "put", noted)
        before = (await memory.stats("t")).seq
        report = await memory.forget("t", events=ids(range(30, 180)))
        assert report.seq - before > 1, "several commits"
        [(nodes, seq)] = put
        assert (seq, len(nodes)) == (report.seq, report.summaries_remade)
        stay = await store.nodes(TreeId("t"), list(nodes))
        assert stay.keys() == nodes
        assert all(node.pending and node.provisional for node in stay.values())


async def test_what_names_nothing_and_trees_that_do_not_exist(memory: LocalMemory) -> None:
    await memory.ingest(turns(range(3)))
    with pytest.raises(ValueError, match="nothing is named"):
        await memory.forget("t")
    for named in ({"events": ["e1"]}, {"conversation": "c"}, {"before": datetime.fromisoformat("2026-05-04")}):
        with pytest.raises(TreeNotFoundError):
            await memory.forget("unknown", **named)
    assert (await memory.forget("t", conversation="of nobody")).forgotten == 0


# ------------------------------------------------------------------------------------------------------ before and afterwards


async def test_one_that_has_not_come_yet_is_not_taken_in(memory: LocalMemory) -> None:
    await memory.ingest(turns([0]))
    assert (await memory.forget("t", events=["e1"])).unknown == 1
    totals = await memory.ingest(turns([1, 2]))
    assert [result.status for result in totals] == [EventStatus.FORGOTTEN, EventStatus.ACCEPTED]
    assert totals[0].reason == "was forgotten"
    assert (await memory.stats("t")).leaves == 2
    assert (await memory.check("t")).clean


async def test_feedback_can_be_forgotten_and_is_not_taken_about_what_was(tmp_path: Path) -> None:
    async with await opened(tmp_path, "hmem") as memory:
        await memory.ingest(turns([0, 1]))
        await memory.feedback([{"id": "f0", "event": "e0", "verdict": "approval"}], tree="t")
        assert (await memory.forget("t", events=["f0", "e1"])).forgotten == 2
        given = [{"id": name, "event": event, "verdict": "approval"} for name, event in (("f0", "e0"), ("f1", "e1"), ("f2", "e0"))]
        results = await memory.feedback(given, tree="t")
        assert [result.status for result in results] == [EventStatus.FORGOTTEN, EventStatus.REJECTED, EventStatus.ACCEPTED]
        assert "was forgotten" in results[1].reason
        assert (await memory.check("t")).clean


async def test_profiles_no_longer_know_it(memory: LocalMemory) -> None:
    facts = [f"I have lived in {place} since {year}." for place, year in (("Porto", 2001), (SECRET, 2002), ("Lagos", 2003))]
    await memory.ingest([{"tree": "t", "id": f"e{n}", "speaker": "Ana", "text": text} for n, text in enumerate(facts)])
    profile = await memory.profile("t", "Ana")
    assert profile is not None
    assert SECRET in repr(profile)
    await memory.forget("t", events=["e1"])
    assert SECRET not in repr(memory.parts.profiles._kept), "not even until it is next asked for"
    profile = await memory.profile("t", "Ana")
    assert profile is not None
    assert (profile.turns, SECRET in repr(profile)) == (2, False)
    await memory.forget("t", events=["e0", "e2"])
    assert await memory.profile("t", "Ana") is None


async def test_another_process_lets_go_of_it(tmp_path: Path) -> None:
    async with await opened(tmp_path) as one, await opened(tmp_path) as other:
        await one.ingest(turns(range(30)))
        await one.fresh("t")
        await other.ingest(turns(range(30, 40)))
        assert any(SECRET in hit.text for hit in (await other.search("t", SECRET, k=30)).hits)
        await one.forget("t", events=ids(SECRETS))
        assert not any(SECRET in hit.text for hit in (await other.search("t", SECRET, k=30)).hits)
        await other.ingest(turns([41]))
        remembered = other.parts.ingest._committing._recent._texts
        assert remembered
        assert SECRET not in repr(remembered)
        await asyncio.gather(one.fresh("t"), other.fresh("t"))
        assert found_in(tmp_path, SECRET.encode()) == {}
        assert (await other.check("t")).clean


# ------------------------------------------------------------------------------------------------------------- cut off


class CutError(Exception):
    """The process ended here."""


@pytest.mark.parametrize("where", ["index.expunge", "store.redact", "store._clean"])
async def test_what_a_process_left_behind_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    async def cut(*_: object, **__: object) -> None:
        raise CutError

    async with await opened(tmp_path) as memory:
        await memory.ingest(turns(range(40)))
        await memory.fresh("t")
        await memory.search("t", SECRET)
        part, name = where.split(".")
        with monkeypatch.context() as patch:
            patch.setattr(getattr(memory.parts, part), name, cut)
            with pytest.raises(CutError):
                await memory.forget("t", events=ids(SECRETS))
        [info] = await memory.trees()
        assert info.redacted < info.floor
        assert found_in(tmp_path, SECRET.encode())
    async with await opened(tmp_path) as memory:
        [info] = await memory.trees()
        assert info.redacted == info.floor
        assert found_in(tmp_path, SECRET.encode()) == {}


async def test_an_index_that_was_being_made_anew_keeps_nothing_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it had read the words, wrote them when they were forgotten, and ended."""
    async with await opened(tmp_path) as memory:
        await memory.ingest(turns(range(40)))
        await memory.fresh("t")
        await memory.search("t", SECRET)
        index = memory.parts.index
        update = index.update

        async def late(tree: TreeId, **given: Any) -> bool:
            if tree.endswith(ASIDE) and given["upserts"]:
                await memory.forget("t", events=ids(SECRETS))
                await update(tree, **given)
                raise CutError
            return await update(tree, **given)

        with monkeypatch.context() as patch:
            patch.setattr(index, "update", late)
            with pytest.raises(CutError):
                await Reindexing(store=memory.parts.store, index=index).rebuild(TreeId("t"))
        assert found_in(tmp_path, SECRET.encode()) == {}
        await Reindexing(store=memory.parts.store, index=index).rebuild(TreeId("t"))
        assert (await memory.search("t", "topic1")).hits


async def test_the_same_call_finishes_what_it_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def cut(*_: object, **__: object) -> None:
        raise CutError

    async with await opened(tmp_path, summaries=False) as memory:
        await memory.ingest(turns(range(40)))
        with monkeypatch.context() as patch:
            patch.setattr(memory.parts.jobs, "put", cut)
            with pytest.raises(CutError):
                await memory.forget("t", events=ids(SECRETS))
        before = memory.parts.jobs.backlog()
        report = await memory.forget("t", events=ids(SECRETS))
        assert (report.forgotten, report.already) == (0, len(SECRETS))
        assert memory.parts.jobs.backlog() >= before
        assert found_in(tmp_path, SECRET.encode()) == {}


async def test_somebody_who_reads_an_earlier_state_is_waited_for_and_then_named(tmp_path: Path) -> None:
    async with await opened(tmp_path) as memory:
        await memory.ingest(turns(range(40)))
        await memory.fresh("t")
        store: Any = memory.parts.store
        store._busy_wait /= 20
        with closing(sqlite3.connect(tmp_path / "store.db")) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM node").fetchone()
            with pytest.raises(StoreBusyError, match="try again"):
                await memory.forget("t", events=ids(SECRETS))
            assert {one.status for one in await memory.ingest(turns(SECRETS[:2]))} == {EventStatus.FORGOTTEN}, "it is forgotten"
        await memory.forget("t", events=ids(SECRETS))
        assert found_in(tmp_path, SECRET.encode()) == {}
