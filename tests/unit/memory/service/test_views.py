"""Views: level with the log, bounded, and thrown away when they may be wrong."""

from __future__ import annotations

import asyncio

import pytest

from memory.model import TreeId
from memory.service.views import Views
from memory.tree.view import View
from tests.fakes.world import TREE, World, turns
from tests.unit.memory.service.conftest import MakeWorld


async def assert_as_stored(world: World, view: View, tree: TreeId = TREE) -> None:
    fresh = View.load(await world.store.skeleton(tree))
    assert view.seq == fresh.seq
    assert {leaf: home.id for leaf, home in view.homes.items()} == {leaf: home.id for leaf, home in fresh.homes.items()}
    assert {name: (branch.version, branch.routing, branch.depth, sorted(branch.ids)) for name, branch in view.branches.items()} == {
        name: (branch.version, branch.routing, branch.depth, sorted(branch.ids)) for name, branch in fresh.branches.items()
    }
    for name, branch in view.branches.items():
        there = fresh.branches[name]
        for slot, child in enumerate(branch.ids):
            assert (branch.row(slot) == there.row(there.ids.index(child))).all()


async def test_a_view_follows_what_others_commit(make_world: MakeWorld) -> None:
    ours, other = make_world(), make_world()
    await ours.put(*turns(range(20)))
    for start in (20, 40, 60):
        await other.put(*turns(range(start, start + 20)))
        await other.drain()
        async with ours.views.hold(TREE) as view:
            await assert_as_stored(ours, view)


async def test_a_view_far_behind_catches_up_in_pages(make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.service.views.CHANGES_PER_READ", 3)
    ours, other = make_world(), make_world()
    await ours.put(*turns(range(4)))
    for number in range(10, 21):
        await other.put(*turns([number]))
    async with ours.views.hold(TREE) as view:
        await assert_as_stored(ours, view)
    await ours.put(*turns(range(30, 36)))
    assert (await ours.inspect.check(TREE)).clean


async def test_a_view_whose_holder_failed_is_loaded_anew(world: World) -> None:
    await world.put(*turns(range(10)))
    held: list[View] = []

    async def fail() -> None:
        async with world.views.hold(TREE) as view:
            held.append(view)
            view.root.ids.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with world.views.hold(TREE) as view:
        assert view is not held[0]
        await assert_as_stored(world, view)


async def test_one_holder_at_a_time_and_a_cancelled_waiter_lets_go(world: World) -> None:
    await world.put(*turns(range(4)))
    async with world.views.hold(TREE):

        async def wait() -> None:
            async with world.views.hold(TREE):
                raise AssertionError("never had")

        waiter = asyncio.create_task(wait())
        await asyncio.sleep(1)
        waiter.cancel()
        await asyncio.gather(waiter, return_exceptions=True)
    await asyncio.wait_for(world.put(*turns(range(6))), 10)


async def test_the_least_recently_used_go_when_memory_is_short(world: World) -> None:
    names = [TreeId(f"tree-{number}") for number in range(5)]
    for name in names:
        await world.put(*turns(range(20), tree=name))
    loads: list[TreeId] = []
    skeleton = world.store.skeleton

    async def counted(tree: TreeId) -> object:
        loads.append(tree)
        return await skeleton(tree)

    world.store.skeleton = counted  # type: ignore[method-assign, assignment]
    one = View.load(await skeleton(names[0])).bytes
    views = Views(world.store, bytes_max=3 * one + one // 2)
    for name in (*names, names[4], names[3], names[2]):
        async with views.hold(name) as view:
            assert len(view.root) > 0
    assert loads == names, "the last three were kept"
    async with views.hold(names[0]):
        pass
    async with views.hold(names[4]):
        pass
    assert loads == [*names, names[0], names[4]], "the least recently used was dropped"


async def test_one_view_may_exceed_the_limit_alone(world: World) -> None:
    await world.put(*turns(range(20)))
    views = Views(world.store, bytes_max=1)
    async with views.hold(TREE) as first:
        pass
    async with views.hold(TREE) as second:
        assert second is first


async def test_views_are_not_counted_at_every_commit(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    count = View.bytes.fget  # type: ignore[attr-defined]

    def counting(view: View) -> int:
        nonlocal counted
        counted += 1
        return int(count(view))

    other = TreeId("other")
    await world.put(*turns(range(200)), *turns(range(200), tree=other))
    monkeypatch.setattr(View, "bytes", property(counting))
    for number in range(20):
        await world.put(*turns([1_000 + number]), *turns([1_000 + number], tree=other))
    assert counted <= 4


async def test_no_lock_is_kept_of_a_tree_that_nobody_holds(world: World) -> None:
    """A memory of a million trees touches each of them once."""
    for number in range(5):
        name = TreeId(f"tree-{number}")
        await world.put(*turns(range(2), tree=name))
        await world.indexing.catch_up(name)
    assert len(world.views._locks) == 0
    assert len(world.indexing._locks) == 0
    async with world.views.hold(TreeId("tree-1")):
        assert list(world.views._locks) == ["tree-1"]


async def test_a_view_of_commits_that_the_store_has_lost_is_loaded_anew_whoever_was_told(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(*turns(range(10)))
    async with world.views.hold(TREE) as before:
        pass
    async with world.views.hold(TREE) as same:
        assert same is before
    monkeypatch.setattr(world.store, "losses", lambda _: 1)
    async with world.views.hold(TREE, fresh=False) as after:
        assert after is not before
        await assert_as_stored(world, after)
    async with world.views.hold(TREE) as same:
        assert same is after
