"""The check compares the change log with what is stored, and says which of the two lacks what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from memory.changes import Create, LogEntry, Step
from memory.model import ROOT, Node, NodeId, TreeId
from tests.fakes.world import TREE, World, turns


def dropped(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(steps[:0])


def doubled(steps: Sequence[Step]) -> tuple[Step, ...]:
    return (*steps, next(step for step in steps if isinstance(step, Create)))


def strayed(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, parent=NodeId("nowhere")) if isinstance(step, Create) else step for step in steps)


def renamed(steps: Sequence[Step]) -> tuple[Step, ...]:
    return tuple(replace(step, id=NodeId("other")) if isinstance(step, Create) else step for step in steps)


@pytest.mark.parametrize("change", [dropped, doubled, strayed, renamed])
async def test_a_log_that_does_not_give_the_stored_tree_is_found(
    world: World, change: Callable[[Sequence[Step]], tuple[Step, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.put(*turns(range(20)))
    await world.put(*turns([100]))
    assert (await world.inspect.check(TREE)).clean
    last = (await world.store.tree(TREE)).seq
    changes = world.store.changes

    async def other(tree: TreeId, after: int, *, limit: int) -> list[LogEntry]:
        entries = await changes(tree, after, limit=limit)
        return [replace(entry, steps=change(entry.steps)) if entry.seq == last else entry for entry in entries]

    monkeypatch.setattr(world.store, "changes", other)
    assert "log-shape" in {violation.invariant for violation in (await world.inspect.check(TREE)).violations}


async def test_a_log_that_ends_early_is_found(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.put(*turns(range(20)), batch=5)
    changes = world.store.changes

    async def shorter(tree: TreeId, after: int, *, limit: int) -> list[LogEntry]:
        return [entry for entry in await changes(tree, after, limit=limit) if entry.seq < 4]

    monkeypatch.setattr(world.store, "changes", shorter)
    report = await world.inspect.check(TREE)
    assert any("ends at 3" in violation.detail for violation in report.violations)


async def test_a_node_that_the_log_puts_elsewhere_is_told_by_ids(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.put(*turns(range(20)))
    all_nodes = world.store.all_nodes
    moved = (await world.store.children(TREE, ROOT))[0]

    async def elsewhere(tree: TreeId, *, vectors: bool) -> AsyncIterator[Node]:
        async for node in all_nodes(tree, vectors=vectors):
            yield replace(node, parent=NodeId("elsewhere")) if node.id == moved.id else node

    monkeypatch.setattr(world.store, "all_nodes", elsewhere)
    details = [violation.detail for violation in (await world.inspect.check(TREE)).violations if violation.node == moved.id]
    assert f"hangs under elsewhere, by the log under {moved.parent}" in details
