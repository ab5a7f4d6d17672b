"""The index: level with the store whatever happened to it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.model import NodeKind, TreeId
from memory.ports.index import IndexQuery, Scope
from memory.ports.store import TreeStore
from memory.service.indexing import Indexing, index_entry
from tests.fakes.memory_index import MemoryIndex
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld


async def assert_level(world: World, index: MemoryIndex, tree: TreeId = TREE) -> None:
    stored = {
        node.id: index_entry(node) async for node in world.store.all_nodes(tree, vectors=True) if node.kind is not NodeKind.ROOT
    }
    entries = index.trees[tree].entries
    assert entries.keys() == stored.keys()
    for name, entry in stored.items():
        assert entries[name].text == entry.text
        assert (entries[name].vector == entry.vector).all()
    assert index.seqs[tree] == (await world.store.tree(tree)).seq


async def test_it_follows_commits_and_rewrites(world: World) -> None:
    index = MemoryIndex()
    indexing = Indexing(store=world.store, index=index)
    for start in range(0, 60, 20):
        await world.put(*turns(range(start, start + 20)))
        assert await indexing.catch_up(TREE) == (await world.store.tree(TREE)).seq
        await assert_level(world, index)
        await world.drain()
        await indexing.catch_up(TREE)
        await assert_level(world, index)


async def test_a_commit_is_found_as_soon_as_it_is_acknowledged(make_world: MakeWorld) -> None:
    ours, other = make_world(), make_world()
    await ours.put(turn(0))
    for number in range(1, 30):
        await other.put(turn(number, f"unique{number}"))
        hits = (await ours.query.search(TREE, f"unique{number}", k=3, strategy="collapsed", scope=Scope())).hits
        assert hits[0].event_id == f"e{number}"


async def test_far_behind_it_goes_in_steps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.service.indexing.CHANGES_PER_UPDATE", 4)
    for number in range(20):
        await world.put(turn(number))
    index = MemoryIndex()
    await Indexing(store=world.store, index=index).catch_up(TREE)
    await assert_level(world, index)


async def test_one_that_covers_more_than_there_is_is_made_anew(make_world: MakeWorld) -> None:
    """The store was restored from an older copy."""
    newer, older = make_world("newer"), make_world("older")
    index = MemoryIndex()
    for number in range(9):
        await newer.put(turn(number, f"gone{number}"))
    await Indexing(store=newer.store, index=index).catch_up(TREE)
    await older.put(*turns(range(5)))
    await Indexing(store=older.store, index=index).catch_up(TREE)
    await assert_level(older, index)


@pytest.mark.parametrize("more", [0, 7], ids=["as far", "past it"])
async def test_one_of_another_history_is_made_anew_however_far_the_store_has_come(make_world: MakeWorld, more: int) -> None:
    """The store was restored from an older copy and went on from there."""
    lost, restored = make_world("lost"), make_world("restored")
    index = MemoryIndex()
    for number in range(9):
        await lost.put(turn(number, f"gone{number}"))
    reached = await Indexing(store=lost.store, index=index).catch_up(TREE)
    await restored.clock.sleep(60)
    for number in range(reached + more):
        await restored.put(turn(100 + number))
    assert (await restored.store.tree(TREE)).seq == reached + more
    await Indexing(store=restored.store, index=index).catch_up(TREE)
    await assert_level(restored, index)


async def test_one_of_the_same_history_is_kept(world: World) -> None:
    index = MemoryIndex()
    await world.put(*turns(range(10)))
    await Indexing(store=world.store, index=index).catch_up(TREE)
    kept = index.trees[TREE]
    await world.put(*turns(range(10, 15)))
    await Indexing(store=world.store, index=index).catch_up(TREE)
    assert index.trees[TREE] is kept
    await assert_level(world, index)


async def test_one_that_was_lost_is_made_anew(world: World) -> None:
    index = MemoryIndex()
    indexing = Indexing(store=world.store, index=index)
    await world.put(*turns(range(10)))
    await indexing.catch_up(TREE)
    await index.drop(TREE)
    await world.put(*turns(range(10, 15)))
    await indexing.catch_up(TREE)
    await assert_level(world, index)


async def test_several_processes_bring_one_index_up_to_date_at_once(make_world: MakeWorld) -> None:
    async def pause(_: str) -> None:
        await asyncio.sleep(0.01)

    index = MemoryIndex(pause)
    worlds = [make_world() for _ in range(3)]
    indexings = [Indexing(store=world.store, index=index) for world in worlds]
    for start in range(0, 30, 5):
        await worlds[0].put(*turns(range(start, start + 5)))
        seq = (await worlds[0].store.tree(TREE)).seq
        covered = await asyncio.gather(*(indexing.catch_up(TREE) for indexing in indexings for _ in range(2)))
        assert min(covered) >= seq
    await assert_level(worlds[0], index)


async def test_it_goes_up_to_the_commit_that_is_asked_for_at_least(world: World) -> None:
    index = MemoryIndex()
    indexing = Indexing(store=world.store, index=index)
    for number in range(6):
        await world.put(turn(number))
    assert await indexing.catch_up(TREE, to=3) >= 3
    assert await indexing.catch_up(TREE, to=2) >= 3, "never back"
    answer = await index.search(TREE, IndexQuery(vector=await world.query.embed("words"), terms=""))
    assert answer.seq >= 3


async def test_another_process_that_takes_a_shorter_step_leaves_no_gap(world: World) -> None:
    """Ours is refused since the other was faster; what it did not take is still to be done."""
    for number in range(8):
        await world.put(turn(number))
    index = MemoryIndex()
    update = index.update

    async def raced(tree: TreeId, *, after: int, seq: int, **entries: Any) -> bool:
        index.update = update  # type: ignore[method-assign]
        await Indexing(store=_UpTo(world, 3), index=index).catch_up(tree, to=3)  # type: ignore[arg-type]
        return await update(tree, after=after, seq=seq, **entries)

    index.update = raced  # type: ignore[method-assign]
    assert await Indexing(store=world.store, index=index).catch_up(TREE) == 8
    await assert_level(world, index)


class _UpTo:
    """A store as another process saw it a little earlier."""

    def __init__(self, world: World, seq: int) -> None:
        self._store = world.store
        self._seq = seq

    async def changes(self, tree: TreeId, after: int, *, limit: int) -> object:
        return await self._store.changes(tree, after, limit=min(limit, self._seq - after))

    def __getattr__(self, name: str) -> object:
        return getattr(self._store, name)


async def test_commits_of_this_process_are_not_read_back(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = make_world(), make_world()
    index = MemoryIndex()
    indexing = Indexing(store=ours.store, index=index)
    ours.ingest.on_commit(indexing.committed)
    await ours.put(turn(0))
    await indexing.catch_up(TREE)
    reads: list[str] = []
    for name in ("nodes", "changes"):
        asked = getattr(ours.store, name)

        async def noted(*args: Any, _name: str = name, _asked: Any = asked, **kwargs: Any) -> Any:
            reads.append(_name)
            return await _asked(*args, **kwargs)

        monkeypatch.setattr(ours.store, name, noted)
    for start in range(1, 41, 20):
        await ours.put(*turns(range(start, start + 20)))
    reads.clear()
    await indexing.catch_up(TREE)
    assert reads == ["changes"], "the commit that the index stands at is compared, nothing else is read"
    await assert_level(ours, index)
    await ours.put(turn(41))
    await other.put(turn(42))  # what another process commits in between is read
    await ours.put(turn(43))
    await indexing.catch_up(TREE)
    await assert_level(ours, index)


async def test_of_what_it_is_told_it_keeps_a_bounded_part(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.service.indexing.TOLD_MAX", 3_000)
    index = MemoryIndex()
    indexing = Indexing(store=world.store, index=index)
    world.ingest.on_commit(indexing.committed)
    for number in range(20):
        await world.put(turn(number))
    await indexing.catch_up(TREE)
    await assert_level(world, index)


async def test_trees_that_are_followed_stay_level_at_two_calls_a_round(make_world: MakeWorld) -> None:
    world = make_world()
    trees = [TreeId(f"t{number}") for number in range(5)]
    counted: list[str] = []
    index, store = MemoryIndex(), world.store
    indexing = Indexing(store=_Counting(store, counted), index=index)  # type: ignore[arg-type]
    for tree in trees[:4]:
        await world.put(turn(0, tree=tree))
    assert not await indexing.catch_up_all(trees), "what was behind is caught up tree by tree"
    for tree in trees:  # the last of them is made only now
        await world.put(turn(1, tree=tree), turn(2, tree=tree))
    await indexing.catch_up_all(trees)
    for tree in trees:
        await assert_level(world, index, tree)
    counted.clear()
    for start in range(10, 30, 5):
        for tree in trees:
            await world.put(*(turn(number, tree=tree) for number in range(start, start + 5)))
        assert await indexing.catch_up_all(trees)
        for tree in trees:
            await assert_level(world, index, tree)
    assert not await indexing.catch_up_all(trees)
    assert counted == ["news"] * 5, "one call of the store for all trees"


async def test_one_that_is_followed_and_outgrows_its_index_is_told_of(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    index = MemoryIndex()

    async def outgrown(tree: TreeId) -> bool:
        return await index.size(tree) >= 10

    monkeypatch.setattr(index, "outgrown", outgrown)
    told: list[TreeId] = []
    indexing = Indexing(store=world.store, index=index)
    indexing.on_outgrown(told.append)
    await world.put(turn(0))
    await indexing.catch_up_all([TREE])
    await world.put(turn(1))
    assert await indexing.catch_up_all([TREE])
    assert told == []
    await world.put(*turns(range(2, 20)))
    assert await indexing.catch_up_all([TREE])
    assert told == [TREE]


async def test_one_that_is_followed_goes_on_where_another_process_left_it(world: World) -> None:
    index = MemoryIndex()
    ours, other = (Indexing(store=world.store, index=index) for _ in range(2))
    for number in range(12):
        await world.put(turn(number))
        await (other if number % 3 else ours).catch_up_all([TREE])
    while await ours.catch_up_all([TREE]) or index.seqs[TREE] < 12:
        pass
    await assert_level(world, index)


@pytest.mark.parametrize("more", [-3, 0, 7], ids=["behind it", "as far", "past it"])
async def test_one_that_is_followed_into_another_history_is_made_anew(make_world: MakeWorld, more: int) -> None:
    """The store was restored from an older copy while it was followed."""
    lost, restored = make_world("lost"), make_world("restored")
    index = MemoryIndex()
    for number in range(9):
        await lost.put(turn(number, f"gone{number}"))
    reached = await Indexing(store=lost.store, index=index).catch_up(TREE)
    await restored.clock.sleep(60)
    for number in range(reached + more):
        await restored.put(turn(number, f"kept{number}"))
    following = Indexing(store=restored.store, index=index)
    following._standings[TREE] = (reached, index.stamps[TREE])  # as if it had followed the other
    following._compared.add(TREE)
    for number in range(3):
        await following.catch_up_all([TREE])
        await restored.put(turn(100 + number))
    await following.catch_up_all([TREE])
    await following.catch_up_all([TREE])
    await assert_level(restored, index)


class _Counting:
    """A store whose calls are noted."""

    def __init__(self, store: TreeStore, calls: list[str]) -> None:
        self._store = store
        self._calls = calls

    def __getattr__(self, name: str) -> object:
        self._calls.append(name)
        return getattr(self._store, name)
