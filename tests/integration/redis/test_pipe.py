"""Calls that are made at about the same time share a round trip, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from memory.adapters.redis import Link, RedisTreeStore
from memory.adapters.redis.pipe import TOGETHER
from memory.errors import TreeNotFoundError
from memory.model import EventId, TreeId
from tests.fakes.change_sets import TREE, insert, tree_info
from tests.integration.redis.conftest import Connect
from tests.servers import proxy
from tests.servers.redis import RedisServer


async def test_calls_of_one_turn_share_round_trips(store: RedisTreeStore, link: Link) -> None:
    await store.tree(TREE)  # the server knows the script then
    before = link.round_trips
    await asyncio.gather(*(store.tree(TREE) for _ in range(3 * TOGETHER)))
    assert link.round_trips - before == 3


async def test_an_error_is_the_callers_who_caused_it(store: RedisTreeStore, link: Link) -> None:
    await store.receipts(TREE, [])
    before = link.round_trips
    found = await asyncio.gather(
        store.receipts(TREE, [EventId("e")]),
        store.receipts(TreeId("unknown"), [EventId("e")]),
        store.receipts(TREE, [EventId("e")]),
        return_exceptions=True,
    )
    assert found[0] == found[2] == {}
    assert isinstance(found[1], TreeNotFoundError)
    assert link.round_trips - before == 1


async def test_a_caller_that_is_cancelled_disturbs_no_other(store: RedisTreeStore) -> None:
    await store.apply(insert("first"))
    calls = [asyncio.create_task(store.apply(insert(f"n{number}"))) for number in range(6)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    calls[2].cancel()
    done = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(done[2], asyncio.CancelledError)
    assert sum(isinstance(each, BaseException) for each in done) == 1
    assert (await store.tree(TREE)).seq == 7, "what was sent takes effect, whoever waits for it"


async def test_a_lost_answer_is_asked_for_again_by_each(connect: Connect, redis_server: RedisServer) -> None:
    async with proxy.in_front_of(redis_server.port) as relay:
        store = RedisTreeStore(await connect(f"redis://127.0.0.1:{relay.port}/0"))
        await store.create_tree(tree_info())
        await store.apply(insert("first"))
        relay.lose(1)
        await asyncio.gather(*(store.apply(insert(f"n{number}")) for number in range(10)))
        assert relay.lost == 1
        assert (await store.tree(TREE)).seq == 11
        assert len(await store.events(TREE)) == 11


async def test_receipts_of_many_trees_are_asked_for_together(store: RedisTreeStore, link: Link) -> None:
    trees = [TreeId(f"tree-{number}") for number in range(2 * TOGETHER)]
    await asyncio.gather(*(store.create_tree(tree_info(tree)) for tree in trees))
    [entry] = (changes := insert("a", tree=trees[3])).events
    await store.apply(changes)
    await store.receipts(TREE, [])
    before = link.round_trips
    found = await store.receipts_among({tree: [entry.id, EventId("b")] for tree in trees})
    assert link.round_trips - before == 2
    assert list(found) == trees
    assert {tree: set(receipts) for tree, receipts in found.items() if receipts} == {trees[3]: {entry.id}}
    with pytest.raises(TreeNotFoundError, match="nowhere"):
        await store.receipts_among({TREE: [EventId("a")], TreeId("nowhere"): [EventId("a")]})
