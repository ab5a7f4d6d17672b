"""What taking leaves out of a tree does to a store (`Shrink`, `Remove`, `Recall`, `ChangeSet.forgets`, `TreeStore.redact`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from memory.changes import Annotate, ChangeSet, Create, LogEntry, Rewrite, Step
from memory.errors import TreeNotFoundError
from memory.model import ROOT, EventId, Node, NodeId, TreeId, mark
from memory.ports.store import NO_DIGEST, Applied, Contribution, Receipt, Seen, Stale, TreeStore
from tests.fakes.change_sets import (
    DIGEST,
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
    recall,
    remove,
    rewrite,
    shrink,
    summary,
    tree_info,
)
from tests.fakes.plain_tree import PlainTree, fields_of

HISTORY: tuple[ChangeSet, ...] = (
    insert("a"),
    expand("a", "b", "s"),  # s: a, b
    insert("c", "s"),
    insert("d"),
    expand("c", "e", "t", "s"),  # s: a, b, t; t: c, e
    change_set(rewrite("s", through=mark(3, 1), text="of a, b and c")),
    change_set(annotate("t", label="what c and e are about"), annotate("c", said=1.0)),
    change_set(leaf("f", "t", 3, label="f's"), grow("f", "s", "t"), link("f", "a", "c", weights=(0.5, 0.25)), events=[event("f")]),
    change_set(leaf("g"), grow("g"), link("g", "f"), events=[event("g")]),
)
FORGET_C = change_set(
    shrink("c", "t", "s"),
    remove("c", "t"),
    rewrite("t", "s", text="of e and f", provisional=True),
    rewrite("s", text="of a, b and t", provisional=True),
    recall("e", "t", "s"),
    forgets=["c"],
)
FORGET_T = change_set(
    *(step for name in "cef" for step in (shrink(name, "t", "s"), remove(name, "t"))),
    remove("t", "s"),
    rewrite("s", text="of a and b", provisional=True),
    recall("a", "s"),
    forgets=["c", "e", "f"],
)


def events(*names: str) -> list[EventId]:
    return [EventId(f"e-{name}") for name in names]


@pytest.fixture
def model() -> PlainTree:
    plain = PlainTree()
    for changes in HISTORY:
        assert plain.apply(changes) == Applied(seq=plain.seq)
    return plain


@pytest.fixture
async def grown(store: TreeStore) -> TreeStore:
    await store.create_tree(tree_info())
    for number, changes in enumerate(HISTORY, start=1):
        assert await store.apply(changes) == Applied(seq=number)
    return store


async def node(store: TreeStore, name: str) -> Node:
    return (await store.nodes(TREE, [NodeId(name)], vectors=True))[NodeId(name)]


async def same(store: TreeStore, plain: PlainTree) -> None:
    """The store says what the model says, of everything."""
    found = [one async for one in store.all_nodes(TREE, vectors=True)]
    assert list(map(fields_of, found)) == list(map(fields_of, plain.by_mark))
    for one in plain.by_mark:
        waiting = [(each.mark, each.leaf) for each in await store.contributions(TREE, one.id)]
        assert waiting == plain.waiting.get(one.id, [])
        below = sorted((each for each in plain.nodes.values() if each.parent == one.id), key=lambda each: each.mark)
        assert [each.id for each in await store.children(TREE, one.id)] == [each.id for each in below]
    assert [(one.node, one.depth, one.pending, one.oldest) for one in await store.dirty(TREE)] == plain.dirty
    columns = await store.skeleton(TREE)
    assert (columns.ids, columns.seq) == ([one.id for one in plain.by_mark], plain.seq)
    assert columns.links == await store.links(TREE) == tuple(plain.links)
    assert await store.events(TREE) == {name: receipt.leaves for name, receipt in plain.receipts.items()}
    assert await store.receipts(TREE, list(plain.receipts)) == plain.receipts
    stats = await store.stats(TREE)
    leaves = sum(1 for one in plain.nodes.values() if one.item is not None)
    assert (stats.nodes, stats.leaves, stats.summaries) == (len(plain.nodes), leaves, len(plain.nodes) - leaves - 1)
    assert stats.events == sum(1 for receipt in plain.receipts.values() if not receipt.forgotten)
    assert (stats.pending, stats.dirty) == (sum(map(len, plain.waiting.values())), len(plain.waiting))
    assert sum(stats.depths.values()) == len(plain.nodes) - 1
    assert sum(stats.leaf_depths.values()) == leaves
    assert (await store.tree(TREE)).floor == plain.floor


@pytest.mark.parametrize("changes", [FORGET_C, FORGET_T, change_set(shrink("d"), remove("d"), forgets=["d"])])
async def test_what_is_removed_is_gone_from_everything(grown: TreeStore, model: PlainTree, changes: ChangeSet) -> None:
    assert await grown.apply(changes) == model.apply(changes) == Applied(seq=10)
    await same(grown, model)
    more = insert("h")
    assert await grown.apply(more) == model.apply(more) == Applied(seq=11)
    await same(grown, model)


async def test_what_was_removed_is_gone_by_every_read(grown: TreeStore) -> None:
    await grown.apply(FORGET_T)
    gone = [NodeId(name) for name in "cetf"]
    assert await grown.nodes(TREE, gone, vectors=True) == {}
    assert await grown.lineage(TREE, gone) == {}
    assert await grown.contributions(TREE, NodeId("t")) == []
    assert set((await grown.events_below(TREE, [NodeId("s"), NodeId("t")], limit=10))[NodeId("s")]) == set(events("a", "b"))
    assert not set(gone) & {one for edges in await grown.links(TREE) for one in (edges.node, *edges.others)}


async def test_a_summary_is_made_anew_out_of_what_is_left(grown: TreeStore) -> None:
    before = await node(grown, "s")
    await grown.apply(FORGET_C)
    after = await node(grown, "s")
    assert (after.text, after.provisional, after.version) == ("of a, b and t", True, before.version + 1)
    assert (before.descendants, before.pending) == (5, 2)
    assert (after.descendants, after.pending) == (4, 2), "c was covered; e and f wait as before"
    waiting = await grown.contributions(TREE, NodeId("t"))
    assert [one.leaf for one in waiting] == ["e", "f"], "something waits there: nothing is recalled"


@pytest.mark.usefixtures("grown")
async def test_a_leaf_waits_again_only_where_nothing_does(grown: TreeStore) -> None:
    last = (await grown.contributions(TREE, NodeId("s")))[-1].mark
    await grown.apply(change_set(rewrite("s", through=last)))
    assert (await node(grown, "s")).pending == 0
    assert await grown.apply(change_set(recall("e", "t", "s"))) == Applied(seq=11)
    assert await grown.contributions(TREE, NodeId("s")) == [Contribution(mark=mark(11, 0), leaf=NodeId("e"))]
    found = await node(grown, "s")
    assert (found.pending, found.descendants, found.covered) == (1, 5, 4)
    assert [one.leaf for one in await grown.contributions(TREE, NodeId("t"))] == ["c", "e", "f"]
    assert (await grown.tree(TREE)).floor == 0, "nothing was removed"


@pytest.mark.parametrize("waiting", [1, 39, 41, 120])
async def test_a_leaf_is_taken_out_of_the_middle_of_what_waits(store: TreeStore, waiting: int) -> None:
    plain = PlainTree()
    await store.create_tree(tree_info())
    names = [f"n{number}" for number in range(waiting)]
    sets = [
        change_set(summary("s")),
        *(
            change_set(
                *(step for name in names[at : at + 30] for step in (leaf(name, "s", 2), grow(name, "s"))),
                events=[event(name) for name in names[at : at + 30]],
            )
            for at in range(0, waiting, 30)
        ),
    ]
    some = names[waiting // 2 : waiting // 2 + 2]
    sets += [
        change_set(*(step for name in some for step in (shrink(name, "s"), remove(name, "s"))), rewrite("s"), forgets=some),
        insert("last", "s"),
    ]
    for changes in sets:
        assert await store.apply(changes) == plain.apply(changes)
    await same(store, plain)
    marks = [at for at, _ in plain.waiting["s"]]  # type: ignore[index]
    for through in (marks[len(marks) // 2], marks[-1]):
        trim = change_set(rewrite("s", through=through))
        assert await store.apply(trim) == plain.apply(trim)
        await same(store, plain)


# --------------------------------------------------------------------------------------------------------------- tombstones


async def test_a_forgotten_event_is_remembered_as_that_alone(grown: TreeStore) -> None:
    await grown.apply(FORGET_C)
    tombstone = Receipt(event_id=EventId("e-c"), seq=10, digest=NO_DIGEST, leaves=(), forgotten=True)
    assert await grown.receipts(TREE, events("c")) == {"e-c": tombstone}
    again = insert("c2")
    assert await grown.apply(replace(again, events=(event("c", "c2"),))) == Seen(receipts={EventId("e-c"): tombstone})
    assert (await grown.tree(TREE)).seq == 10


async def test_an_event_can_be_forgotten_before_it_comes(store: TreeStore) -> None:
    await store.create_tree(tree_info())
    assert await store.apply(change_set(forgets=["a"])) == Applied(seq=1)
    tombstone = Receipt(event_id=EventId("e-a"), seq=1, digest=NO_DIGEST, leaves=(), forgotten=True)
    assert await store.apply(insert("a")) == Seen(receipts={EventId("e-a"): tombstone})
    assert (await store.events(TREE), (await store.stats(TREE)).events) == ({"e-a": ()}, 0)
    assert (await store.tree(TREE)).floor == 0, "nothing was removed"
    [entry] = await store.changes(TREE, 0)
    assert (entry.steps, entry.events, entry.forgets) == ((), (), (EventId("e-a"),))


async def test_what_is_forgotten_already_is_not_forgotten_again(grown: TreeStore) -> None:
    await grown.apply(FORGET_C)
    answer = await grown.apply(change_set(forgets=["c", "new"]))
    assert isinstance(answer, Seen)
    assert set(answer.receipts) == {"e-c"}
    assert (await grown.receipts(TREE, events("new")), (await grown.tree(TREE)).seq) == ({}, 10)


async def test_an_event_that_set_attributes_alone_can_be_forgotten(grown: TreeStore) -> None:
    liked = replace(event("liked"), leaves=())
    await grown.apply(change_set(annotate("a", approvals=1.0), events=[liked]))
    assert await grown.apply(change_set(forgets=["liked"])) == Applied(seq=11)
    assert (await grown.receipts(TREE, events("liked")))[EventId("e-liked")].forgotten


async def test_an_event_whose_leaves_stay_is_not_forgotten(grown: TreeStore) -> None:
    """It came between the moment when this was planned and now."""
    two = replace(event("x", "x", "y"), digest=DIGEST)
    await grown.apply(change_set(leaf("x"), leaf("y"), events=[two]))
    for steps, missing in (((), {"x", "y"}), ((shrink("x"), remove("x")), {"y"})):
        answer = await grown.apply(change_set(*steps, forgets=["x", "never"]))
        assert isinstance(answer, Stale)
        assert missing <= set(answer.nodes)
    assert not (await grown.receipts(TREE, events("x")))[EventId("e-x")].forgotten
    assert await grown.receipts(TREE, events("never")) == {}


@pytest.mark.usefixtures("grown")
async def test_an_id_can_be_used_again_for_another_node(grown: TreeStore) -> None:
    await grown.apply(FORGET_T)
    assert await grown.apply(expand("b", "h", "t", "s")) == Applied(seq=11)
    found = await node(grown, "t")
    assert (found.version, found.descendants, found.pending, found.text, dict(found.attributes)) == (1, 2, 2, "provisional t", {})
    assert [one.leaf for one in await grown.contributions(TREE, NodeId("t"))] == ["b", "h"]
    news = (await grown.news({TREE: 9}))[TREE]
    assert NodeId("t") in {one.id for one in news.nodes}
    assert set(news.gone) == {"c", "e", "f"}


# ----------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("steps", "node_named"),
    [
        ((shrink("zz", "s"),), "zz"),
        ((shrink("c", "zz"),), "zz"),
        ((remove("zz"),), "zz"),
        ((remove("d", "s"),), "d"),
        ((remove("c", "s"),), "c"),
        ((remove("t", "s"),), "t"),
        ((remove("d"), remove("d")), "d"),
        ((remove("d"), annotate("d", x=1.0)), "d"),
        ((remove("d"), shrink("d", "s")), "d"),
        ((recall("zz", "s"),), "zz"),
        ((recall("a", "zz"),), "zz"),
        ((shrink("c", "t", "s"), remove("c", "t"), remove("t", "s")), "t"),
    ],
)
async def test_what_does_not_fit_is_refused_whole(
    grown: TreeStore, model: PlainTree, steps: Sequence[Step], node_named: str
) -> None:
    answer = await grown.apply(change_set(shrink("g"), remove("g"), *steps, forgets=["g"]))
    assert isinstance(answer, Stale)
    assert node_named in answer.nodes
    await same(grown, model)


async def test_a_summary_that_got_a_child_meanwhile_stays(grown: TreeStore) -> None:
    await grown.apply(insert("late", "s", "t"))
    answer = await grown.apply(FORGET_T)
    assert isinstance(answer, Stale)
    assert "t" in answer.nodes


async def test_who_planned_on_what_is_gone_is_refused(grown: TreeStore) -> None:
    routing = (await node(grown, "s")).routing
    version = (await node(grown, "s")).version
    await grown.apply(FORGET_T)
    for late in (
        insert("h", "s", "t"),
        expand("e", "h", "u", "s", "t"),
        change_set(rewrite("t", "s")),
        insert("h", "s", expects=[expect("s", routing=routing)]),
        change_set(rewrite("s"), expects=[expect("s", version=version)]),
        change_set(link("a", "f")),
    ):
        assert isinstance(await grown.apply(late), Stale)


@pytest.mark.parametrize(
    "wrong",
    [
        change_set(forgets=["a", "a"]),
        change_set(leaf("new"), grow("new"), events=[event("new")], forgets=["new"]),
        change_set(shrink("a", "s", "s")),
        change_set(shrink("a", "b")),
        change_set(shrink("s", "s")),
        change_set(recall("a", "b")),
        change_set(recall("a", "s", "s")),
        change_set(remove(ROOT, ROOT)),
        change_set(shrink("g"), remove("g"), leaf("new"), grow("new")),
        change_set(shrink("g"), remove("g"), move("d", ROOT, "s", 2)),
    ],
)
async def test_what_contradicts_itself_is_an_error(grown: TreeStore, model: PlainTree, wrong: ChangeSet) -> None:
    with pytest.raises(ValueError, match=r"."):
        await grown.apply(wrong)
    await same(grown, model)


# ------------------------------------------------------------------------------------------------------- the log, and redaction


def told(entries: Sequence[LogEntry], *names: str) -> list[tuple[int, str, bool, dict[str, str | float]]]:
    """What the log says of the nodes: commit, node, whether there is a vector, attributes."""
    found: list[tuple[int, str, bool, dict[str, str | float]]] = []
    for entry in entries:
        for step in entry.steps:
            match step:
                case Create() if step.id in names:
                    found.append((entry.seq, step.id, bool(step.vector.any()), dict(step.attributes)))
                case Rewrite() if step.node in names:
                    found.append((entry.seq, step.node, bool(step.vector.any()), {}))
                case Annotate() if step.node in names:
                    found.append((entry.seq, step.node, False, dict(step.attributes)))
                case _:
                    pass
    return found


async def test_the_log_keeps_what_was_done_in_its_order(grown: TreeStore) -> None:
    await grown.apply(FORGET_C)
    [entry] = await grown.changes(TREE, 9)
    assert (entry.forgets, entry.events) == (tuple(events("c")), ())
    assert [type(step) for step in entry.steps] == [type(step) for step in FORGET_C.steps]
    assert entry.steps[0] == FORGET_C.steps[0]
    assert entry.steps[1] == FORGET_C.steps[1]
    assert entry.steps[4] == FORGET_C.steps[4]
    replayed = PlainTree().replay(await grown.changes(TREE, 0))
    assert {name: one.parent for name, one in replayed.nodes.items()} == {one.id: one.parent async for one in grown.all_nodes(TREE)}


async def test_a_removed_leaf_has_a_vector_of_zeros_in_the_log(grown: TreeStore) -> None:
    await grown.apply(FORGET_C)
    assert told(await grown.changes(TREE, 0), "c", "a") == [(1, "a", True, {}), (3, "c", False, {}), (7, "c", False, {"said": 1.0})]


async def test_redacting_takes_vectors_and_attributes_out_of_the_log(grown: TreeStore) -> None:
    await grown.apply(FORGET_C)
    info = await grown.tree(TREE)
    assert (info.floor, info.redacted) == (10, 9)
    before = [fields_of(one) async for one in grown.all_nodes(TREE, vectors=True)]
    wanted = {NodeId("c"): 10, NodeId("t"): 9, NodeId("s"): 9}
    for _ in range(2):
        await grown.redact(TREE, wanted, to=10)
        log = await grown.changes(TREE, 0)
        assert told(log, "c", "t", "s") == [
            (2, "s", False, {}),
            (3, "c", False, {}),
            (5, "t", False, {}),
            (6, "s", False, {}),
            (7, "t", False, {}),
            (7, "c", False, {}),
            (10, "t", True, {}),
            (10, "s", True, {}),
        ]
        assert told(log, "f", "a") == [(1, "a", True, {}), (8, "f", True, {"label": "f's"})]
    info = await grown.tree(TREE)
    assert (info.floor, info.redacted) == (10, 10)
    assert [fields_of(one) async for one in grown.all_nodes(TREE, vectors=True)] == before, "the nodes are not touched"
    steps = [len(entry.steps) for entry in log]
    assert steps == [len(changes.steps) for changes in (*HISTORY, FORGET_C)]


async def test_redacting_goes_no_further_than_it_is_told(grown: TreeStore) -> None:
    await grown.apply(FORGET_C)
    await grown.apply(change_set(rewrite("t", "s", text="later")))
    await grown.redact(TREE, {NodeId("t"): 9, NodeId("s"): 5}, to=10)
    assert told(await grown.changes(TREE, 5), "s", "t") == [
        (6, "s", True, {}),
        (7, "t", False, {}),
        (10, "t", True, {}),
        (10, "s", True, {}),
        (11, "t", True, {}),
    ]


async def test_the_commit_from_which_on_something_is_to_be_redacted_is_remembered(grown: TreeStore) -> None:
    async def marks() -> tuple[int, int]:
        info = await grown.tree(TREE)
        return info.floor, info.redacted

    assert await marks() == (0, 0)
    await grown.apply(change_set(shrink("d"), remove("d"), forgets=["d"]))
    assert await marks() == (10, 9)
    await grown.apply(change_set(shrink("g"), remove("g"), forgets=["g"]))
    assert await marks() == (11, 9), "the first is not redacted yet"
    await grown.redact(TREE, {NodeId("d"): 10}, to=10)
    assert await marks() == (11, 10)
    await grown.redact(TREE, {NodeId("d"): 10}, to=9)
    assert await marks() == (11, 10)
    await grown.redact(TREE, {NodeId("g"): 11}, to=11)
    await grown.apply(insert("h"))
    assert await marks() == (11, 11)
    [listed] = await grown.trees()
    assert (listed.floor, listed.redacted) == (11, 11)


async def test_redacting_nothing_and_no_tree(grown: TreeStore) -> None:
    await grown.redact(TREE, {}, to=9)
    with pytest.raises(TreeNotFoundError):
        await grown.redact(TreeId("unknown"), {NodeId("a"): 1}, to=1)


async def test_news_tell_what_is_gone(grown: TreeStore) -> None:
    await grown.apply(FORGET_T)
    for after in (0, 8, 9):
        news = (await grown.news({TREE: after}))[TREE]
        assert set(news.gone) == {"c", "e", "f", "t"}
        assert not set(news.gone) & {one.id for one in news.nodes}
        for one in news.nodes:
            assert one.vector is not None
            assert np.any(one.vector)
    assert (await grown.news({TREE: 10}))[TREE].gone == ()
