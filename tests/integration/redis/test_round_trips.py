"""What a commit costs in calls of Redis, and what several writers of one tree cost each other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.redis import Link, RedisPathLeases, RedisTreeStore
from memory.model import TreeId
from memory.records import Record
from memory.results import EventStatus
from memory.service.ingest import Ingest, Prepared
from memory.service.inspect import Inspect
from memory.service.views import Views
from memory.settings import IngestSettings
from tests.fakes.embedder import FakeEmbedder
from tests.fakes.world import turn
from tests.integration.redis.conftest import Connect

TREE = TreeId("tree")


class Writer:
    """A process that writes, as far as Redis can tell."""

    def __init__(self, link: Link, **settings: Any) -> None:
        self.link = link
        self.store, clock = RedisTreeStore(link), SystemClock()
        self.views = Views(self.store, bytes_max=10**8)
        self.ingest = Ingest(
            store=self.store,
            leases=RedisPathLeases(link),
            jobs=InProcessSummaryJobs(clock),
            embedder=FakeEmbedder(),
            clock=clock,
            views=self.views,
            settings=IngestSettings(**settings),
        )

    async def ready(self, *records: Record) -> Prepared:
        return await self.ingest.prepare(TREE, records)

    async def commit(self, prepared: Prepared) -> int:
        """Returns how many scripts it took."""
        before = self.link.scripts_called
        results = await self.ingest.commit(prepared, prepared.records)
        assert {result.status for result in results} == {EventStatus.ACCEPTED}
        return self.link.scripts_called - before

    async def sound(self, leaves: int) -> None:
        checked = await Inspect(store=self.store, embedder=FakeEmbedder(), views=Views(self.store, bytes_max=1)).check(TREE)
        assert checked.clean, checked.violations
        assert (await self.store.stats(TREE)).leaves == leaves


@pytest.fixture
async def writers(connect: Connect) -> list[Writer]:
    made = [Writer(await connect()) for _ in range(8)]
    # The server knows the scripts then.
    other = await made[0].ingest.prepare(TreeId("other"), [turn(1)])
    await made[0].ingest.commit(other, other.records)
    return made


def unlike(number: int) -> Record:
    """A turn that resembles no other: it is attached to the root, which every plan has read."""
    return turn(f"unlike-{number}", f"alpha{number} beta{number} gamma{number}")


async def test_a_commit_alone_is_one_call(writers: list[Writer]) -> None:
    alone = writers[0]
    first, second = await alone.ready(unlike(1)), await alone.ready(unlike(2), unlike(3))
    assert await alone.commit(first) == 1
    assert await alone.commit(second) == 1
    assert alone.ingest.counters.leased == 0
    await alone.sound(3)


async def test_a_summary_of_leaves_that_came_lately_needs_no_reading(writers: list[Writer]) -> None:
    alone = writers[0]
    await alone.commit(await alone.ready(turn(1, "the harbour tunnel budget of the city")))
    expanding = await alone.ready(turn(2, "the harbour tunnel budget of the city again"))
    assert await alone.commit(expanding) == 1
    assert (await alone.store.stats(TREE)).summaries == 1


@pytest.mark.parametrize("lease_after", [None, 1])
async def test_what_a_refused_commit_lacked_comes_with_the_refusal(
    writers: list[Writer], connect: Connect, lease_after: int | None
) -> None:
    ours, theirs = Writer(await connect(), lease_after=lease_after), writers[1]
    await ours.commit(await ours.ready(unlike(0)))
    late = await ours.ready(unlike(1))
    for number in range(2, 6):
        await theirs.commit(await theirs.ready(unlike(number)))
    asked: list[str] = []
    script = ours.link.script

    async def noted(name: str, *arguments: Any, **given: Any) -> Any:
        asked.append(name)
        return await script(name, *arguments, **given)

    ours.link.script = noted  # type: ignore[method-assign]
    await ours.commit(late)
    assert ours.ingest.counters.refused == 1
    assert asked[0] == "apply"
    assert asked.count("apply") == 2
    between = ["lease_acquire", "log"] if lease_after else []
    assert asked == ["apply", *between, "apply"], "and the commit gives its lease back"
    await ours.sound(6)


async def test_commits_beside_others_keep_the_view_level_without_reading_the_log(writers: list[Writer]) -> None:
    ours, theirs = writers[:2]
    about = [turn(f"a{number}", f"the harbour tunnel budget number {number}") for number in range(6)]
    other = [turn(f"b{number}", f"violin lesson recital evening {number}") for number in range(6)]
    for writer, records in ((ours, about[:3]), (theirs, other[:3])):
        await writer.commit(await writer.ready(*records))
    mine, yours = await ours.ready(*about[3:]), await theirs.ready(*other[3:])
    async with ours.views.hold(TREE), theirs.views.hold(TREE):
        pass  # both are level
    await theirs.commit(yours)
    assert await ours.commit(mine) == 1, "it went elsewhere in the tree, and said what had happened meanwhile"
    async with ours.views.hold(TREE, fresh=False) as view:
        assert view.seq == (await ours.store.tree(TREE)).seq
        assert len(view.homes) == 12
    await ours.sound(12)


async def test_many_writers_of_one_tree_all_come_through(writers: list[Writer]) -> None:
    async def write(number: int, writer: Writer) -> None:
        for index in range(12):
            await writer.commit(await writer.ready(unlike(100 * number + index)))

    await asyncio.gather(*(write(number, writer) for number, writer in enumerate(writers)))
    await writers[0].sound(96)
    refused = sum(writer.ingest.counters.refused for writer in writers)
    assert refused < 4 * 96, "leases bound how often a commit is refused"
