"""Comparing an index with the store, and making it anew while it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memory.changes import LogEntry
from memory.errors import StoreBusyError, TreeNotFoundError
from memory.model import EventId, NodeId, TreeId
from memory.ports.index import IndexQuery
from memory.service import indexing
from memory.service.forgetting import Forgetting
from memory.service.indexing import ASIDE, Indexing
from memory.service.reindexing import Outgrown, Reindexing
from tests.fakes.memory_index import MemoryIndex
from tests.fakes.world import TREE, World, turns

NEW = TreeId(TREE + ASIDE)


class Watched(MemoryIndex):
    """Has turns that can be another's, and can be outgrown."""

    def __init__(self) -> None:
        super().__init__()
        self.others_turn: set[TreeId] = set()
        self.mine: set[TreeId] = set()
        self.prepared: list[tuple[TreeId, int]] = []
        self.outgrown_at = 1_000_000

    async def take_turn(self, tree: TreeId, *, seconds: float) -> bool:
        assert seconds > 0
        if tree in self.others_turn:
            return False
        self.mine.add(tree)
        return True

    async def end_turn(self, tree: TreeId) -> None:
        self.mine.discard(tree)

    async def prepare(self, tree: TreeId, *, nodes: int, dimension: int) -> None:
        assert dimension > 0
        self.prepared.append((tree, nodes))

    async def outgrown(self, tree: TreeId) -> bool:
        return await self.size(tree) >= self.outgrown_at and not self.prepared


@pytest.fixture
async def filled(world: World) -> World:
    await world.put(*turns(range(60)))
    await world.drain()
    return world


async def test_an_index_that_is_level_is_found_to_be(filled: World) -> None:
    found = await Reindexing(store=filled.store, index=MemoryIndex()).verify(TREE)
    assert found.level
    assert found.nodes == (await filled.store.stats(TREE)).nodes - 1 > 60
    assert found.seq == (await filled.store.tree(TREE)).seq


async def test_what_is_missing_wrong_and_superfluous_is_counted(filled: World) -> None:
    index = MemoryIndex()
    reindexing = Reindexing(store=filled.store, index=index)
    await reindexing.verify(TREE)
    entries = index.trees[TREE].entries
    lost, turned, renamed, *_ = list(entries)
    entries[NodeId("stray")] = replace(entries[lost], node=NodeId("stray"))
    del entries[lost]
    entries[turned] = replace(entries[turned], vector=-entries[turned].vector)
    entries[renamed] = replace(entries[renamed], speaker="Nobody")
    found = await reindexing.verify(TREE)
    assert (found.missing, found.differing, found.superfluous, found.level) == (1, 2, 1, False)
    assert set(found.examples) == {lost, turned, renamed}


async def test_an_index_that_lost_its_words_is_found(filled: World) -> None:
    index = MemoryIndex()
    reindexing = Reindexing(store=filled.store, index=index)
    await reindexing.verify(TREE)
    for node, entry in list(index.trees[TREE].entries.items()):
        index.trees[TREE].entries[node] = replace(entry, text="")
    assert (await reindexing.verify(TREE)).differing > 0


async def test_rebuilding_repairs_and_the_old_one_answers_until_then(filled: World) -> None:
    index = MemoryIndex()
    reindexing = Reindexing(store=filled.store, index=index)
    await reindexing.verify(TREE)
    index.trees[TREE].entries.pop(next(iter(index.trees[TREE].entries)))
    before = len(index.trees[TREE].entries)
    sizes: list[int] = []

    def look(done: int, total: int) -> None:
        assert done <= total
        sizes.append(len(index.trees[TREE].entries))

    assert await reindexing.rebuild(TREE, progress=look) == (await filled.store.tree(TREE)).seq
    assert set(sizes) == {before}
    assert (await reindexing.verify(TREE)).level
    assert NEW not in index.trees


