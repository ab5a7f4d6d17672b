"""What the reads of `TreeStore` promise (memory/ports/store.py), over every adapter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from memory.changes import ChangeSet, Create, Rewrite
from memory.errors import TreeNotFoundError
from memory.model import ROOT, EventId, Mark, Node, NodeId, NodeKind, TreeId, mark
from memory.ports.store import Applied, DirtyNode, TreeStore
from tests.fakes.change_sets import (
    TREE,
    change_set,
    event,
    expand,
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
from tests.fakes.plain_tree import PlainTree, fields_of

HISTORY: list[ChangeSet] = [
    insert("a"),
    expand("a", "b", "s"),
    insert("c", "s"),
    expand("c", "d", "t", "s"),
    change_set(rewrite("s", through=mark(3, 1))),
    change_set(summary("u"), move("s", ROOT, "u", 2)),
    insert("e"),
    change_set(rewrite("t", "s", through=mark(4, 4)), rewrite("s", "u")),
    change_set(),
]


@pytest.fixture
async def grown(store: TreeStore) -> TreeStore:
    """A store with a tree of every kind of step."""
    await store.create_tree(tree_info())
    for number, changes in enumerate(HISTORY, start=1):
        assert await store.apply(changes) == Applied(seq=number)
    return store


@pytest.fixture
def model() -> PlainTree:
    plain = PlainTree()
    for changes in HISTORY:
        assert isinstance(plain.apply(changes), Applied)
    return plain


async def test_nodes_by_id(grown: TreeStore, model: PlainTree) -> None:
    wanted = [*model.nodes, NodeId("nobody")]
    assert list(map(fields_of, (await grown.nodes(TREE, wanted, vectors=True)).values())) != []
    found = await grown.nodes(TREE, wanted, vectors=True)
    assert {name: fields_of(node) for name, node in found.items()} == {name: fields_of(node) for name, node in model.nodes.items()}
    assert await grown.nodes(TREE, []) == {}
    bare = await grown.nodes(TREE, [NodeId("a"), NodeId("a")])
    assert bare == {NodeId("a"): replace(found[NodeId("a")], vector=None)}


async def test_all_nodes_in_order_of_mark(grown: TreeStore, model: PlainTree) -> None:
    assert [fields_of(node) async for node in grown.all_nodes(TREE, vectors=True)] == [fields_of(node) for node in model.by_mark]
    assert all([node.vector is None async for node in grown.all_nodes(TREE)])


async def test_all_nodes_are_of_one_commit(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    names = [f"n{number}" for number in range(2500)]
    await store.apply(change_set(*map(leaf, names)))
    found: list[Node] = []
    async for node in store.all_nodes(TREE):
        if len(found) % 1000 == 1:
            await store.apply(change_set(leaf(f"late-{len(found)}"), move(names[-1 - len(found)], ROOT, ROOT, 7)))
        found.append(node)
    assert [node.id for node in found[1:]] == names
    assert {node.depth for node in found[1:]} == {1}
    assert (found[0].routing, found[0].descendants) == (2500, 2500)
    assert len([node async for node in store.all_nodes(TREE)]) == 2504


async def test_a_reader_of_all_nodes_may_stop_early(grown: TreeStore) -> None:
    for _ in range(50):
        async for _ in grown.all_nodes(TREE):
            break
    assert isinstance(await grown.apply(insert("z")), Applied)


async def test_children_in_order_of_creation(grown: TreeStore) -> None:
    async def children(node: str, **options: int) -> list[str]:
        return [child.id for child in await grown.children(TREE, NodeId(node), **options)]  # type: ignore[arg-type]

    assert await children(ROOT) == ["u", "e"]
    assert await children("s") == ["a", "b", "t"], "c went below t, and t is younger than both leaves"
    assert await children("t") == ["c", "d"]
    assert await children("a") == await children("nobody") == []
    assert await children("s", limit=2) == ["a", "b"]
    assert await children("s", after=mark(1, 0)) == ["b", "t"]
    assert await children("s", after=mark(4, 0)) == []
    child = (await grown.children(TREE, NodeId("t"), limit=1))[0]
    assert child.vector is None
    assert child.item is not None


async def test_a_lineage_is_the_nodes_and_all_above_them_but_the_root(grown: TreeStore, model: PlainTree) -> None:
    async def lineage(*names: str) -> dict[NodeId, Node]:
        return await grown.lineage(TREE, list(map(NodeId, names)))

    assert await lineage("c") == await grown.nodes(TREE, list(map(NodeId, "ctsu")))
    assert set(await lineage("d", "b", "e", "d", "nobody", ROOT)) == set("dtsube")
    assert set(await lineage(*model.nodes)) == set(model.nodes) - {ROOT}
    assert await lineage() == await lineage(ROOT) == await lineage("nobody") == {}
    with pytest.raises(TreeNotFoundError):
        await grown.lineage(TreeId("nothing"), [NodeId("a")])


async def test_a_lineage_of_very_many(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    names = [NodeId(f"n{number}") for number in range(2500)]
    await store.apply(change_set(*map(leaf, names)))
    assert set(await store.lineage(TREE, names)) == set(names)


async def test_events_below_nodes_breadth_first(grown: TreeStore) -> None:
    async def below(name: str, limit: int = 9) -> tuple[EventId, ...]:
        found = await grown.events_below(TREE, [NodeId(name)], limit=limit)
        assert list(found) == [name]
        return found[NodeId(name)]

    items = {name: node.item.event_id for name, node in (await grown.nodes(TREE, list(map(NodeId, "abcde")))).items() if node.item}
    a, b, c, d, _ = (items[NodeId(name)] for name in "abcde")
    assert await below("s") == await below("u") == (a, b, c, d)
    assert await below("t") == (c, d)
    assert await below("s", limit=1) == (a,)
    assert await below("s", limit=3) == (a, b, c)
    assert await below("a") == await below("nobody") == ()
    assert await grown.events_below(TREE, list(map(NodeId, "tsx")), limit=2) == {"t": (c, d), "s": (a, b), "x": ()}


async def test_an_event_of_several_leaves_lies_below_once(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    chunks = [leaf(f"n{number}", "s", 2, replace(item("long"), chunk=number, chunks=3)) for number in range(3)]
    await store.apply(change_set(summary("s"), *chunks, leaf("last", "s", depth=2)))
    assert len((await store.events_below(TREE, [NodeId("s")], limit=5))[NodeId("s")]) == 2


async def test_the_skeleton_is_the_tree_in_columns(grown: TreeStore, model: PlainTree) -> None:
    found = await grown.skeleton(TREE)
    expected = model.by_mark
    assert found.seq == len(HISTORY)
    assert found.ids == [node.id for node in expected]
    assert found.parents == [node.parent for node in expected]
    assert found.kinds == [node.kind for node in expected]
    assert found.depths.dtype == np.int32
    assert {found.versions.dtype, found.routings.dtype, found.descendants.dtype} == {np.dtype(np.int64)}
    assert found.depths.tolist() == [node.depth for node in expected]
    assert found.versions.tolist() == [node.version for node in expected]
    assert found.routings.tolist() == [node.routing for node in expected]
    assert found.descendants.tolist() == [node.descendants for node in expected]
    assert found.vectors.dtype == np.float16
    vectors = [np.zeros(8, np.float32) if node.vector is None else node.vector for node in expected]
    assert np.array_equal(found.vectors.astype(np.float32), np.stack(vectors))


async def test_the_skeleton_of_an_empty_tree_is_its_root(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    found = await store.skeleton(TREE)
    assert (found.seq, found.ids, found.parents, found.vectors.shape) == (0, [ROOT], [None], (1, 8))
    assert not found.vectors.any()


async def test_the_skeleton_of_a_large_tree(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    await store.create_tree(tree_info("other"))
    for start in range(0, 6000, 1500):
        await store.apply(change_set(*(leaf(f"n{number}") for number in range(start, start + 1500))))
        await store.apply(change_set(leaf(f"o{start}"), tree=TreeId("other")))
    found = await store.skeleton(TREE)
    assert found.ids == [ROOT, *(f"n{number}" for number in range(6000))]
    for number in (0, 1023, 1024, 4095, 5999):
        assert np.array_equal(found.vectors[number + 1].astype(np.float32), vector(f"n{number}"))


async def test_the_log_has_every_step_without_texts_and_items(grown: TreeStore) -> None:
    log = await grown.changes(TREE, 0)
    assert [entry.seq for entry in log] == list(range(1, len(HISTORY) + 1))
    for entry, changes in zip(log, HISTORY, strict=True):
        assert entry.at == changes.at
        assert entry.events == tuple(one.id for one in changes.events)
        for logged, given in zip(entry.steps, changes.steps, strict=True):
            if isinstance(given, Create | Rewrite):
                assert isinstance(logged, Create | Rewrite)
                assert logged.vector.dtype == np.float32
                assert np.array_equal(logged.vector, given.vector), "as it was in that commit, whatever it is now"
                given = replace(given, vector=logged.vector, text="")  # noqa: PLW2901
                if isinstance(given, Create):
                    given = replace(given, item=None)  # noqa: PLW2901
            assert logged == given


async def test_the_log_is_read_in_parts(grown: TreeStore) -> None:
    assert [entry.seq for entry in await grown.changes(TREE, 3)] == [4, 5, 6, 7, 8, 9]
    assert [entry.seq for entry in await grown.changes(TREE, 3, limit=2)] == [4, 5]
    assert await grown.changes(TREE, len(HISTORY)) == await grown.changes(TREE, 999) == []


async def test_replaying_the_log_gives_the_skeleton(grown: TreeStore) -> None:
    plain = PlainTree().replay(await grown.changes(TREE, 0))
    found = [fields_of(node, text=False) async for node in grown.all_nodes(TREE, vectors=True)]
    assert [fields_of(node, text=False) for node in plain.by_mark] == found
    left = {
        name: [(one.mark, one.leaf) for one in await grown.contributions(TREE, name)]
        for name, node in plain.nodes.items()
        if node.kind is NodeKind.SUMMARY and node.pending
    }
    assert plain.waiting == left


async def test_dirty_nodes_are_deepest_first_then_oldest_first(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    await store.apply(change_set(summary("s"), summary("r"), summary("t", "s", 2), summary("clean")))
    await store.apply(insert("a", "r"))
    await store.apply(insert("b", "s", "t"))
    await store.apply(insert("c", "r"))
    expected = [
        DirtyNode(node=NodeId("t"), depth=2, pending=1, oldest=mark(3, 1)),
        DirtyNode(node=NodeId("r"), depth=1, pending=2, oldest=mark(2, 1)),
        DirtyNode(node=NodeId("s"), depth=1, pending=1, oldest=mark(3, 1)),
    ]
    assert await store.dirty(TREE) == expected
    assert await store.dirty(TREE, limit=2) == expected[:2]
    await store.apply(change_set(move("s", ROOT, "clean", 5), rewrite("r", through=mark(2, 1))))
    assert [(one.node, one.depth, one.oldest) for one in await store.dirty(TREE)] == [
        ("s", 5, mark(3, 1)),
        ("t", 2, mark(3, 1)),
        ("r", 1, mark(4, 1)),
    ]


async def test_contributions_of_nodes_without_any(grown: TreeStore) -> None:
    for name in ("nobody", "a", "u", ROOT):
        assert await grown.contributions(TREE, NodeId(name)) == []


async def test_receipts_of_many_events(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    names = [f"n{number}" for number in range(1200)]
    await store.apply(change_set(*map(leaf, names), events=[event(name) for name in names]))
    await store.apply(change_set(leaf("x"), leaf("y"), events=[event("both", "x", "y"), event("odd \x00 \u202e '\"", "x")]))
    wanted = [EventId(f"e-{name}") for name in (*names, "missing", "both", "odd \x00 \u202e '\"", "odd ")]
    found = await store.receipts(TREE, wanted)
    assert len(found) == 1202
    assert found[EventId("e-both")].leaves == ("x", "y")
    assert set(await store.events(TREE)) == set(found)
    assert (await store.events(TREE))[EventId("e-both")] == ("x", "y")
    assert await store.receipts(TREE, []) == {}


async def test_stats_count_what_is_there(grown: TreeStore, model: PlainTree) -> None:
    stats = await grown.stats(TREE)
    nodes = [node for node in model.nodes.values() if node.id != ROOT]
    leaves = [node for node in nodes if node.kind is NodeKind.LEAF]
    assert (stats.seq, stats.nodes, stats.leaves, stats.summaries) == (9, len(nodes) + 1, len(leaves), len(nodes) - len(leaves))
    assert stats.events == 5
    assert stats.pending == sum(map(len, model.waiting.values()))
    assert stats.dirty == len(model.waiting)
    assert stats.oldest in (None, min(one.oldest for one in await grown.dirty(TREE)))
    for depths, counted in ((stats.depths, nodes), (stats.leaf_depths, leaves)):
        every = [node.depth for node in counted]
        assert depths == {depth: every.count(depth) for depth in every}
    assert stats.rewrites == 3
    assert stats.bytes > 0


async def test_closing_twice(store: TreeStore) -> None:
    await store.close()
    await store.close()


async def test_marks_above_every_commit_trim_everything(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    await store.apply(change_set(summary("s"), leaf("a", "s", 2), grow("a", "s")))
    await store.apply(change_set(rewrite("s", through=Mark(1 << 60))))
    await store.apply(insert("b", "s"))
    assert [one.leaf for one in await store.contributions(TREE, NodeId("s"))] == ["b"]
