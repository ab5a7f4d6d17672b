"""A process that inserts into a store until it is done or killed. Run by `test_store_processes.py`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from memory.adapters.embedded.store import SqliteTreeStore
from memory.changes import Step
from memory.errors import StoreUnavailableError
from memory.model import NodeId
from memory.ports.store import Applied, Seen, Stale
from tests.fakes.change_sets import TREE, change_set, event, expect, grow, leaf, tree_info

TOP = NodeId("top")
BATCH = 5


async def write(path: Path, name: str, batches: int, *, several: int = 1) -> None:
    """
    Insert batches of items below one summary node, each relying on what it read; report each acknowledged event on stdout.

    `several` writers run at once, so that some commits are shared.
    """
    store = await SqliteTreeStore.open(path)
    await store.create_tree(tree_info())

    async def writer(number: int) -> None:
        for batch in range(batches):
            names = [f"{name}-{number}-{batch}-{item}" for item in range(BATCH)]
            while True:
                top = (await store.nodes(TREE, [TOP]))[TOP]
                steps: list[Step] = [step for one in names for step in (leaf(one, TOP, 2), grow(one, TOP))]
                expects = [expect(TOP, version=top.version, routing=top.routing)] if number == 0 else []
                answer = await store.apply(change_set(*steps, expects=expects, events=[event(one) for one in names]))
                if not isinstance(answer, Stale):
                    break
                report("stale")
            report(*(f"{'seen' if isinstance(answer, Seen) else 'applied'} {one}" for one in names))
            assert isinstance(answer, Applied | Seen)

    await asyncio.gather(*map(writer, range(several)))
    await store.close()
    report("done")


def report(*lines: str) -> None:
    """One write a report: a process that is killed does not leave half of one in a buffer."""
    os.write(1, "".join(f"{line}\n" for line in lines).encode())


async def fill_the_disk(path: Path, limit: int) -> None:
    """Insert until files may not grow any more, then show that reading goes on."""
    import resource  # noqa: PLC0415  # POSIX only

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    store = await SqliteTreeStore.open(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        for batch in range(10_000):
            names = [f"full-{batch}-{item}" for item in range(50)]
            await store.apply(change_set(*(leaf(one) for one in names), events=[event(one) for one in names]))
            report(*(f"applied {one}" for one in names))
    except StoreUnavailableError as error:
        report(f"refused {error}")
    report(f"leaves {(await store.stats(TREE)).leaves}")
    await store.close()
    report("done")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        asyncio.run(write(Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), several=int(sys.argv[5])))
    else:
        asyncio.run(fill_the_disk(Path(sys.argv[2]), int(sys.argv[3])))
