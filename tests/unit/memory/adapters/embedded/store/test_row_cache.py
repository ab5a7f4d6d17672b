"""Rows remembered between commits: never believed when anything else happened to the tree."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.embedded.files import transaction
from memory.adapters.embedded.store import SqliteTreeStore, writing
from memory.adapters.embedded.store.cache import RowCache
from memory.adapters.embedded.store.opening import open_writer
from memory.adapters.embedded.store.rows import LEAF, SUMMARY, Row
from memory.model import ROOT, Mark, NodeId
from memory.ports.store import Applied, ChangeSet, Expectation, Stale
from tests.fakes.change_sets import TREE, change_set, insert, tree_info


def row(name: str, key: int, kind: int = SUMMARY) -> Row:
    return Row(
        key=key,
        tree=1,
        id=NodeId(name),
        parent=0,
        kind=kind,
        depth=1,
        mark=Mark(key),
        version=1,
        routing=0,
        descendants=0,
        pending=0,
        oldest=None,
        cohesion=1.0,
        provisional=False,
        tail=b"",
    )


def kept(rows_max: int = 10) -> RowCache:
    cache = RowCache(rows_max)
    cache.keep(1, 10, 11, [row(f"s{key}", key) for key in range(4)])
    return cache


def test_rows_are_given_out_once_unless_they_are_kept_again() -> None:
    cache = kept()
    [taken] = cache.take(1, 11, [NodeId("s2"), NodeId("unknown")]).values()
    assert taken.id == "s2"
    assert not cache.take(1, 11, [NodeId("s2")])
    cache.keep(1, 11, 12, [taken])
    assert len(cache) == 4
    assert set(cache.take(1, 12, [NodeId("s2"), NodeId("s3")])) == {"s2", "s3"}


@pytest.mark.parametrize("stamp", [10, 12])
def test_rows_of_another_commit_are_forgotten(stamp: int) -> None:
    cache = kept()
    assert not cache.take(1, stamp, [NodeId("s1")])
    assert len(cache) == 0
    assert not cache.take(1, 11, [NodeId("s1")])


def test_rows_that_were_made_from_another_commit_replace_those_kept() -> None:
    cache = kept()
    cache.keep(1, 20, 21, [row("s9", 9)])
    assert len(cache) == 1
    assert set(cache.take(1, 21, [NodeId("s1"), NodeId("s9")])) == {"s9"}


def test_leaves_are_not_kept() -> None:
    cache = RowCache()
    cache.keep(1, 1, 2, [row("l1", 1, LEAF), row("s2", 2)])
    assert set(cache.take(1, 2, [NodeId("l1"), NodeId("s2")])) == {"s2"}


def test_those_named_least_recently_go_first_other_trees_before_the_one_in_hand() -> None:
    cache = kept(rows_max=6)
    cache.keep(2, 1, 2, [row(f"t{key}", key) for key in range(2)])
    cache.keep(2, 2, 3, [row("t9", 9)])
    assert len(cache) == 3
    assert not cache.take(1, 11, [NodeId("s1")])
    cache.keep(2, 3, 4, [*cache.take(2, 3, [NodeId("t0")]).values(), *(row(f"u{key}", key) for key in range(4))])
    assert len(cache) == 6
    assert set(cache.take(2, 4, [NodeId(name) for name in ("t0", "t1", "t9", "u3")])) == {"t0", "t9", "u3"}


def below_root(name: str, *, routing: int) -> ChangeSet:
    plain = insert(name)
    return change_set(*plain.steps, events=plain.events, expects=[Expectation(node=ROOT, routing=routing)])


async def test_a_commit_that_was_undone_is_not_remembered_although_another_took_its_number(tmp_path: Path) -> None:
    path = tmp_path / "banyan.db"
    mine = open_writer(path, busy_wait=timedelta(seconds=5))
    cache = RowCache()

    def apply(changes: ChangeSet) -> object:
        return writing.apply(mine, changes, writing.vectors_of(changes), held=lambda: True, cache=cache)

    with transaction(mine, write=True):
        writing.create_tree(mine, tree_info())
    mine.execute("BEGIN IMMEDIATE")
    assert apply(below_root("undone", routing=0)) == Applied(seq=1)
    mine.execute("ROLLBACK")
    other = await SqliteTreeStore.open(path)
    assert await other.apply(insert("a")) == Applied(seq=1)
    assert await other.apply(insert("b")) == Applied(seq=2)
    with transaction(mine, write=True):
        assert apply(below_root("c", routing=1)) == Stale(nodes=(ROOT,), seq=2)
        assert apply(below_root("c", routing=2)) == Applied(seq=3)
        assert len(cache) == 1
    assert (await other.nodes(TREE, [ROOT]))[ROOT].routing == 3
    await other.close()
    mine.close()
