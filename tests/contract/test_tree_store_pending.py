"""What `TreeStore.pending` promises, over every adapter."""

from __future__ import annotations

from memory.model import TreeId, mark
from memory.ports.store import Pending, TreeStore
from tests.fakes.change_sets import change_set, expand, insert, rewrite, tree_info

TREES = [TreeId(f"t{number}") for number in range(5)]


async def test_it_counts_what_waits_in_all_trees(store: TreeStore) -> None:
    assert await store.pending() == Pending(trees=0, contributions=0, nodes=0)
    for number, tree in enumerate(TREES):
        await store.create_tree(tree_info(tree))
        if not number:
            continue
        more = (insert(f"c{each}", "s", tree=tree) for each in range(number))
        for changes in (insert("a", tree=tree), expand("a", "b", "s", tree=tree), *more):
            await store.apply(changes)
    stats = [await store.stats(tree) for tree in TREES]
    assert await store.pending() == Pending(
        trees=5, contributions=sum(one.pending for one in stats), nodes=sum(one.dirty for one in stats)
    )
    assert (await store.pending()).contributions == sum(2 + number for number in range(1, 5))
    await store.apply(change_set(rewrite("s", through=mark(3, 9)), tree=TREES[4]))
    after = await store.pending()
    assert after.contributions == sum(one.pending for one in [*stats[:4], await store.stats(TREES[4])])
    assert after.contributions < sum(one.pending for one in stats)
