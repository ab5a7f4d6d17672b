"""Answers that are lost, servers that die, fail over, forget scripts, or are full: what was acknowledged stands, once."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from memory.adapters.redis import Link, RedisPathLeases, RedisSettings, RedisTreeStore
from memory.changes import ChangeSet
from memory.errors import LeaseLostError, SettingError, StoreDamagedError, StoreUnavailableError, StoreVersionError
from memory.model import ROOT, NodeId
from memory.ports.store import Applied, Seen
from tests.conftest import started
from tests.fakes.change_sets import TREE, change_set, expect, insert, rewrite, summary, tree_info
from tests.integration.redis.conftest import Connect
from tests.servers import redis
from tests.servers.proxy import Proxy, in_front_of

SOON = timedelta(seconds=0.2)


async def counts(store: RedisTreeStore) -> tuple[int, int, int, int]:
    stats = await store.stats(TREE)
    return stats.seq, stats.leaves, stats.events, stats.rewrites


async def behind(proxy: Proxy, connect: Connect, **settings: object) -> RedisTreeStore:
    """A store whose answers can be lost; the server knows all scripts."""
    store = RedisTreeStore(await connect(f"redis://127.0.0.1:{proxy.port}/0", **settings))
    await store.create_tree(tree_info())
    await store.apply(change_set(summary("s")))
    await store.stats(TREE)
    return store


@pytest.mark.parametrize("answers", [1, 3])
@pytest.mark.parametrize("with_event", [True, False])
async def test_a_commit_whose_answer_is_lost_is_applied_once_and_acknowledged(
    redis_server: redis.RedisServer, connect: Connect, answers: int, with_event: bool
) -> None:
    async with in_front_of(redis_server.port) as proxy:
        store = await behind(proxy, connect)
        changes: ChangeSet = insert("a", "s") if with_event else change_set(rewrite("s"), expects=[expect("s", version=1)])
        proxy.lose(answers)
        assert await store.apply(changes) == Applied(seq=2)
        assert proxy.lost == answers
        assert await counts(store) == (2, int(with_event), int(with_event), int(not with_event))


async def test_a_lost_answer_is_found_below_the_commits_of_others(redis_server: redis.RedisServer, connect: Connect) -> None:
    async with in_front_of(redis_server.port) as proxy:
        store = await behind(proxy, connect)
        other = RedisTreeStore(await connect(f"redis://127.0.0.1:{redis_server.port}/0"))
        proxy.lose(4)  # each attempt's answer, for a third of a second
        mine = asyncio.create_task(store.apply(insert("mine", "s")))
        while not proxy.lost:  # noqa: ASYNC110  # then the server has done it
            await asyncio.sleep(0.01)
        for number in range(20):
            assert isinstance(await other.apply(insert(f"other{number}", "s")), Applied)
        assert await mine == Applied(seq=2)


async def test_without_patience_the_caller_asks_again_and_is_told(redis_server: redis.RedisServer, connect: Connect) -> None:
    async with in_front_of(redis_server.port) as proxy:
        store = await behind(proxy, connect, patience=timedelta(0))
        proxy.lose(1)
        with pytest.raises(StoreUnavailableError):
            await store.apply(insert("a"))
        answer = await store.apply(insert("a"))
        assert isinstance(answer, Seen)
        assert await counts(store) == (2, 1, 1, 0)


async def test_the_same_batch_of_another_worker_is_not_taken_for_ones_own(connect: Connect) -> None:
    first, second = RedisTreeStore(await connect()), RedisTreeStore(await connect())
    await first.create_tree(tree_info())
    assert isinstance(await first.apply(insert("a")), Applied)
    assert isinstance(await second.apply(insert("a")), Seen)


async def test_scripts_that_the_server_forgot_are_sent_again(store: RedisTreeStore, link: Link) -> None:
    for number in range(3):
        await link.command("SCRIPT", "FLUSH")
        assert await store.apply(insert(f"n{number}")) == Applied(seq=number + 1)
    assert (await store.stats(TREE)).leaves == 3
    assert link.retries == 0, "not knowing a script is no outage"


async def test_a_server_without_memory_writes_nothing_and_still_reads(tmp_path: Path, connect: Connect) -> None:
    with started(redis.single(tmp_path)) as server:
        link = await connect(server.url, patience=SOON)
        store = RedisTreeStore(link)
        await store.create_tree(tree_info())
        await store.apply(insert("a"))
        await link.command("CONFIG", "SET", "maxmemory", "100kb")
        with pytest.raises(StoreUnavailableError, match="memory"):
            await store.apply(insert("b"))
        assert await counts(store) == (1, 1, 1, 0)
        assert len((await store.skeleton(TREE)).ids) == 2
        await link.command("CONFIG", "SET", "maxmemory", "0")
        assert await store.apply(insert("b")) == Applied(seq=2)


async def test_what_was_acknowledged_survives_kill_and_restart(tmp_path: Path, connect: Connect) -> None:
    with started(redis.single(tmp_path, appendfsync="always")) as server:
        store = RedisTreeStore(await connect(server.url, patience=timedelta(seconds=20)))
        await store.create_tree(tree_info())
        acknowledged: set[str] = set()
        stop = asyncio.Event()

        async def write(writer: int) -> None:
            number = 0
            while not stop.is_set():
                name = f"{writer}-{number}"
                assert isinstance(await store.apply(insert(name)), Applied)
                acknowledged.add(f"e-{name}")
                number += 1

        writers = [asyncio.create_task(write(number)) for number in range(4)]
        for _ in range(3):
            await twenty_more(acknowledged)
            server.kill()
            await asyncio.to_thread(server.start)
        await twenty_more(acknowledged)
        stop.set()
        await asyncio.gather(*writers)
        events = await store.events(TREE)
        assert set(events) == acknowledged
        assert (await store.stats(TREE)).leaves == len(events)
        log = await store.changes(TREE, 0, limit=100_000)
        assert [entry.seq for entry in log] == list(range(1, len(log) + 1))
        assert sorted(event for entry in log for event in entry.events) == sorted(acknowledged)


async def twenty_more(growing: set[str]) -> None:
    goal = len(growing) + 20
    while len(growing) < goal:  # noqa: ASYNC110  # what is waited for is a count
        await asyncio.sleep(0.005)


@pytest.mark.real_time
async def test_while_the_server_is_away_calls_fail_in_bounded_time(tmp_path: Path, connect: Connect) -> None:
    with started(redis.single(tmp_path, appendfsync="always")) as server:
        store = RedisTreeStore(await connect(server.url, patience=SOON))
        await store.create_tree(tree_info())
        server.kill()
        begun = time.monotonic()
        with pytest.raises(StoreUnavailableError, match="cannot be reached"):
            await store.apply(insert("a"))
        assert time.monotonic() - begun < 10 * SOON.total_seconds()
        server.start()
        assert await store.apply(insert("a")) == Applied(seq=1)


@pytest.mark.real_time
async def test_a_commit_waits_for_replicas_and_outlives_a_failover(tmp_path: Path, connect: Connect) -> None:
    with started(redis.with_replica(tmp_path)) as (master, replica):
        link = await connect(master.url, wait_replicas=1, wait=timedelta(seconds=5), patience=SOON)
        store = RedisTreeStore(link)
        await store.create_tree(tree_info())
        for number in range(20):
            assert await store.apply(insert(f"n{number}")) == Applied(seq=number + 1)
        lease = await RedisPathLeases(link).acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=60), wait=timedelta(0))
        await link.command("WAIT", 1, 1000)
        replica.say("REPLICAOF", "NO", "ONE")
        master.kill()
        after = RedisTreeStore(await connect(replica.url, patience=SOON))
        assert set(await after.events(TREE)) == {f"e-n{number}" for number in range(20)}
        again = await after.apply(insert("n19"))
        assert isinstance(again, Seen)
        leases = RedisPathLeases(await connect(replica.url))
        await leases.release(lease)
        with pytest.raises(LeaseLostError):
            await after.apply(insert("late"), lease=lease)
        later = await leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=1), wait=timedelta(0))
        assert later.token > lease.token


@pytest.mark.real_time
async def test_a_commit_that_too_few_replicas_have_is_not_acknowledged(tmp_path: Path, connect: Connect) -> None:
    with started(redis.with_replica(tmp_path)) as (master, replica):
        patient = RedisTreeStore(
            await connect(master.url, wait_replicas=1, wait=timedelta(seconds=1), patience=timedelta(seconds=30))
        )
        store = RedisTreeStore(await connect(master.url, wait_replicas=1, wait=timedelta(milliseconds=100), patience=timedelta(0)))
        await store.create_tree(tree_info())
        assert await patient.apply(insert("a")) == Applied(seq=1)
        replica.stop()
        with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
            await store.apply(insert("b"))
        with pytest.raises(StoreUnavailableError, match="0 of 1 replicas"):
            await store.apply(insert("b"))  # it stands, and is still not safe
        await asyncio.to_thread(replica.start)
        assert isinstance(await patient.apply(insert("b")), Seen)
        assert await counts(patient) == (2, 2, 2, 0)


async def test_tokens_grow_also_when_the_server_lost_them(link: Link) -> None:
    leases = RedisPathLeases(link)
    first = await leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=60), wait=timedelta(0))
    await link.command("UNLINK", *link.keys(TREE).leases)
    assert not await leases.holds(first)
    second = await leases.acquire(TREE, exclusive=[ROOT], ttl=timedelta(seconds=60), wait=timedelta(0))
    assert second.token > first.token


async def test_a_key_of_somebody_else_is_told(link: Link, store: RedisTreeStore) -> None:
    await link.command("DEL", link.keys(TREE).children(NodeId("s")))
    await store.apply(change_set(summary("s")))
    await link.command("SET", link.keys(TREE).children(NodeId("s")), "not ours")
    with pytest.raises(StoreDamagedError, match="another prefix"):
        await store.children(TREE, NodeId("s"))


async def test_a_newer_layout_is_refused(link: Link, connect: Connect) -> None:
    await link.command("SET", f"{link.settings.prefix}:format", 2)
    with pytest.raises(StoreVersionError, match="newer Banyan"):
        await connect()


async def test_a_wrong_password_is_a_setting_not_an_outage(tmp_path: Path) -> None:
    with started(redis.single(tmp_path)) as server:
        server.say("CONFIG", "SET", "requirepass", "right")
        for address in (f"redis://127.0.0.1:{server.port}", f"redis://:wrong@127.0.0.1:{server.port}"):
            with pytest.raises(SettingError, match="password") as caught:
                await Link.open(RedisSettings(url=address))
            assert "wrong@" not in str(caught.value)


async def test_a_writer_that_is_cancelled_stops(store: RedisTreeStore) -> None:
    """At whatever moment: the client's sending forgets a cancellation that comes as it ends, before Python 3.12."""

    async def write(writer: int) -> None:
        for number in range(1_000_000):
            await store.apply(insert(f"{writer}-{number}"))

    for writer in range(150):
        task = asyncio.create_task(write(writer))
        await asyncio.sleep(0.0005 * (writer % 8))
        task.cancel()
        await asyncio.wait([task], timeout=60)
        assert task.cancelled()


