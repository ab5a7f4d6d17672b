"""Ingestion: once, in order, and nothing half."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest

from memory.changes import ChangeSet
from memory.errors import ContentionError, EmbedderAnswerError, EmbedderError, TreeMismatchError
from memory.model import ROOT, EventId, TreeId
from memory.ports.leases import Lease
from memory.ports.store import Applied, Seen, Stale
from memory.records import Document, Record
from memory.results import EventResult, EventStatus
from memory.service.stream import stream
from memory.settings import IngestSettings, MemorySettings
from memory.structures.memtree import MemTree
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.fakes.world import TREE, World, turn, turns
from tests.unit.memory.service.conftest import MakeWorld

ACCEPTED, DUPLICATE, CONFLICT = EventStatus.ACCEPTED, EventStatus.DUPLICATE, EventStatus.CONFLICT


async def assert_sound(world: World, expected: int, tree: TreeId = TREE) -> None:
    report = await world.inspect.check(tree)
    assert report.violations == ()
    assert len(await world.store.events(tree)) == expected
    assert report.replayed == (await world.store.stats(tree)).leaves


async def test_records_become_leaves_with_receipts(world: World) -> None:
    results = await world.put(*turns(range(100)))
    assert [result.id for result in results] == [f"e{number}" for number in range(100)]
    assert {result.status for result in results} == {ACCEPTED}
    assert [result.seq for result in results] == [1] * 64 + [2] * 36
    await assert_sound(world, 100)


@pytest.mark.parametrize("between", [0, 1, 5])
async def test_an_id_given_again_is_answered_with_its_first_commit(world: World, between: int) -> None:
    first = turn(1)
    others = turns(range(10, 10 + between))
    results = await world.put(first, *others, first, turn(1, "another text"), turn(2))
    by_place = [(result.id, result.status, result.seq) for result in results if result.id == "e1"]
    assert by_place == [("e1", ACCEPTED, 1), ("e1", DUPLICATE, 1), ("e1", CONFLICT, 1)]
    await assert_sound(world, between + 2)
    assert (await world.store.receipts(TREE, [EventId("e1")]))[EventId("e1")].digest == first.digest


async def test_the_first_of_two_texts_stands(world: World) -> None:
    await world.put(turn(1, "the first text"))
    [result] = await world.put(turn(1, "the second text"))
    assert result.status is CONFLICT
    assert "first one stands" in result.reason
    assert [text for text in (await world.texts()).values() if text] == ["the first text"]


async def test_a_batch_of_old_and_new_records_applies_the_new_ones(world: World) -> None:
    await world.put(*turns(range(5)))
    results = await world.put(*turns(range(10)))
    assert Counter(result.status for result in results) == {DUPLICATE: 5, ACCEPTED: 5}
    await assert_sound(world, 10)


async def test_events_applied_by_another_between_preparing_and_committing_are_seen(make_world: MakeWorld) -> None:
    ours, other = make_world(), make_world()
    records = turns(range(6))
    prepared = await ours.ingest.prepare(TREE, records)
    await other.put(*turns([1, 4]), turn(5, "another text"))
    results = await ours.ingest.commit(prepared, records)
    assert [result.status for result in results] == [ACCEPTED, DUPLICATE, ACCEPTED, ACCEPTED, DUPLICATE, CONFLICT]
    await assert_sound(ours, 6)


async def test_trees_in_turns_keep_their_own_order(world: World) -> None:
    records = [turn(number, tree=f"tree-{number % 3}") for number in range(90)]
    results = await world.put(*records, batch=8)
    for name in ("tree-0", "tree-1", "tree-2"):
        mine = [result for result in results if result.tree == name]
        assert [result.id for result in mine] == [record.id for record in records if record.tree == name]
        assert [result.seq for result in mine] == sorted(result.seq for result in mine)
        await assert_sound(world, 30, TreeId(name))


async def test_a_stream_over_very_many_trees_holds_few_records(world: World) -> None:
    taken = 0
    committed = 0
    ahead = 0

    def records() -> Iterator[Record]:
        nonlocal taken
        for number in range(300):
            taken += 1
            yield turn(number, tree=f"tree-{number}")

    def count(batch: Sequence[EventResult]) -> None:
        nonlocal committed, ahead
        ahead = max(ahead, taken - committed)
        committed += len(batch)

    totals = await stream(world.ingest, records(), batch_items=4, on_batch=count)
    assert totals.accepted == committed == 300
    assert ahead <= 4 * 16 + 2


async def test_a_document_is_one_event_of_many_leaves(world: World) -> None:
    text = "\n\n".join(f"Paragraph {number} about a subject. It has two sentences." for number in range(200))
    document = Document(tree=TREE, id="d1", text=text, title="A title")
    [result] = await world.put(document)
    assert result.status is ACCEPTED
    receipt = (await world.store.receipts(TREE, [EventId("d1")]))[EventId("d1")]
    assert len(receipt.leaves) > 5
    await assert_sound(world, 1)
    assert (await world.put(document))[0].status is DUPLICATE


async def test_nothing_to_do_is_no_commit(world: World) -> None:
    assert await world.put() == []
    await world.put(turn(1))
    before = world.ingest.counters.commits
    await world.put(turn(1))
    assert world.ingest.counters.commits == before
    assert (await world.store.tree(TREE)).seq == 1


async def test_a_tree_of_another_model_is_refused_with_a_way_out(make_world: MakeWorld) -> None:
    await make_world().put(turn(1))
    for other in (FakeEmbedder(8), FakeEmbedder(name="fake:other")):
        with pytest.raises(TreeMismatchError, match="set BANYAN_EMBEDDER to the tree's model, or put the records"):
            await make_world(embedder=other).put(turn(2))
    await assert_sound(make_world(), 1)


async def test_a_busy_embedder_is_waited_for_as_long_as_it_asks(make_world: MakeWorld) -> None:
    embedder = FakeEmbedder(faults=[EmbedderFault.BUSY] * 3, retry_after=20.0)
    world = make_world(embedder=embedder)
    started = world.clock.monotonic()
    assert {result.status for result in await world.put(*turns(range(3)))} == {ACCEPTED}
    assert world.clock.monotonic() - started >= 60.0
    assert len(embedder.calls) == 4


async def test_an_embedder_that_stays_away_ends_in_its_error_and_nothing_is_written(make_world: MakeWorld) -> None:
    world = make_world(embedder=FakeEmbedder(faults=[EmbedderFault.BUSY] * 1_000))
    with pytest.raises(EmbedderError):
        await world.put(turn(1))
    assert world.clock.monotonic() <= world.settings.ingest.embedder_patience.total_seconds()
    assert (await world.store.tree(TREE)).seq == 0


@pytest.mark.parametrize("fault", [EmbedderFault.NAN, EmbedderFault.ZERO, EmbedderFault.DIMENSION, EmbedderFault.FEW])
async def test_what_is_no_embedding_is_refused_whole(make_world: MakeWorld, fault: EmbedderFault) -> None:
    world = make_world(embedder=FakeEmbedder(faults=[fault]))
    with pytest.raises(EmbedderAnswerError, match="fake:words"):
        await world.put(*turns(range(4)))
    assert (await world.store.tree(TREE)).seq == 0
    assert {result.status for result in await world.put(*turns(range(4)))} == {ACCEPTED}
    await assert_sound(world, 4)


async def test_an_embedder_that_hangs_is_asked_again_and_then_counts_as_away(make_world: MakeWorld) -> None:
    world = make_world(embedder=FakeEmbedder(faults=[EmbedderFault.HANG]))
    await asyncio.wait_for(world.put(turn(1)), 3_600)
    world = make_world(embedder=FakeEmbedder(faults=[EmbedderFault.HANG] * 100))
    with pytest.raises(EmbedderError, match="did not answer"):
        await asyncio.wait_for(world.put(turn(2)), 3_600)


async def test_a_stream_that_fails_keeps_what_was_acknowledged(make_world: MakeWorld) -> None:
    embedder = FakeEmbedder()
    world = make_world(embedder=embedder)
    acknowledged: list[str] = []

    def note(batch: Sequence[EventResult]) -> None:
        acknowledged.extend(result.id for result in batch)
        if len(acknowledged) >= 12:
            embedder.faults.append(EmbedderFault.NAN)

    with pytest.raises(EmbedderAnswerError):
        await stream(world.ingest, turns(range(40)), batch_items=4, on_batch=note)
    stored = await world.store.events(TREE)
    assert set(acknowledged) <= set(stored)
    assert len(stored) <= len(acknowledged) + 4
    embedder.faults.clear()
    await world.put(*turns(range(40)))
    await assert_sound(world, 40)


class _Refusing:
    """Bumps the root before each of our commits, as another process would."""

    def __init__(self, world: World, other: World, times: int) -> None:
        self._apply = world.store.apply
        self._other = other
        self._left = times
        world.store.apply = self.apply  # type: ignore[method-assign]

    async def apply(self, changes: ChangeSet, **given: Any) -> Applied | Seen | Stale:
        if self._left:
            self._left -= 1
            await self._other.put(turn(f"-other-{self._left}", f"lonely{self._left} words{self._left}"))
        return await self._apply(changes, **given)


@pytest.mark.parametrize("lease_after", [0, 10_000])
async def test_a_refused_commit_is_planned_again(make_world: MakeWorld, lease_after: int) -> None:
    settings = MemorySettings(ingest=IngestSettings(lease_after=lease_after))
    ours, other = make_world(settings=settings), make_world()
    await ours.put(*turns(range(10)))
    _Refusing(ours, other, 7)
    assert {result.status for result in await ours.put(*turns(range(10, 20)))} == {ACCEPTED}
    assert ours.ingest.counters.refused == 7
    await assert_sound(ours, 27)


async def test_alone_it_reads_the_log_once_a_commit_and_beside_others_plans_once(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, other = make_world(), make_world()
    await ours.put(*turns(range(8)))
    done: Counter[str] = Counter()
    for part, name in ((ours.store, "changes"), (MemTree, "plan")):
        asked = getattr(part, name)

        def counted(*given: Any, _name: str = name, _asked: Any = asked, **named: Any) -> Any:
            done[_name] += 1
            return _asked(*given, **named)

        monkeypatch.setattr(part, name, counted)
    await ours.put(*turns(range(10, 30)), batch=4)
    assert done == {"changes": 5, "plan": 5}
    for number in range(5):
        await other.put(turn(100 + number, f"lonely{number} words{number}"))
        done.clear()
        await ours.put(turn(200 + number))
        if number:  # it has found by now that it is not alone
            assert done["plan"] == 1
    await assert_sound(ours, 38)


async def test_one_that_is_always_refused_gives_up_with_nothing_written(make_world: MakeWorld) -> None:
    settings = MemorySettings(ingest=IngestSettings(attempts_max=5))
    ours, other = make_world(settings=settings), make_world()
    await ours.put(*turns(range(10)))
    _Refusing(ours, other, 5)
    with pytest.raises(ContentionError, match="refused 5 times"):
        await ours.put(*turns(range(10, 20)))
    await assert_sound(ours, 15)
    await ours.put(*turns(range(10, 20)))
    await assert_sound(ours, 25)


async def test_a_lease_that_ended_before_the_commit_makes_it_plan_again(make_world: MakeWorld) -> None:
    """A process that was stopped for longer than its lease lasts: the fencing token refuses it, and it plans again."""
    ttl = timedelta(seconds=1)
    world = make_world(settings=MemorySettings(ingest=IngestSettings(lease_ttl=ttl)))
    await world.put(*turns(range(10)))
    apply = world.store.apply
    stops = [2.0, 2.0]

    async def stopped(changes: ChangeSet, *, lease: Lease | None = None, **given: Any) -> Applied | Seen | Stale:
        if stops:
            await asyncio.sleep(stops.pop())
        return await apply(changes, lease=lease, **given)

    world.store.apply = stopped  # type: ignore[method-assign]
    assert {result.status for result in await world.put(*turns(range(10, 20)))} == {ACCEPTED}
    await assert_sound(world, 20)


async def test_a_lease_that_cannot_be_had_does_not_stop_a_commit(world: World) -> None:
    await world.put(*turns(range(10)))
    await world.leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(hours=1), wait=timedelta(0))
    started = world.clock.monotonic()
    assert (await world.put(turn(11)))[0].status is ACCEPTED
    assert world.clock.monotonic() - started <= world.settings.ingest.lease_wait.total_seconds() + 1


async def test_a_cancelled_ingestion_leaves_the_next_one_sound(make_world: MakeWorld) -> None:
    """Cancelled at each of its steps in turn."""
    for steps in range(0, 60, 3):
        world = make_world(f"cancelled-{steps}")
        await world.put(*turns(range(5)))
        task = asyncio.create_task(world.put(*turns(range(5, 12)), batch=3))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await world.put(*turns(range(12)))
        await assert_sound(world, 12)


async def test_a_cancelled_caller_holds_its_lease_until_the_commit_has_ended(make_world: MakeWorld) -> None:
    world = make_world(settings=MemorySettings(ingest=IngestSettings(lease_after=0)))
    await world.put(*turns(range(5)))
    order: list[str] = []
    apply, release = world.store.apply, world.leases.release

    async def slow(changes: ChangeSet, *, lease: Lease | None = None, **given: Any) -> Applied | Seen | Stale:
        order.append("apply")
        await asyncio.sleep(5)
        outcome = await apply(changes, lease=lease, **given)
        order.append("applied")
        return outcome

    async def releasing(lease: Lease) -> None:
        order.append("released")
        await release(lease)

    world.store.apply, world.leases.release = slow, releasing  # type: ignore[method-assign]
    task = asyncio.create_task(world.put(turn(7)))
    for _ in range(2):
        await asyncio.sleep(1)
        assert order == ["apply"]
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert order == ["apply", "applied", "released"]
    await assert_sound(world, 6)


async def test_the_structures_of_many_trees_are_not_all_remembered(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.service.preparing.STRUCTURES_MAX", 3)
    for number in (0, 1, 2, 0, 3, 0, 4):
        await world.put(turn(number, tree=f"t{number}"))
    assert [name for name in map(TreeId, ("t0", "t1", "t2", "t3", "t4")) if world.ingest.knows(name)] == ["t0", "t3", "t4"]


async def test_many_writers_in_one_process(world: World) -> None:
    records = turns(range(120))
    await asyncio.gather(*(world.put(*records[start::3], batch=5) for start in range(4)))
    await assert_sound(world, 120)


async def test_a_tree_of_another_structure_is_refused_or_grows_on_as_it_was_made(make_world: MakeWorld) -> None:
    await make_world(structure="hat").put(turn(1))
    with pytest.raises(TreeMismatchError, match="--structure hat"):
        await make_world().put(turn(2))
    worker = make_world()
    worker.ingest._preparing._structure_binds = False
    await worker.put(turn(2))
    report = await worker.inspect.check(TREE)
    assert (report.violations, report.replayed) == ((), 2)
    assert (await worker.inspect.stats(TREE)).structure == "hat"
