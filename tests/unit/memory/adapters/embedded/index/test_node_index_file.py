"""What the contract does not say: damage, other processes' files, memory bounds, merging."""

from __future__ import annotations

import asyncio
import sqlite3
import tracemalloc
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest

from memory.adapters.embedded.index import appending, file, gathering, lexical, node_index, segment, tidying, tree, vectors
from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.adapters.embedded.index.segment import Segment
from memory.errors import StoreUnavailableError
from memory.model import NodeId, NodeKind, TreeId, mark
from memory.ports.index import IndexEntry, IndexQuery
from tests.fakes.plain_index import unit

TREE = TreeId("t")


def entry(number: int, text: str = "copper") -> IndexEntry:
    vector = unit(np.random.default_rng(number).standard_normal(16))
    return IndexEntry(node=NodeId(f"n{number}"), kind=NodeKind.LEAF, mark=mark(1, number), vector=vector, text=text)


ALL = IndexQuery(vector=unit(np.ones(16)), terms="copper", dense_k=10_000, lexical_k=10_000)


async def fill(index: EmbeddedNodeIndex, numbers: Sequence[int], batch: int, text: str = "copper") -> None:
    for start in range(0, len(numbers), batch):
        seq = await index.covered(TREE)
        entries = [entry(number, text) for number in numbers[start : start + batch]]
        assert await index.update(TREE, after=seq, seq=seq + 1, upserts=entries)


def test_several_open_a_new_file_at_once(tmp_path: Path) -> None:
    """Who turns to write-ahead logging waits for nobody by itself: SQLite answers at once that the file is locked."""
    for turn in range(30):
        path = tmp_path / f"{turn}.db"
        with ThreadPoolExecutor(4) as pool:
            opened = [pool.submit(file.SegmentFile, path, form="f", busy_wait=timedelta(seconds=30)) for _ in range(4)]
            assert all(one.result().reach("t") == appending.NOWHERE for one in opened)


