"""What a commit's answer says of the commits that the caller's view lacks: right, and in order, as far as it goes."""

from __future__ import annotations

import pytest

from memory.model import ROOT
from memory.ports.store import Applied, LogEntry, Stale, TreeStore
from tests.fakes.change_sets import TREE, change_set, expand, expect, insert, summary, tree_info


@pytest.fixture(autouse=True)
async def grown(store: TreeStore) -> None:
    """Five commits."""
    await store.create_tree(tree_info())
    await store.apply(change_set(summary("s")))
    for name in "ab":
        await store.apply(insert(name, "s"))
    await store.apply(expand("a", "c", "t", "s"))
    await store.apply(insert("d"))


async def assert_from_the_log(store: TreeStore, missed: tuple[LogEntry, ...], after: int) -> None:
    logged = await store.changes(TREE, after, limit=max(len(missed), 1))
    assert repr(missed) == repr(tuple(logged[: len(missed)]))


@pytest.mark.parametrize("after", range(6))
async def test_a_refusal_brings_what_was_missed(store: TreeStore, after: int) -> None:
    outcome = await store.apply(insert("e", expects=[expect(ROOT, routing=0)]), after=after)
    assert isinstance(outcome, Stale)
    assert outcome.seq == 5
    assert len(outcome.missed) <= 5 - after
    await assert_from_the_log(store, outcome.missed, after)


@pytest.mark.parametrize("after", range(6))
async def test_a_commit_beside_others_brings_what_was_missed_before_it(store: TreeStore, after: int) -> None:
    outcome = await store.apply(insert("e"), after=after)
    assert isinstance(outcome, Applied)
    assert outcome.seq == 6
    assert len(outcome.missed) <= 5 - after, "without itself"
    await assert_from_the_log(store, outcome.missed, after)


async def test_who_does_not_ask_is_not_told(store: TreeStore) -> None:
    outcome = await store.apply(insert("e"))
    assert isinstance(outcome, Applied)
    assert outcome.missed == ()
