"""What `TreeStore` promises of attributes, edges and nodes put above others (memory/changes.py), over every adapter."""

from __future__ import annotations

import numpy as np
import pytest

from memory.changes import ChangeSet
from memory.model import ROOT, Mark, Node, NodeId, TreeId, mark
from memory.ports.store import Applied, Stale, TreeStore
from tests.fakes.change_sets import (
    TREE,
    annotate,
    change_set,
    event,
    expand,
    expect,
    grow,
    insert,
    leaf,
    link,
    move,
    rewrite,
    summary,
    tree_info,
)
from tests.fakes.plain_tree import PlainTree, fields_of

LONG = "é" * 1_000


@pytest.fixture(autouse=True)
async def tree(store: TreeStore) -> TreeId:
    await store.create_tree(tree_info())
    return TREE


async def node(store: TreeStore, name: str) -> Node:
    return (await store.nodes(TREE, [NodeId(name)]))[NodeId(name)]


async def applied(store: TreeStore, *sets: ChangeSet) -> PlainTree:
    """The sets applied to the store and to the plain tree, which must agree in everything."""
    plain = PlainTree()
    for changes in sets:
        assert await store.apply(changes) == plain.apply(changes)
    await agree(store, plain)
    return plain


async def agree(store: TreeStore, plain: PlainTree) -> None:
    assert [fields_of(found) async for found in store.all_nodes(TREE, vectors=True)] == list(map(fields_of, plain.by_mark))
    waiting = {
        name: [(one.mark, one.leaf) for one in await store.contributions(TREE, name)]
        for name, found in plain.nodes.items()
        if found.pending
    }
    assert waiting == plain.waiting
    dirty = [(one.node, one.depth, one.pending, one.oldest) for one in await store.dirty(TREE)]
    assert sorted(dirty) == sorted(plain.dirty)
    stats = await store.stats(TREE)
    assert (stats.pending, stats.dirty) == (sum(map(len, plain.waiting.values())), len(plain.waiting))
    skeleton = await store.skeleton(TREE)
    assert skeleton.attributes == {name: found.attributes for name, found in plain.nodes.items() if found.attributes}
    assert skeleton.links == await store.links(TREE) == tuple(plain.links)
    assert skeleton.descendants.tolist() == [found.descendants for found in plain.by_mark]
    replayed = PlainTree().replay(await store.changes(TREE, 0))
    assert replayed.waiting == plain.waiting
    assert replayed.links == plain.links
    assert [fields_of(found, text=False) for found in replayed.by_mark] == [fields_of(found, text=False) for found in plain.by_mark]


# ------------------------------------------------------------------------------------------------------------- attributes


async def test_attributes_are_kept_with_their_node(store: TreeStore) -> None:
    await applied(store, change_set(summary("s", label="work"), leaf("a", "s", 2, weight=0.5, label=LONG), grow("a", "s")))
    assert (await node(store, "a")).attributes == {"weight": 0.5, "label": LONG}
    assert (await node(store, "s")).attributes == {"label": "work"}
    assert [child.attributes for child in await store.children(TREE, NodeId("s"))] == [{"weight": 0.5, "label": LONG}]
    assert (await store.lineage(TREE, [NodeId("a")]))[NodeId("s")].attributes == {"label": "work"}


async def test_annotating_sets_what_is_named_and_bumps_the_version_alone(store: TreeStore) -> None:
    await applied(
        store,
        change_set(leaf("a", weight=1.0, label="x")),
        change_set(annotate("a", weight=0.25, at=1_790_000_000.5), expects=[expect("a", version=1)], events=[event("liked")]),
    )
    found = await node(store, "a")
    assert found.attributes == {"weight": 0.25, "label": "x", "at": 1_790_000_000.5}
    assert (found.version, (await node(store, ROOT)).routing) == (2, 1)


async def test_attributes_outlive_moves_and_rewrites(store: TreeStore) -> None:
    await applied(
        store,
        change_set(summary("s", label="work"), summary("t"), leaf("a", "s", 2, weight=3.0), grow("a", "s")),
        change_set(move("s", ROOT, "t", 2)),
        change_set(rewrite("s", "t", through=mark(1, 9))),
        change_set(move("a", "s", "t", 2)),
        insert("b", "t"),
    )
    assert (await node(store, "s")).attributes == {"label": "work"}
    assert (await node(store, "a")).attributes == {"weight": 3.0}
    assert (await node(store, "a")).parent == "t"


async def test_one_who_expects_an_older_version_does_not_annotate(store: TreeStore) -> None:
    await store.apply(change_set(leaf("a", weight=1.0)))
    wins = change_set(annotate("a", weight=2.0), expects=[expect("a", version=1)])
    assert await store.apply(wins) == Applied(seq=2)
    assert await store.apply(wins) == Stale(nodes=(NodeId("a"),), seq=2)


async def test_made_and_annotated_at_once(store: TreeStore) -> None:
    await applied(store, change_set(leaf("a", weight=1.0), annotate("a", label="x"), annotate("a", weight=2.0)))
    assert (await node(store, "a")).attributes == {"weight": 2.0, "label": "x"}


# ------------------------------------------------------------------------------------------------------------------ edges


