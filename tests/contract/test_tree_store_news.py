"""What `TreeStore.news` promises, over every adapter."""

from __future__ import annotations

from datetime import timedelta

import pytest

from memory.changes import ChangeSet
from memory.model import ROOT, NodeId, TreeId, mark
from memory.ports.store import Applied, TreeStore
from tests.fakes.change_sets import AT, TREE, change_set, expand, insert, move, rewrite, summary, tree_info

OTHER, MISSING = TreeId("other"), TreeId("missing")
HISTORY: tuple[ChangeSet, ...] = (
    insert("a"),
    expand("a", "b", "s"),
    insert("c", "s"),
    change_set(rewrite("s", through=mark(3, 1))),
    change_set(summary("u"), move("s", ROOT, "u", 2)),
    change_set(),
    insert("d"),
)
WRITTEN: tuple[set[str], ...] = ({"a"}, {"b", "s"}, {"c"}, {"s"}, {"u"}, set(), {"d"})
"""By the commits of `HISTORY`."""


def dated(changes: ChangeSet, number: int, tree: TreeId = TREE) -> ChangeSet:
    return ChangeSet(
        tree=tree,
        steps=changes.steps,
        expects=changes.expects,
        events=changes.events,
        at=AT + timedelta(seconds=number, microseconds=number),
    )


@pytest.fixture
async def grown(store: TreeStore) -> TreeStore:
    await store.create_tree(tree_info())
    await store.create_tree(tree_info(OTHER))
    for number, changes in enumerate(HISTORY, start=1):
        assert await store.apply(dated(changes, number)) == Applied(seq=number)
    await store.apply(dated(insert("z"), 1, OTHER))
    return store


@pytest.mark.parametrize("after", range(len(HISTORY)))
async def test_it_names_what_later_commits_wrote_as_it_is_now(grown: TreeStore, after: int) -> None:
    [news] = (await grown.news({TREE: after})).values()
    assert (news.seq, news.at) == (len(HISTORY), AT + timedelta(seconds=7, microseconds=7))
    assert news.since == (AT + timedelta(seconds=after, microseconds=after) if after else None)
    wanted = {NodeId(name) for names in WRITTEN[after:] for name in names}
    assert {node.id for node in news.nodes} == wanted
    now = await grown.nodes(TREE, sorted(wanted), vectors=True)
    for node in news.nodes:
        assert node.vector is not None
        assert (node.vector == now[node.id].vector).all()
        assert (node.text, node.item, node.version) == (now[node.id].text, now[node.id].item, now[node.id].version)


async def test_where_there_is_nothing_new_it_says_so(grown: TreeStore) -> None:
    [news] = (await grown.news({TREE: len(HISTORY)})).values()
    assert (news.seq, news.at, news.nodes) == (len(HISTORY), None, ())


async def test_one_that_is_ahead_of_the_store_is_told_where_that_stands(grown: TreeStore) -> None:
    [news] = (await grown.news({TREE: 99})).values()
    assert (news.seq, news.at, news.since, news.nodes) == (len(HISTORY), None, None, ())


async def test_many_trees_are_answered_together_without_those_that_do_not_exist(grown: TreeStore) -> None:
    found = await grown.news({MISSING: 0, OTHER: 0, TREE: 6})
    assert {tree: {node.id for node in news.nodes} for tree, news in found.items()} == {OTHER: {"z"}, TREE: {"d"}}


async def test_no_more_commits_are_looked_at_than_wanted(grown: TreeStore) -> None:
    after = 0
    seen = []
    while after < len(HISTORY):
        [news] = (await grown.news({TREE: after}, limit=2)).values()
        assert after < news.seq <= after + 2
        seen.append({node.id for node in news.nodes})
        after = news.seq
    assert seen == [{"a", "b", "s"}, {"c", "s"}, {"u"}, {"d"}]


async def test_many_commits_are_told_of_without_a_gap(store: TreeStore) -> None:
    """More than an adapter reads at once."""
    await store.create_tree(tree_info())
    names = [f"n{number}" for number in range(50)]
    for number, name in enumerate(names, start=1):
        await store.apply(dated(insert(name), number))
    for limit in (15, 16, 17, 33, 256):
        seen: list[NodeId] = []
        after = 0
        while after < len(names):
            [news] = (await store.news({TREE: after}, limit=limit)).values()
            assert news.seq == min(after + limit, len(names))
            assert news.since == (AT + timedelta(seconds=after, microseconds=after) if after else None)
            seen += [node.id for node in news.nodes]
            after = news.seq
        assert sorted(seen) == sorted(names)