async def test_a_file_damaged_anywhere_covers_0_or_answers_right(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    index = await EmbeddedNodeIndex.open(path)
    await fill(index, range(500), 100)
    whole = {c.node for c in (await index.search(TREE, ALL)).found}
    await index.close()
    content = path.read_bytes()
    covered = set()
    random = np.random.default_rng(1)
    for place in [0, 20, 100, *random.integers(0, len(content), 25).tolist()]:
        damaged = bytearray(content)
        damaged[place : place + 200] = random.bytes(200)
        path.write_bytes(damaged[: len(content)])
        index = await EmbeddedNodeIndex.open(path)
        answer = await index.search(TREE, ALL)
        covered.add(answer.seq)
        assert {c.node for c in answer.found} == (whole if answer.seq else set())
        assert await index.covered(TREE) == answer.seq
        if not answer.seq:
            await fill(index, range(10), 10)
            assert len((await index.search(TREE, ALL)).found) == 10
        await index.close()
    assert 0 in covered


@pytest.mark.parametrize("content", [b"", b"not a database at all" * 100, b"SQLite format 3\x00" + bytes(50)])
async def test_a_file_that_is_none_is_made_anew(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "index.db"
    path.write_bytes(content)
    index = await EmbeddedNodeIndex.open(path)
    assert await index.covered(TREE) == 0
    await fill(index, range(3), 3)
    await index.close()


async def test_a_file_cut_short_while_open_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    index = await EmbeddedNodeIndex.open(path)
    await fill(index, range(500), 100)
    await index.close()
    index = await EmbeddedNodeIndex.open(path)
    with sqlite3.connect(path) as other:
        other.execute("UPDATE segments SET data = substr(data, 1, 1000) WHERE id = 3")
    other.close()
    assert (await index.search(TREE, ALL)).seq == 0
    assert await index.covered(TREE) == 0
    await fill(index, range(5), 5)
    assert len((await index.search(TREE, ALL)).found) == 5
    await index.close()


async def test_a_file_that_vanished_or_was_replaced_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    first, second = await EmbeddedNodeIndex.open(path), await EmbeddedNodeIndex.open(path)
    await fill(first, range(5), 5)
    await second.search(TREE, ALL)
    for suffix in ("", "-wal", "-shm"):
        (tmp_path / f"index.db{suffix}").unlink()
    assert await second.covered(TREE) == 0
    await fill(second, range(100, 102), 1)
    assert {c.node for c in (await first.search(TREE, ALL)).found} == {"n100", "n101"}
    await first.close()
    await second.close()


async def test_an_update_that_is_overtaken_while_it_is_made_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    other = await EmbeddedNodeIndex.open(path)
    overtaking = False

    def words(text: str) -> list[str]:
        # Runs between the first look at where the tree stands and the transaction that moves it on.
        if overtaking:
            assert other._file.append([appending.Append(tree=TREE, after=0, seq=7, dimension=0, segment=lambda: None)]) == [True]
        return lexical.words(text)

    index = await EmbeddedNodeIndex.open(path, tokenize=words)
    overtaking = True
    assert not await index.update(TREE, after=0, seq=1, upserts=[entry(1)])
    assert await index.covered(TREE) == 7
    overtaking = False
    assert (await index.search(TREE, ALL)).found == []
    await index.close()
    await other.close()


async def test_another_tokenizer_makes_the_file_anew(tmp_path: Path) -> None:
    index = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    await fill(index, range(3), 3)
    await index.close()
    index = await EmbeddedNodeIndex.open(tmp_path / "index.db", tokenize=str.split)
    assert await index.covered(TREE) == 0
    await index.close()


async def test_k1_and_b_are_settings_of_the_opening(tmp_path: Path) -> None:
    scores = []
    for k1, b in ((0.9, 0.4), (0.9, 0.4), (2.0, 1.0)):
        index = await EmbeddedNodeIndex.open(tmp_path / "index.db", k1=k1, b=b)
        if not await index.covered(TREE):
            await index.update(TREE, after=0, seq=1, upserts=[entry(1, "copper copper tin"), entry(2)])
        scores.append({c.node: c.lexical for c in (await index.search(TREE, ALL)).found})
        await index.close()
    assert scores[0] == scores[1] != scores[2]


async def test_loading_does_not_copy_what_is_large_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight blocks, the last one small, were made one of all rows: at 100,000 nodes most of the time to the first answer."""
    monkeypatch.setattr(tidying, "SEGMENT_ROWS_MAX", 100)
    monkeypatch.setattr(tree, "BLOCK_ROWS_MAX", 100)
    monkeypatch.setattr(gathering, "LOADED_ROWS", 100)
    index = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    await fill(index, range(7 * 110), 110)
    await fill(index, range(1000, 1090), 90)
    await index.close()
    copied: list[int] = []
    concatenate = vectors.concatenate

    def counted(parts: Sequence[vectors.Vectors]) -> vectors.Vectors:
        made = concatenate(parts)
        copied.append(len(made.scales))
        return made

    monkeypatch.setattr(vectors, "concatenate", counted)
    again = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    assert len((await again.search(TREE, ALL)).found) == 7 * 110 + 90
    assert sum(copied) <= 90
    await again.close()


async def test_a_tree_is_loaded_without_holding_its_segments_beside_it(tmp_path: Path) -> None:
    """They were: at 100,000 nodes a service took 800 MB while it loaded them, and 430 afterwards."""
    index = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    rows = np.random.default_rng(1).standard_normal((3_000, 384)).astype(np.float32)
    for seq in range(30):
        numbers = range(100 * seq, 100 * seq + 100)
        upserts = [replace(entry(number), vector=unit(rows[number])) for number in numbers]
        await index.update(TREE, after=seq, seq=seq + 1, upserts=upserts)
    await index.close()
    again = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    query = replace(ALL, vector=unit(np.ones(384)), dense_k=1, lexical_k=1)
    tracemalloc.start()
    try:
        assert (await again.search(TREE, query)).seq == 30
        stays, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert stays > 3_000 * 384 * 3
    assert most < 1.3 * stays
    await again.close()


@pytest.mark.parametrize("merges", [1, 2, 100])
async def test_a_tree_that_another_process_merges_while_it_is_read_is_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, merges: int
) -> None:
    path = tmp_path / "index.db"
    index = await EmbeddedNodeIndex.open(path)
    await fill(index, range(40), 10)
    await index.update(TREE, after=4, seq=5, upserts=[entry(3, "tin")], removes=[NodeId("n7")])
    await index.close()
    other = file.SegmentFile(path, form=_form(path), busy_wait=timedelta(seconds=30))
    decode, left = segment.decode, merges

    def merged(data: bytes) -> Segment:
        nonlocal left
        if left:
            left -= 1
            other.expunge(TREE)
        return decode(data)

    monkeypatch.setattr(other, "_scrub", lambda: None)  # it would wait for whoever reads
    monkeypatch.setattr(gathering, "decode", merged)
    again = await EmbeddedNodeIndex.open(path)
    found = (await again.search(TREE, ALL)).found
    assert {c.node for c in found} == {f"n{number}" for number in range(40)} - {"n7"}
    assert [c.node for c in found if not c.lexical] == ["n3"]
    assert left < merges
    await again.close()
    other.close()


def _form(path: Path) -> str:
    with closing(sqlite3.connect(path)) as connection:
        return str(connection.execute("SELECT value FROM meta WHERE key = 'form'").fetchone()[0])


async def test_a_folder_that_is_missing_is_said(tmp_path: Path) -> None:
    with pytest.raises(StoreUnavailableError, match=r"index\.db"):
        await EmbeddedNodeIndex.open(tmp_path / "missing" / "index.db")


async def test_segments_stay_few_and_superseded_rows_leave_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file, "SEGMENT_ROWS_MAX", 128)
    monkeypatch.setattr(tree, "BLOCK_ROWS_MAX", 128)
    monkeypatch.setattr(tree, "DEAD_ROWS_MIN", 50)
    path = tmp_path / "index.db"
    index, reader = await EmbeddedNodeIndex.open(path), await EmbeddedNodeIndex.open(path)
    await fill(index, range(300), 5)
    await reader.search(TREE, ALL)
    await index.update(TREE, after=60, seq=61, upserts=[], removes=[NodeId("n299")])
    for round_ in range(15):
        await fill(index, range(100), 4, text=f"copper v{round_}")
        # Merging is another thread's: on a busy machine all rounds would be over before it has begun.
        if (tidying := index._trees[TREE].tidying) is not None:
            await asyncio.wrap_future(tidying)
        if round_ % 5 == 0:
            for one in (index, reader):
                found = (await one.search(TREE, ALL)).found
                assert {c.node for c in found} == {f"n{number}" for number in range(299)}
    await index.close()
    with sqlite3.connect(path) as connection:
        count, rows = connection.execute("SELECT count(*), sum(size) FROM segments").fetchone()
    connection.close()
    assert count < 60
    assert rows < 900
    again = await EmbeddedNodeIndex.open(path)
    for one in (again, reader):
        answer = await one.search(TREE, IndexQuery(vector=ALL.vector, terms="v14", dense_k=0, lexical_k=1000))
        assert {c.node for c in answer.found} == {f"n{number}" for number in range(100)}
        found = (await one.search(TREE, ALL)).found
        assert len(found) == 299
        assert len({round(c.lexical, 5) for c in found if int(c.node[1:]) >= 100}) == 1
        await one.close()


async def test_trees_leave_memory_least_recently_used_first() -> None:
    index = await EmbeddedNodeIndex.open(None, memory_bytes_max=30_000)
    names = [TreeId(f"t{number}") for number in range(10)]
    for name in names:
        await index.update(name, after=0, seq=1, upserts=[entry(number) for number in range(20)])
    for name in [*names, names[0]]:
        assert len((await index.search(name, ALL)).found) == 20
    held = [name for name, one in index._trees.items() if one.loaded is not None]
    assert held[-1] == names[0]
    assert 1 <= len(held) < 5
    await index.close()


async def test_a_tree_that_only_grows_is_never_rewritten_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (file, tidying):
        monkeypatch.setattr(module, "SEGMENT_ROWS_MAX", 32)
    monkeypatch.setattr(node_index, "TIDY_AFTER", 8)
    compactions: list[int] = []

    def noted(parts: Sequence[Segment]) -> list[Segment]:
        compactions.append(len(parts))
        return list(parts)

    monkeypatch.setattr(file, "compacted", noted)
    index = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    for seq in range(1, 61):
        grown = [replace(entry(10 * seq + row, "word"), mark=mark(seq, row)) for row in range(10)]
        await index.update(TREE, after=seq - 1, seq=seq, upserts=grown)
    await index.close()
    assert not compactions
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        sizes = [size for (size,) in connection.execute("SELECT size FROM segments")]
    assert sum(sizes) == 600
    assert len(sizes) < 30
    assert max(sizes) <= 32 + 10, "merged, but never more than make a whole segment"


def test_a_merge_takes_no_more_segments_than_make_a_whole_one() -> None:
    half = tidying.SEGMENT_ROWS_MAX // 2
    assert tidying.due([half] * 8) == slice(0, 2)
    assert tidying.due([100] * 8) == slice(0, 8)
    assert tidying.due([100] * 7) is None


@pytest.mark.parametrize("how", ["merge", "compacted"])
async def test_what_a_tree_adopts_while_it_is_merged_stays_the_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """An adoption leaves segments their numbers: the merge took the tree's rows and put them under the name that was gone."""
    made = TreeId("t~new")
    index = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    for seq in range(1, 4):
        assert await index.update(made, after=seq - 1, seq=seq, upserts=[entry(10 * seq + row) for row in range(3)])
    kept, original = index._file, getattr(file, how)

    def adopting(parts: Sequence[Segment]) -> object:
        assert kept.adopt(TREE, made)
        return original(parts)

    monkeypatch.setattr(file, how, adopting)
    monkeypatch.setattr(file, "due", lambda sizes: slice(0, len(sizes)))
    monkeypatch.setattr(file, "COMPACT_GROWTH", 0 if how == "compacted" else 1_000)
    assert not kept.tidy(made)
    await index.close()
    again = await EmbeddedNodeIndex.open(tmp_path / "index.db")
    assert len((await again.search(TREE, ALL)).found) == 9
    assert await again.covered(made) == 0
    await again.close()
    with closing(sqlite3.connect(tmp_path / "index.db")) as connection:
        assert connection.execute("SELECT DISTINCT tree FROM segments").fetchall() == [(TREE,)]
