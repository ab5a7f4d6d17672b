"""What `TreeStore.apply` promises (memory/ports/store.py), over every adapter."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from memory.changes import ChangeSet, Cost
from memory.errors import LeaseLostError, TreeNotFoundError
from memory.model import MARK_BITS, ROOT, EventId, Mark, Node, NodeId, NodeKind, TreeId, mark
from memory.ports.leases import PathLeases
from memory.ports.store import Applied, Contribution, DirtyNode, Receipt, Seen, Stale, TreeStore
from tests.contract.conftest import Elapse
from tests.fakes.change_sets import (
    DIGEST,
    TREE,
    change_set,
    event,
    expand,
    expect,
    grow,
    insert,
    item,
    leaf,
    move,
    rewrite,
    summary,
    tree_info,
    vector,
)
from tests.fakes.plain_tree import fields_of


@pytest.fixture
async def tree(store: TreeStore) -> TreeId:
    await store.create_tree(tree_info())
    return TREE


async def node(store: TreeStore, name: str) -> Node:
    return (await store.nodes(TREE, [NodeId(name)], vectors=True))[NodeId(name)]


async def everything(store: TreeStore, tree: TreeId = TREE) -> object:
    """All that the store knows of a tree, comparable."""
    nodes = [fields_of(found) async for found in store.all_nodes(tree, vectors=True)]
    dirty = await store.dirty(tree)
    contributions = {one.node: await store.contributions(tree, one.node) for one in dirty}
    log = [(entry.seq, entry.events, len(entry.steps)) for entry in await store.changes(tree, 0)]
    counts = replace(await store.stats(tree), bytes=0)
    return nodes, dirty, contributions, log, await store.events(tree), counts, await store.tree(tree)


# ------------------------------------------------------------------------------------------------------------------ trees


async def test_a_tree_is_made_with_its_root(store: TreeStore) -> None:
    made = await store.create_tree(tree_info())
    assert made == tree_info() == await store.tree(TREE)
    root = await node(store, ROOT)
    assert (root.kind, root.parent, root.depth, root.mark, root.vector, root.text) == (NodeKind.ROOT, None, 0, 0, None, "")


async def test_making_a_tree_again_returns_the_first_unchanged(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    await store.apply(insert("a"))
    again = await store.create_tree(replace(tree_info(), structure="hat", parameters={}))
    assert again == replace(tree_info(), seq=1)


async def test_of_many_who_make_a_tree_at_once_all_get_the_same(store: TreeStore) -> None:
    wanted = [replace(tree_info(), parameters={"base": number / 100}) for number in range(20)]
    made = await asyncio.gather(*map(store.create_tree, wanted))
    assert len({one.parameters["base"] for one in made}) == 1
    assert (await store.stats(TREE)).nodes == 1


async def test_trees_are_listed_by_name_and_do_not_touch(store: TreeStore) -> None:
    for name in ("b", "a", "c:1"):
        await store.create_tree(tree_info(name))
    await store.apply(insert("x", tree=TreeId("a")))
    await store.apply(insert("x", tree=TreeId("b")))
    await store.apply(insert("y", tree=TreeId("b")))
    assert [(info.id, info.seq) for info in await store.trees()] == [("a", 1), ("b", 2), ("c:1", 0)]
    assert set(await store.events(TreeId("a"))) == {"e-x"}
    assert [one.id async for one in store.all_nodes(TreeId("b"))] == [ROOT, "x", "y"]
    assert (await store.stats(TreeId("c:1"))).nodes == 1


async def test_no_tree_of_that_name(store: TreeStore) -> None:
    unknown = TreeId("unknown")
    for call in (
        store.tree(unknown),
        store.apply(insert("a", tree=unknown)),
        store.receipts(unknown, []),
        store.nodes(unknown, []),
        store.children(unknown, ROOT),
        store.skeleton(unknown),
        store.changes(unknown, 0),
        store.contributions(unknown, ROOT),
        store.dirty(unknown),
        store.events(unknown),
        store.links(unknown),
        store.stats(unknown),
        anext(aiter(store.all_nodes(unknown))),
    ):
        with pytest.raises(TreeNotFoundError, match="unknown"):
            await call


# ------------------------------------------------------------------------------------------------------------------ apply


async def test_an_applied_set_can_be_read_back(store: TreeStore, tree: TreeId) -> None:
    given = item(
        "a", chunk=2, chunks=3, conversation="c", speaker="Ana", source="s", url="u", title="t", metadata={"n": [1, {"m": None}]}
    )
    assert await store.apply(change_set(leaf("a", given=given), grow("a"), events=[event("a")])) == Applied(seq=1)
    found = await node(store, "a")
    assert found.item == given
    assert found.vector is not None
    assert np.array_equal(found.vector, vector("a"))
    assert (found.text, found.parent, found.depth, found.kind) == (given.text, ROOT, 1, NodeKind.LEAF)
    assert await store.receipts(tree, [EventId("e-a"), EventId("e-b")]) == {
        "e-a": Receipt(event_id=EventId("e-a"), seq=1, digest=DIGEST, leaves=(NodeId("a"),))
    }
    assert (await store.tree(tree)).seq == 1


@pytest.mark.parametrize("text", ["NUL \x00 inside", "😀 مرحبا\u202e", "x" * 200_000, "\n"])
@pytest.mark.usefixtures("tree")
async def test_texts_and_metadata_come_back_as_they_were(store: TreeStore, text: str) -> None:
    given = replace(item("a"), text=text, metadata={text[:50]: text, "big": 10**40, "float": 0.1, "null": None})
    await store.apply(change_set(leaf("a", given=given), events=[event("a")]))
    found = await node(store, "a")
    assert (found.text, found.item) == (text, given)


@pytest.mark.usefixtures("tree")
async def test_marks_versions_and_routings(store: TreeStore) -> None:
    await store.apply(insert("a"))
    await store.apply(expand("a", "b", "s"))  # steps: create s, move a, grow a, create b, grow b
    assert (await node(store, "s")).mark == mark(2, 0)
    assert (await node(store, "b")).mark == mark(2, 3)
    assert (await node(store, "a")).mark == mark(1, 0)
    assert (await node(store, ROOT)).routing == 3, "a added, s added, a moved away"
    assert (await node(store, "s")).routing == 2, "a moved here, b added"
    assert await store.contributions(TREE, NodeId("s")) == [
        Contribution(mark=mark(2, 2), leaf=NodeId("a")),
        Contribution(mark=mark(2, 4), leaf=NodeId("b")),
    ]
    await store.apply(change_set(rewrite("s")))
    found = await node(store, "s")
    assert (found.version, found.routing) == (2, 2)
    assert (await node(store, ROOT)).routing == 4, "s has another vector"
    assert (await node(store, ROOT)).version == 1


@pytest.mark.usefixtures("tree")
async def test_a_moved_node_has_another_parent_and_depth_and_what_is_below_it_is_not_touched(store: TreeStore) -> None:
    await store.apply(insert("a"))
    await store.apply(expand("a", "b", "s"))
    await store.apply(change_set(summary("t")))
    before = await node(store, "a")
    await store.apply(change_set(move("s", ROOT, "t", 2)))
    moved = await node(store, "s")
    assert (moved.parent, moved.depth, moved.version) == ("t", 2, 1)
    assert fields_of(await node(store, "a")) == fields_of(before)
    assert [one.id for one in await store.children(TREE, NodeId("t"))] == ["s"]


@pytest.mark.usefixtures("tree")
async def test_a_move_within_one_parent_bumps_it_twice(store: TreeStore) -> None:
    await store.apply(insert("a"))
    await store.apply(change_set(move("a", ROOT, ROOT, 1)))
    assert (await node(store, ROOT)).routing == 3


@pytest.mark.usefixtures("tree")
async def test_steps_on_one_node_in_one_set_add_up(store: TreeStore) -> None:
    names = [f"n{number}" for number in range(100)]
    steps = [step for name in names for step in (leaf(name, "s", 2), grow(name, "s"))]
    cost = Cost(calls=1, tokens_in=10, tokens_out=2)
    await store.apply(change_set(summary("s"), *steps, rewrite("s", text="one", cost=cost), rewrite("s", text="two", cost=cost)))
    found = await node(store, "s")
    assert (found.descendants, found.pending, found.routing, found.version, found.text) == (100, 100, 100, 3, "two")
    assert found.vector is not None
    assert np.array_equal(found.vector, vector("s/two"))
    assert [one.leaf for one in await store.contributions(TREE, NodeId("s"))] == names
    stats = await store.stats(TREE)
    assert (stats.rewrites, stats.cost) == (2, Cost(calls=2, tokens_in=20, tokens_out=4))


@pytest.mark.usefixtures("tree")
async def test_the_root_counts_all_leaves(store: TreeStore) -> None:
    await store.apply(insert("a"))
    await store.apply(expand("a", "b", "s"))
    await store.apply(insert("c"))
    assert ((await node(store, ROOT)).descendants, (await node(store, ROOT)).pending) == (3, 0)


async def test_a_rewrite_trims_up_to_its_mark_and_later_ones_stay(store: TreeStore, tree: TreeId) -> None:
    await store.apply(change_set(summary("s")))
    for name in "abcd":
        await store.apply(insert(name, "s"))
    marks = [one.mark for one in await store.contributions(tree, NodeId("s"))]
    await store.apply(change_set(rewrite("s", through=0)))
    assert (await node(store, "s")).pending == 4, "a provisional refresh trims nothing"
    await store.apply(change_set(rewrite("s", through=marks[1])))
    found = await node(store, "s")
    assert (found.pending, found.descendants, found.covered, found.provisional) == (2, 4, 2, False)
    assert [one.mark for one in await store.contributions(tree, NodeId("s"))] == marks[2:]
    assert await store.dirty(tree) == [DirtyNode(node=NodeId("s"), depth=1, pending=2, oldest=marks[2])]
    await store.apply(change_set(rewrite("s", through=marks[3])))
    assert (await node(store, "s")).pending == 0
    assert await store.contributions(tree, NodeId("s")) == []
    assert await store.dirty(tree) == []
    await store.apply(insert("e", "s"))
    assert [one.leaf for one in await store.contributions(tree, NodeId("s"))] == ["e"]
    assert (await store.stats(tree)).pending == 1


@pytest.mark.parametrize("kept", [0, 1, 39, 40, 41, 199, 200])
async def test_trimming_within_many_contributions(store: TreeStore, tree: TreeId, kept: int) -> None:
    await store.apply(change_set(summary("s")))
    for start in range(0, 200, 25):
        names = [f"n{number}" for number in range(start, start + 25)]
        await store.apply(change_set(*(step for name in names for step in (leaf(name, "s", 2), grow(name, "s")))))
    before = await store.contributions(tree, NodeId("s"))
    assert [one.leaf for one in before] == [f"n{number}" for number in range(200)]
    through = before[199 - kept].mark if kept < 200 else Mark(before[0].mark - 1)
    await store.apply(change_set(rewrite("s", through=through)))
    assert await store.contributions(tree, NodeId("s")) == before[200 - kept :]
    assert (await node(store, "s")).pending == kept == (await store.stats(tree)).pending
    assert [one.oldest for one in await store.dirty(tree)] == [one.mark for one in before[200 - kept :][:1]]
    await store.apply(insert("last", "s"))
    assert [one.leaf for one in await store.contributions(tree, NodeId("s"), limit=kept + 5)][-1] == "last"
    assert len(await store.contributions(tree, NodeId("s"), limit=3)) == min(3, kept + 1)


async def test_a_rewrite_trims_what_earlier_steps_of_its_own_set_added(store: TreeStore, tree: TreeId) -> None:
    steps = (summary("s"), leaf("a", "s", 2), grow("a", "s"), rewrite("s", through=mark(1, 2)), leaf("b", "s", 2), grow("b", "s"))
    await store.apply(change_set(*steps))
    assert [one.leaf for one in await store.contributions(tree, NodeId("s"))] == ["b"]
    assert ((await node(store, "s")).pending, (await store.stats(tree)).dirty) == (1, 1)


# ------------------------------------------------------------------------------------------------------------ refusals


async def test_an_event_seen_before_is_answered_with_its_receipt(store: TreeStore, tree: TreeId) -> None:
    await store.apply(insert("a"))
    before = await everything(store)
    both = change_set(leaf("a2"), leaf("b"), events=[event("a", digest=bytes(16)), event("b")])
    assert await store.apply(both) == Seen(receipts=await store.receipts(tree, [EventId("e-a")]))
    assert await everything(store) == before


@pytest.mark.usefixtures("tree")
async def test_seen_comes_before_stale(store: TreeStore) -> None:
    await store.apply(insert("a"))
    assert isinstance(await store.apply(insert("a", expects=[expect(ROOT, routing=77), expect("nobody")])), Seen)


@pytest.mark.parametrize(
    ("changes", "culprits"),
    [
        (insert("z", expects=[expect("s", version=2)]), {"s"}),
        (insert("z", expects=[expect("a", version=-1)]), {"a"}),
        (insert("z", expects=[expect("a", version=1, routing=-1)]), {"a"}),
        (insert("z", expects=[expect("s", routing=1)]), {"s"}),
        (insert("z", expects=[expect(ROOT, routing=3), expect("s", version=9), expect("a", routing=9)]), {"s", "a"}),
        (insert("z", expects=[expect("nobody")]), {"nobody"}),
        (change_set(leaf("a", given=item("z"))), {"a"}),
        (change_set(leaf("z"), leaf("z")), {"z"}),
        (change_set(leaf("z", "nobody")), {"nobody"}),
        (change_set(leaf("z"), grow("z", "s", "nobody")), {"nobody"}),
        (change_set(leaf("z"), grow("nobody", "s")), {"nobody"}),
        (change_set(leaf("z"), move("nobody", ROOT, "s", 2)), {"nobody"}),
        (change_set(leaf("z"), move("a", "s", "nobody", 2)), {"nobody"}),
        (change_set(leaf("z"), move("a", ROOT, "s", 2)), {"a"}),
        (change_set(leaf("z"), rewrite("nobody")), {"nobody"}),
        (change_set(leaf("z"), rewrite("s", "nobody")), {"nobody"}),
        (change_set(leaf("z"), rewrite("s", "t")), {"s"}),
    ],
)
async def test_a_set_that_does_not_fit_leaves_nothing(
    store: TreeStore, tree: TreeId, changes: ChangeSet, culprits: set[str]
) -> None:
    await store.apply(insert("a"))
    await store.apply(expand("a", "b", "s"))
    await store.apply(change_set(summary("t")))
    before = await everything(store)
    with_event = replace(changes, events=(event("z"),))
    for tried in (changes, with_event, replace(with_event, steps=(summary("u"), grow("a", "s"), *changes.steps))):
        answer = await store.apply(tried)
        assert isinstance(answer, Stale)
        assert set(answer.nodes) >= culprits
        assert answer.seq == 3
        assert await everything(store) == before
    assert await store.receipts(tree, [EventId("e-z")]) == {}


@pytest.mark.usefixtures("tree")
async def test_expectations_that_hold(store: TreeStore) -> None:
    await store.apply(insert("a"))
    fits = insert("b", expects=[expect(ROOT, version=1, routing=1), expect("a", version=1), expect("a"), expect("a", routing=0)])
    assert await store.apply(fits) == Applied(seq=2)


@pytest.mark.parametrize(
    "broken",
    [
        change_set(replace(leaf("a"), vector=vector("a", 9))),
        change_set(replace(leaf("a"), vector=np.full(8, np.nan, np.float32))),
        change_set(replace(leaf("a"), vector=np.full(8, 1e9, np.float32))),
        change_set(replace(leaf("a"), item=None)),
        change_set(replace(summary("a"), item=item("a"))),
        change_set(replace(leaf("a"), kind=NodeKind.ROOT)),
        change_set(leaf("a"), leaf("b"), grow("a", "b")),
        change_set(leaf("a"), grow("a", ROOT)),
        change_set(summary("s"), leaf("a", "s"), grow("a", "s", "s")),
        change_set(leaf("a"), rewrite("a")),
        change_set(leaf("a"), leaf("b"), events=[event("a"), event("a", "b")]),
        change_set(*[grow("a")] * (1 << MARK_BITS)),
    ],
    ids=range(12),
)
@pytest.mark.usefixtures("tree")
async def test_a_set_that_breaks_its_contract_is_refused_and_leaves_nothing(store: TreeStore, broken: ChangeSet) -> None:
    before = await everything(store)
    with pytest.raises(ValueError, match=r"."):
        await store.apply(broken)
    assert await everything(store) == before


@pytest.mark.usefixtures("tree")
async def test_text_that_cannot_be_stored_leaves_nothing_and_harms_nobody_else(store: TreeStore) -> None:
    broken = change_set(summary("s"), leaf("a", given=replace(item("a"), text="\ud83d")))
    answers = await asyncio.gather(store.apply(insert("x")), store.apply(broken), store.apply(insert("y")), return_exceptions=True)
    assert isinstance(answers[1], ValueError)
    assert {answer.seq for answer in answers if isinstance(answer, Applied)} == {1, 2}
    assert {found.id async for found in store.all_nodes(TREE)} == {ROOT, "x", "y"}


# --------------------------------------------------------------------------------------------------------------- leases


@pytest.mark.usefixtures("tree")
async def test_a_valid_lease_lets_a_set_through(store: TreeStore, leases: PathLeases) -> None:
    lease = await leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=5), wait=timedelta(0))
    assert await store.apply(insert("a"), lease=lease) == Applied(seq=1)


@pytest.mark.parametrize("end", ["expired", "released", "taken over"])
@pytest.mark.usefixtures("tree")
async def test_a_lost_lease_stops_a_set_before_anything_else(
    store: TreeStore, leases: PathLeases, elapse: Elapse, end: str
) -> None:
    await store.apply(insert("a"))
    lease = await leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=2), wait=timedelta(0))
    if end == "released":
        await leases.release(lease)
    else:
        await elapse(2.5)
    if end == "taken over":
        await leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=9), wait=timedelta(0))
    before = await everything(store)
    for refused in (insert("b"), insert("a"), insert("b", expects=[expect("nobody")])):
        with pytest.raises(LeaseLostError):
            await store.apply(refused, lease=lease)
    assert await everything(store) == before
