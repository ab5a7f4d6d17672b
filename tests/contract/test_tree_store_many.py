"""What `TreeStore` promises when many use it at once, over every adapter."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from memory.changes import Create
from memory.model import ROOT, EventId, NodeId, TreeId
from memory.ports.store import Applied, Seen, Stale, TreeStore
from tests.fakes.change_sets import TREE, change_set, event, expect, grow, insert, leaf, summary, tree_info


@pytest.fixture
async def tree(store: TreeStore) -> TreeId:
    await store.create_tree(tree_info())
    return TREE


@pytest.mark.usefixtures("tree")
async def test_of_those_who_expect_the_same_state_one_wins(store: TreeStore) -> None:
    sets = [insert(f"n{number}", expects=[expect(ROOT, routing=0)]) for number in range(50)]
    answers = await asyncio.gather(*map(store.apply, sets))
    winners = [one.steps[0] for one, answer in zip(sets, answers, strict=True) if isinstance(answer, Applied)]
    assert len(winners) == 1
    assert sum(isinstance(answer, Stale) for answer in answers) == 49
    assert isinstance(winners[0], Create)
    assert set(await store.events(TREE)) == {f"e-{winners[0].id}"}


@pytest.mark.usefixtures("tree")
async def test_of_those_who_bring_the_same_event_one_wins(store: TreeStore) -> None:
    sets = [replace(insert(f"n{number}"), events=(event("same", f"n{number}"),)) for number in range(50)]
    answers = await asyncio.gather(*map(store.apply, sets))
    assert sorted(type(answer).__name__ for answer in answers) == ["Applied"] + ["Seen"] * 49
    receipt = (await store.receipts(TREE, [EventId("e-same")]))[EventId("e-same")]
    assert all(answer == Seen(receipts={EventId("e-same"): receipt}) for answer in answers if isinstance(answer, Seen))
    assert (await store.stats(TREE)).leaves == 1


async def test_retrying_until_it_fits_loses_no_update(store: TreeStore, tree: TreeId) -> None:
    await store.apply(change_set(summary("s")))

    async def writer(number: int) -> int:
        for tries in range(1, 200):
            routing = (await store.nodes(tree, [NodeId("s")]))[NodeId("s")].routing
            if isinstance(await store.apply(insert(f"n{number}", "s", expects=[expect("s", routing=routing)])), Applied):
                return tries
        raise AssertionError("never fitted")

    assert max(await asyncio.gather(*map(writer, range(20)))) > 1, "nobody was in anybody's way: the test shows nothing"
    found = (await store.nodes(tree, [NodeId("s")]))[NodeId("s")]
    assert (found.routing, found.descendants, found.pending) == (20, 20, 20)
    assert [entry.seq for entry in await store.changes(tree, 0)] == list(range(1, 22))


async def test_a_reader_never_sees_half_a_commit(store: TreeStore, tree: TreeId) -> None:
    await store.apply(change_set(summary("s")))
    done = False

    async def read() -> int:
        reads = 0
        while not done:
            columns = await store.skeleton(tree)
            assert columns.descendants[1] == len(columns.ids) - 2 == 3 * (columns.seq - 1) == columns.routings[1]
            stats = await store.stats(tree)
            assert stats.leaves == stats.pending == stats.events == 3 * (stats.seq - 1)
            reads += 1
        return reads

    reader = asyncio.create_task(read())
    for number in range(30):
        names = [f"{number}-{part}" for part in range(3)]
        steps = [step for name in names for step in (leaf(name, "s", 2), grow(name, "s"))]
        await store.apply(change_set(*steps, events=[event(name) for name in names]))
    done = True
    assert await reader > 0


@pytest.mark.usefixtures("tree")
async def test_a_cancelled_apply_is_whole_or_nothing(store: TreeStore) -> None:
    tasks = [asyncio.create_task(store.apply(insert(f"n{number}"))) for number in range(20)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(await store.apply(insert("last")), Applied)
    stats = await store.stats(TREE)
    assert stats.leaves == stats.events == stats.seq == stats.nodes - 1
    assert stats.leaves >= 11
