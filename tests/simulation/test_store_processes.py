"""Processes that share one store's file, and processes that are killed while they write it."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

from memory.adapters.embedded.store import SqliteTreeStore
from memory.model import NodeKind
from memory.ports.store import TreeStore
from tests.fakes.change_sets import TREE, change_set, summary, tree_info
from tests.fakes.plain_tree import PlainTree, fields_of
from tests.simulation.store_writer import BATCH, TOP

KILLS = 20
SEED = 20260301

pytestmark = pytest.mark.slow


async def start(*arguments: object) -> Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.simulation.store_writer", *map(str, arguments), stdout=PIPE, stderr=PIPE
    )


async def finish(process: Process) -> list[str]:
    out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    return out.decode().splitlines()


@pytest.fixture
async def path(tmp_path: Path) -> Path:
    made = tmp_path / "banyan.db"
    store = await SqliteTreeStore.open(made)
    await store.create_tree(tree_info())
    await store.apply(change_set(summary(TOP)))
    await store.close()
    return made


async def assert_consistent(store: TreeStore) -> set[str]:
    """Counts, receipts, contributions and log tell one story; its events."""
    nodes = {node.id: node async for node in store.all_nodes(TREE, vectors=True)}
    events = await store.events(TREE)
    leaves = {name for name, node in nodes.items() if node.kind is NodeKind.LEAF}
    assert {leaf for made in events.values() for leaf in made} == leaves
    assert len(events) == len(leaves)
    stats = await store.stats(TREE)
    assert stats.leaves == stats.events == stats.pending == stats.leaf_depths.get(2, 0) == len(leaves)
    top = nodes[TOP]
    assert top.descendants == top.pending == top.routing == len(leaves)
    assert {one.leaf for one in await store.contributions(TREE, TOP, limit=10**6)} == leaves
    log = await store.changes(TREE, 0, limit=10**6)
    assert [entry.seq for entry in log] == list(range(1, stats.seq + 1))
    plain = PlainTree().replay(log)
    assert {name: fields_of(node, text=False) for name, node in plain.nodes.items()} == {
        name: fields_of(node, text=False) for name, node in nodes.items()
    }
    return set(events)


async def test_processes_that_write_one_tree_lose_and_double_nothing(path: Path) -> None:
    batches = 25
    # "shared" is written by two processes: each of its events must take effect once.
    processes = [await start("write", path, name, batches, 1) for name in ("one", "shared", "shared")]
    outputs = [await finish(process) for process in processes]
    store = await SqliteTreeStore.open(path)
    events = await assert_consistent(store)
    assert events == {
        f"e-{name}-0-{batch}-{item}" for name in ("one", "shared") for batch in range(batches) for item in range(BATCH)
    }
    lines = [line for output in outputs for line in output]
    assert sum(line.startswith("applied ") for line in lines) == len(events)
    assert sum(line.startswith("seen ") for line in lines) == batches * BATCH
    await store.close()


async def test_a_killed_process_leaves_every_acknowledged_event_and_nothing_half(path: Path) -> None:
    rng = random.Random(SEED)
    acknowledged: set[str] = set()
    for number in range(KILLS):
        process = await start("write", path, f"run{number}", 100_000, 3)
        assert process.stdout is not None
        reports = rng.randint(1, 60)
        seen = 0
        while seen < reports:
            line = (await process.stdout.readline()).decode()
            assert line, (await process.stderr.read()).decode() if process.stderr else ""
            seen += 1
            if line.startswith("applied "):
                acknowledged.add(f"e-{line.split()[1]}")
        await asyncio.sleep(rng.random() * 0.01)
        process.kill()
        rest, _ = await process.communicate()
        assert process.returncode == -9
        acknowledged |= {f"e-{line.split()[1]}" for line in rest.decode().splitlines() if line.startswith("applied ")}
        store = await SqliteTreeStore.open(path)
        events = await assert_consistent(store)
        assert acknowledged <= events, f"lost after kill {number}, seed {SEED}"
        assert len(events) - len(acknowledged) <= (number + 1) * 3 * BATCH, "at most what was under way at each kill"
        await store.close()
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
async def test_a_disk_that_fills_up_keeps_what_was_acknowledged(path: Path) -> None:
    lines = await finish(await start("fill", path, 1_500_000))
    refused = [line for line in lines if line.startswith("refused ")]
    assert len(refused) == 1
    assert "banyan.db" in refused[0]
    acknowledged = {f"e-{line.split()[1]}" for line in lines if line.startswith("applied ")}
    assert acknowledged
    assert f"leaves {len(acknowledged)}" in lines, "reading goes on"
    store = await SqliteTreeStore.open(path)
    assert set(await store.events(TREE)) == acknowledged
    await store.close()
