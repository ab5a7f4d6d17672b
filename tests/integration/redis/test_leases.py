"""Leases of several processes in one Redis, and how commits respect them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from memory.adapters.redis import Link, RedisPathLeases, RedisTreeStore, leases
from memory.errors import LeaseBusyError
from memory.model import ROOT, NodeId
from memory.ports.leases import Lease
from memory.ports.store import Applied, Stale
from tests.fakes.change_sets import TREE, change_set, expand, expect, insert, move, rewrite, summary, tree_info
from tests.integration.redis.conftest import Connect

pytestmark = pytest.mark.real_time
MINUTE = timedelta(minutes=1)
NOW = timedelta(0)
S = NodeId("s")


@pytest.fixture
async def grown(store: RedisTreeStore) -> RedisTreeStore:
    await store.apply(change_set(summary("s")))
    await store.apply(insert("a", "s"))
    return store


async def take(link: Link, shared: str = "", exclusive: str = "", *, ttl: timedelta = MINUTE, wait: timedelta = NOW) -> Lease:
    names = ([NodeId(name) for name in names.split()] for names in (shared, exclusive))
    shared_nodes, exclusive_nodes = names
    return await RedisPathLeases(link).acquire(TREE, shared=shared_nodes, exclusive=exclusive_nodes, ttl=ttl, wait=wait)


async def test_two_processes_keep_each_other_out(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "CHECK_IN", MINUTE)
    monkeypatch.setattr(leases, "GONE_AFTER", 2 * MINUTE)
    first, second = await connect(), await connect()
    lease = await take(first, ROOT, "s")
    with pytest.raises(LeaseBusyError):
        await take(second, "s")
    await take(second, ROOT)
    waiting = asyncio.create_task(take(second, "", "s", wait=MINUTE))
    await asyncio.sleep(0.05)
    await RedisPathLeases(first).release(lease)
    assert (await asyncio.wait_for(waiting, 30)).token > lease.token, "whoever releases wakes who waits"


@pytest.mark.parametrize("held", ["shared", "exclusive"])
async def test_a_commit_does_not_spoil_the_plan_of_who_has_a_lease(grown: RedisTreeStore, link: Link, held: str) -> None:
    lease = await (take(link, "s") if held == "shared" else take(link, "", "s"))
    for changes in (insert("b", "s"), expand("a", "c", "t", "s"), change_set(move("a", "s", ROOT, 1))):
        assert await grown.apply(changes) == Stale(nodes=(S,), seq=2)
    assert isinstance(await grown.apply(insert("elsewhere")), Applied)
    assert isinstance(await grown.apply(change_set(rewrite("s"), expects=[expect("s", version=1)])), Applied), "it is paid for"
    assert isinstance(await grown.apply(insert("b", "s"), lease=lease), Applied)
    await RedisPathLeases(link).release(lease)
    assert isinstance(await grown.apply(insert("d", "s")), Applied)


async def test_who_shares_a_node_with_another_may_not_change_it(grown: RedisTreeStore, link: Link) -> None:
    mine, other = await take(link, "s"), await take(link, "s")
    assert await grown.apply(insert("b", "s"), lease=mine) == Stale(nodes=(S,), seq=2)
    await RedisPathLeases(link).release(other)
    assert isinstance(await grown.apply(insert("b", "s"), lease=mine), Applied)


async def test_a_lease_that_ended_keeps_nobody_out(grown: RedisTreeStore, link: Link) -> None:
    await take(link, "", "s", ttl=timedelta(milliseconds=50))
    assert isinstance(await grown.apply(insert("b", "s")), Stale)
    await asyncio.sleep(0.08)
    assert isinstance(await grown.apply(insert("b", "s")), Applied)
    await take(link, "", "s")


async def test_that_leases_bind_is_a_setting(grown: RedisTreeStore, connect: Connect) -> None:
    free = await connect(leases_bind=False)
    await take(free, "", "s")
    assert isinstance(await RedisTreeStore(free).apply(insert("b", "s")), Applied)
    assert isinstance(await grown.apply(insert("c", "s")), Stale)


async def test_a_waiter_that_died_holds_up_nobody_for_long(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "GONE_AFTER", timedelta(milliseconds=200))
    monkeypatch.setattr(leases, "CHECK_IN", timedelta(milliseconds=50))
    holder = await take(link, "s")
    dead = RedisPathLeases(link)
    await dead._ask(TREE, "dead", ((), (S,)), MINUTE, queue=True)
    late = asyncio.create_task(take(link, "s", wait=MINUTE))
    await asyncio.sleep(0.05)
    assert not late.done(), "it stands behind one who wants the node alone"
    await asyncio.wait_for(late, 30)
    await RedisPathLeases(link).release(holder)


async def test_a_waiter_that_shows_itself_keeps_its_place(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "GONE_AFTER", timedelta(milliseconds=600))
    monkeypatch.setattr(leases, "CHECK_IN", timedelta(milliseconds=50))
    holder = await take(link, "", "s")
    first = asyncio.create_task(take(link, "", "s", wait=MINUTE))
    await asyncio.sleep(0.1)
    second = asyncio.create_task(take(link, "", "s", wait=MINUTE))
    await asyncio.sleep(1)
    await RedisPathLeases(link).release(holder)
    await asyncio.wait_for(first, 30)
    assert not second.done()
    second.cancel()
    await asyncio.gather(second, return_exceptions=True)


async def test_asking_again_for_the_same_waiter_gives_the_same_lease(link: Link) -> None:
    mine = RedisPathLeases(link)
    token, _ = await mine._ask(TREE, "w", ((), (S,)), MINUTE, queue=True)
    assert token
    assert await mine._ask(TREE, "w", ((), (S,)), MINUTE, queue=True) == (token, 0)


async def test_the_queue_has_a_bound(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "QUEUE_MAX", 3)
    await take(link, "", "s")
    waiting = [asyncio.create_task(take(link, "", "s", wait=MINUTE)) for _ in range(3)]
    await asyncio.sleep(0.1)
    with pytest.raises(LeaseBusyError):
        await take(link, "", "s", wait=MINUTE)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)


async def test_waiting_is_sleeping_not_asking(link: Link, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    send = link.script

    async def counted(name: str, *arguments: Any, **more: Any) -> Any:
        asked.append(name)
        return await send(name, *arguments, **more)

    monkeypatch.setattr(link, "script", counted)
    holder = await take(link, "", "s")
    waiting = asyncio.create_task(take(link, "", "s", wait=MINUTE))
    await asyncio.sleep(0.7)
    await RedisPathLeases(link).release(holder)
    await waiting
    assert asked == ["lease_acquire", "lease_acquire", "lease_release"]


async def test_nothing_is_left_when_all_have_gone(link: Link) -> None:
    held = [await take(link, "s", f"x{number}") for number in range(5)]
    doomed = [asyncio.create_task(take(link, "", "s", wait=MINUTE)) for _ in range(3)]
    await asyncio.sleep(0.05)
    for task in doomed:
        task.cancel()
    await asyncio.gather(*doomed, return_exceptions=True)
    for lease in held:
        await RedisPathLeases(link).release(lease)
    left = [key for key in link.keys(TREE).leases if await link.command("EXISTS", key)]
    assert left == [link.keys(TREE).leases[-1]], "only the last token is remembered"
    assert not await link.command("EXISTS", link.keys(TREE).wake)


async def test_a_tree_need_not_exist_to_be_leased(link: Link) -> None:
    await take(link, "", "s")
    made = await RedisTreeStore(link).create_tree(tree_info())
    assert made.seq == 0