@pytest.mark.parametrize("since", [0, 1, 3])
async def test_a_process_that_saw_commits_that_were_lost_is_told_once(store: RedisTreeStore, connect: Connect, since: int) -> None:
    """As after a failover to a replica that lagged: the numbers are given again, to other commits."""
    for number in range(5):
        await store.apply(insert(f"n{number}"))
    await store.changes(TREE, 0)
    link = await connect()
    keys = link.keys(TREE)
    for seq in (4, 5):
        await link.command("XDEL", keys.log, f"{seq}-0")
    await link.command("XSETID", keys.log, "3-0")
    ((_, fields),) = await link.command("XRANGE", keys.log, "3-0", "3-0")
    await link.command("HSET", keys.state, "seq", 3, "head", fields[b"x"])
    other = RedisTreeStore(link)
    for number in range(since):
        assert isinstance(await other.apply(insert(f"later{number}")), Applied)
    with pytest.raises(StoreUnavailableError, match="commit 5 is gone"):
        await (store.apply(insert("z")) if since == 1 else store.changes(TREE, 5))
    assert len(await store.changes(TREE, 0)) == 3 + since
    assert isinstance(await store.apply(insert("z")), Applied)
    assert isinstance(await other.apply(insert("y")), Applied), "who has seen nothing that was lost is not told"
    assert (store.losses(TREE), other.losses(TREE)) == (1, 0), "those who were not told can see it"