async def test_edges_are_kept_in_the_order_of_their_making(store: TreeStore) -> None:
    await applied(
        store,
        change_set(leaf("a"), leaf("b"), link("b", "a")),
        change_set(leaf("c"), link("c", "a", "b", weights=[0.5, 0.75]), link("c")),
    )
    assert await store.links(TREE) == (link("b", "a"), link("c", "a", "b", weights=[0.5, 0.75]))
    assert (await node(store, "a")).version == 1


async def test_a_tree_without_edges_has_none(store: TreeStore) -> None:
    assert await store.links(TREE) == ()


async def test_very_many_edges(store: TreeStore) -> None:
    await store.apply(change_set(leaf("hub"), *(leaf(f"n{number}") for number in range(2_500))))
    for start in range(0, 2_500, 500):
        await store.apply(change_set(*(link(f"n{number}", "hub") for number in range(start, start + 500))))
    found = await store.links(TREE)
    assert [edges.node for edges in found] == [f"n{number}" for number in range(2_500)]
    assert (await store.skeleton(TREE)).links == found


async def test_edges_and_attributes_of_another_tree_are_its_own(store: TreeStore) -> None:
    other = TreeId("other")
    await store.create_tree(tree_info(other))
    await store.apply(change_set(leaf("a"), leaf("b"), link("b", "a")))
    await store.apply(change_set(leaf("a", weight=1.0), tree=other))
    assert await store.links(other) == ()
    assert (await node(store, "a")).attributes == {}


# ------------------------------------------------------------------------------------------------------------------ above

GROWN = insert("a"), expand("a", "b", "s"), insert("c", "s")


async def test_one_that_is_put_above_covers_what_the_other_covers(store: TreeStore) -> None:
    plain = await applied(
        store,
        *GROWN,
        change_set(rewrite("s", through=mark(2, 4))),
        change_set(summary("t", above="s"), move("s", ROOT, "t", 2), leaf("d", "t", 2), grow("d", "t"), events=[event("d")]),
    )
    top = plain.nodes[NodeId("t")]
    assert (top.descendants, top.pending, top.covered) == (4, 2, 2)
    assert [name for _, name in plain.waiting[NodeId("t")]] == ["c", "d"]


@pytest.mark.parametrize("kept", [1, 39, 41, 200])
async def test_taking_over_many_contributions(store: TreeStore, kept: int) -> None:
    sets = [*GROWN, change_set(*(step for number in range(250) for step in (leaf(f"n{number}", "s", 2), grow(f"n{number}", "s"))))]
    through = Mark(mark(4, 2 * (250 - kept)) - 1)
    plain = await applied(
        store, *sets, change_set(rewrite("s", through=through)), change_set(summary("t", above="s"), move("s", ROOT, "t", 2))
    )
    assert len(plain.waiting[NodeId("t")]) == kept
    later = [change_set(rewrite("t", through=mark(4, 2 * 249))), change_set(rewrite("s", "t", through=mark(5, 0)))]
    for changes in later:
        assert await store.apply(changes) == plain.apply(changes)
        await agree(store, plain)


async def test_in_one_set_it_takes_over_what_earlier_steps_made(store: TreeStore) -> None:
    await applied(
        store,
        *GROWN,
        change_set(
            leaf("d", "s", 2),
            grow("d", "s"),
            rewrite("s", through=mark(2, 4)),
            summary("t", above="s"),
            move("s", ROOT, "t", 2),
            leaf("e", "t", 2),
            grow("e", "t"),
            summary("u", above="t"),
            move("t", ROOT, "u", 2),
            leaf("f", "u", 2),
            grow("f", "u"),
        ),
    )


async def test_above_what_the_same_set_made(store: TreeStore) -> None:
    await applied(
        store,
        change_set(
            summary("s"),
            leaf("a", "s", 2),
            grow("a", "s"),
            summary("t", above="s"),
            move("s", ROOT, "t", 2),
            leaf("b", "t"),
            grow("b", "t"),
        ),
    )


# -------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("misfit", "culprit"),
    [
        (change_set(annotate("nobody", weight=1.0)), "nobody"),
        (change_set(link("a", "nobody")), "nobody"),
        (change_set(link("nobody", "a")), "nobody"),
        (change_set(summary("t", above="nobody")), "nobody"),
    ],
)
async def test_a_set_that_names_nobody_leaves_nothing(store: TreeStore, misfit: ChangeSet, culprit: str) -> None:
    plain = await applied(store, *GROWN)
    assert await store.apply(misfit) == Stale(nodes=(NodeId(culprit),), seq=3)
    await agree(store, plain)


@pytest.mark.parametrize(
    "broken",
    [
        change_set(annotate("a", weight=np.nan)),
        change_set(annotate("a", **{"n" * 33: 1.0})),
        change_set(annotate("a", label="x" * 1_001)),
        change_set(annotate("a", **{f"n{number}": 1.0 for number in range(17)})),
        change_set(annotate(ROOT, weight=1.0)),
        change_set(leaf("z", weight=np.inf)),
        change_set(link("a", "a")),
        change_set(link("a", "b", "b")),
        change_set(link("a", "b", weights=[1.0, 2.0])),
        change_set(link("a", "b", weights=[0.0])),
        change_set(summary("t", above="a")),
        change_set(summary("t", above=ROOT)),
    ],
)
async def test_a_set_that_breaks_its_contract_leaves_nothing(store: TreeStore, broken: ChangeSet) -> None:
    plain = await applied(store, *GROWN)
    with pytest.raises(ValueError, match=r".+"):
        await store.apply(broken)
    await agree(store, plain)