async def test_it_goes_on_where_it_was_ended(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.service.reindexing.COMMITS_PER_STEP", 2)
    monkeypatch.setattr("memory.service.indexing.CHANGES_PER_UPDATE", 2)
    for number in range(100, 110):
        await filled.put(*turns(range(number, number + 1)))
    index = MemoryIndex()

    def stop(done: int, _total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        await Reindexing(store=filled.store, index=index).rebuild(TREE, progress=stop)
    reached = index.seqs[NEW]
    assert reached >= 4
    starts: list[int] = []
    await Reindexing(store=filled.store, index=index).rebuild(TREE, progress=lambda done, _total: starts.append(done))
    assert starts[0] == reached
    assert (await Reindexing(store=filled.store, index=index).verify(TREE)).level


async def test_what_is_written_meanwhile_is_in_the_new_one(filled: World) -> None:
    index = MemoryIndex()
    reindexing = Reindexing(store=filled.store, index=index)
    writes = asyncio.gather(*(filled.put(*turns(range(200 + number, 201 + number))) for number in range(20)))
    await reindexing.rebuild(TREE)
    await writes
    assert (await reindexing.verify(TREE)).level


async def test_a_log_that_gives_no_more_is_not_waited_for_without_end(filled: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100, 104):
        await filled.put(*turns(range(number, number + 1)))
    changes, rounds = filled.store.changes, 0

    async def short(tree: TreeId, after: int, *, limit: int = 1000) -> list[LogEntry]:
        return [each for each in await changes(tree, after, limit=limit) if each.seq <= 3]

    def count(_done: int, _total: int) -> None:
        nonlocal rounds
        rounds += 1
        assert rounds < 10, "it goes round and round"

    monkeypatch.setattr(filled.store, "changes", short)
    with pytest.raises(StoreBusyError, match="stays at commit 3 of"):
        await Reindexing(store=filled.store, index=MemoryIndex()).rebuild(TREE, progress=count)


async def test_two_do_not_make_one_index_at_once(filled: World) -> None:
    index = Watched()
    index.others_turn.add(NEW)
    with pytest.raises(StoreBusyError, match="another process"):
        await Reindexing(store=filled.store, index=index).rebuild(TREE)
    index.others_turn.clear()
    await Reindexing(store=filled.store, index=index).rebuild(TREE)
    assert not index.mine
    assert index.prepared == [(NEW, (await filled.store.stats(TREE)).nodes - 1)]


async def test_an_unknown_tree_is_refused(filled: World) -> None:
    reindexing = Reindexing(store=filled.store, index=MemoryIndex())
    for call in (reindexing.rebuild, reindexing.verify):
        with pytest.raises(TreeNotFoundError):
            await call(TreeId("unknown"))


async def test_a_tree_that_has_outgrown_its_index_is_moved_while_it_is_searched(filled: World) -> None:
    index = Watched()
    index.outgrown_at = 50
    indexing = Indexing(store=filled.store, index=index)
    growing = Outgrown(Reindexing(store=filled.store, index=index))
    indexing.on_outgrown(growing)
    assert await indexing.catch_up(TREE) == (await filled.store.tree(TREE)).seq
    vector = next(iter(index.trees[TREE].entries.values())).vector
    while TREE not in index.trees or not index.prepared or NEW in index.trees:
        assert (await index.search(TREE, IndexQuery(vector=vector, terms=""))).found
        await asyncio.sleep(0)
    assert [tree for tree, _ in index.prepared] == [NEW]
    await growing.close()


async def test_while_another_brings_a_tree_level_this_one_waits_for_it(filled: World) -> None:
    index = Watched()
    index.others_turn.add(TREE)
    calls = 0
    update = index.update

    async def counted(*args: object, **named: object) -> bool:
        nonlocal calls
        calls += 1
        return await update(*args, **named)  # type: ignore[arg-type]

    index.update = counted  # type: ignore[method-assign]
    waiting = asyncio.create_task(Indexing(store=filled.store, index=index).catch_up(TREE))
    await asyncio.sleep(0.05)
    assert calls == 0
    seq = (await filled.store.tree(TREE)).seq
    index.seqs[TREE] = seq
    assert await waiting == seq
    assert calls == 0


class _CutError(Exception):
    """The process ended here."""


class _Late(Watched):
    """Before what is made anew gets its entries, which were read by then, something happens; then the process ends."""

    def __init__(self, meanwhile: Callable[[], Awaitable[object]], updates: int) -> None:
        super().__init__()
        self._meanwhile = meanwhile
        self._until = updates
        self.taken: bool | None = None

    async def update(self, tree: TreeId, **given: Any) -> bool:
        if tree == NEW and given["upserts"]:
            self._until -= 1
            if self._until == 0:
                await self._meanwhile()
                self.taken = await super().update(tree, **given)
                raise _CutError
        return await super().update(tree, **given)


@pytest.mark.parametrize("updates", [1, 2])
async def test_what_was_read_before_a_forget_is_not_taken_after_it(
    filled: World, monkeypatch: pytest.MonkeyPatch, updates: int
) -> None:
    """Nobody would take it out again: the forget was answered, and who makes the index anew is gone."""
    monkeypatch.setattr(indexing, "CHANGES_PER_UPDATE", 10)

    async def forget() -> None:
        level = Indexing(store=filled.store, index=index)
        forgetting = Forgetting(store=filled.store, jobs=filled.jobs, clock=filled.clock, views=filled.views, indexing=level)
        await forgetting.forget(TREE, [EventId("e1"), EventId("e2")])

    index = _Late(forget, updates)
    await Indexing(store=filled.store, index=index).catch_up(TREE)
    with pytest.raises(_CutError):
        await Reindexing(store=filled.store, index=index).rebuild(TREE)
    assert index.taken is False
    assert await index.size(NEW) == 0
    assert await Reindexing(store=filled.store, index=index).rebuild(TREE) == (await filled.store.tree(TREE)).seq
    assert (await Reindexing(store=filled.store, index=index).verify(TREE)).level
