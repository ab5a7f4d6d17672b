"""What a summary worker reads of a tree that floods: not what was given up already."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
import structlog

from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from streams.acknowledging import Message
from streams.deliveries import Delivery
from streams.pipelines import dirty_nodes
from streams.workers.jobs import SHARES, TakenJobs
from tests.fakes.world import TREE, World, turns

ATTEMPTS_MAX = 3
SHARE = 4


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path / "store.db")
    await made.put(*turns(range(60)))
    yield made
    await made.close()


async def dirty(world: World) -> list[NodeId]:
    return [each.node for each in await world.store.dirty(TREE)]


async def fail(world: World, node: NodeId, times: int) -> None:
    for _ in range(times):
        await world.claims.failed(await world.claims.claim(TREE, node, ttl=timedelta(seconds=60)), "no use")


async def read(world: World, limit: int, tree: TreeId = TREE) -> Sequence[NodeId]:
    return await dirty_nodes(world.store, world.claims, tree, limit, ATTEMPTS_MAX)


async def test_nodes_that_were_given_up_are_left_out_and_so_many_others_are_read(world: World) -> None:
    nodes = await dirty(world)
    assert len(nodes) > 2 * SHARE
    for node in nodes[:SHARE]:
        await fail(world, node, ATTEMPTS_MAX)
    await fail(world, nodes[SHARE], ATTEMPTS_MAX - 1)
    assert await read(world, SHARE) == nodes[SHARE : 2 * SHARE]
    assert await read(world, len(nodes)) == nodes[SHARE:]
    await world.claims.done(await world.claims.claim(TREE, nodes[0], ttl=timedelta(seconds=60)))
    assert (await read(world, SHARE))[0] == nodes[0], "one that succeeded since"
    assert await read(world, SHARE, TreeId("nowhere")) == ()


async def test_a_flooding_tree_of_which_everything_is_given_up_comes_to_an_end(world: World) -> None:
    nodes = await dirty(world)

    async def nothing() -> None:
        """No letter is sent."""

    jobs = TakenJobs(
        InProcessSummaryJobs(world.clock),
        room=SHARE * SHARES,
        before=nothing,
        clock=world.clock,
        log=structlog.stdlib.get_logger("test"),
        dirty=lambda tree, limit: read(world, limit, tree),
    )
    acknowledged: list[int] = []
    message = Message(Delivery(topic="jobs", partition=0, offset=0, key=None, value=None), lambda: acknowledged.append(0))
    jobs.stand(message)
    await jobs.take(SummaryJob(tree=TREE, node=nodes[0]), message, whole=True)
    tried: list[NodeId] = []
    while jobs.backlog():
        job = await jobs.claim()
        tried.append(job.node)
        assert len(tried) <= len(nodes), "the same again and again"
        await fail(world, job.node, ATTEMPTS_MAX)
        await jobs.done(job)
    assert sorted(tried) == sorted(nodes)
    assert acknowledged == [0]
