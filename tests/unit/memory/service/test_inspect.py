"""The check compares the change log with what is stored, and says which of the two lacks what."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

import pytest

from memory.changes import Create, LogEntry, Step
from memory.model import ROOT, Node, NodeId, TreeId
from memory.settings import MemorySettings, SummarySettings
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld


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


async def test_the_check_counts_the_nodes_that_statistics_count(world: World) -> None:
    await world.put(*turns(range(20)))
    stats = await world.inspect.stats(TREE)
    assert (await world.inspect.check(TREE)).nodes == stats.nodes == stats.leaves + stats.summaries > 20


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


async def test_statistics_say_since_when_the_oldest_contribution_waits(world: World) -> None:
    await world.put(*turns(range(10)))
    first = (await world.store.changes(TREE, 0, limit=1))[0].at
    await world.clock.sleep(60)
    await world.put(*turns(range(10, 20)))
    assert (await world.inspect.stats(TREE)).oldest_pending_at == first
    await world.drain()
    report = await world.inspect.stats(TREE)
    assert (report.oldest_pending_at, report.pending, report.failing) == (None, 0, ())


async def test_statistics_show_summaries_that_fail_until_one_succeeds(make_world: MakeWorld) -> None:
    poison = True
    world = make_world(
        summarizer=FakeSummarizer(poison=lambda _: poison), settings=MemorySettings(summaries=SummarySettings(attempts_max=2))
    )
    await world.put(turn("a", "the same words"), turn("b", "the same words!"))
    await world.start()
    assert await world.idle()
    report = await world.inspect.stats(TREE)
    [failing] = report.failing
    assert (failing.failures, report.pending) == (2, 1)
    assert "never likes" in failing.reason
    [top] = (await world.inspect.draw(TREE, depth=1, children=5)).children
    assert (top.id, top.pending) == (failing.id, 2), "the drawing shows it too"
    poison = False
    await world.put(turn("c", "the same words?"))
    assert await world.idle()
    report = await world.inspect.stats(TREE)
    assert (report.failing, report.pending) == ((), 0)
