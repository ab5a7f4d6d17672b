"""What statistics cost while much waits."""

from __future__ import annotations

from pathlib import Path

from memory.adapters.embedded.store import reading
from memory.adapters.embedded.store.opening import open_reader
from tests.fakes.change_sets import TREE, expand, insert, tree_info
from tests.fakes.inline_store import BUSY, InlineStore


async def test_the_oldest_that_waits_is_found_without_reading_all_that_do(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    store = InlineStore.make(path, leases=None)
    await store.create_tree(tree_info())
    connection = open_reader(path, busy_wait=BUSY, read_only=False)
    steps = 0

    def counted() -> int:
        nonlocal steps
        steps += 1
        return 0

    costs = []
    connection.set_progress_handler(counted, 1)
    for first, last in ((0, 10), (10, 200)):
        for number in range(first, last):
            await store.apply(insert(f"a{number}"))
            await store.apply(expand(f"a{number}", f"b{number}", f"s{number}"))
        steps = 0
        found = reading.stats(connection, TREE)
        costs.append(steps)
        dirty = await store.dirty(TREE)
        assert len(dirty) == found.dirty == last
        assert found.oldest == min(one.oldest for one in dirty)
    connection.close()
    await store.close()
    assert costs[1] <= 1.2 * costs[0], costs
