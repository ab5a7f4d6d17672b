"""What `PathLeases` promises (memory/ports/leases.py), over every adapter."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

import pytest

from memory.errors import LeaseBusyError, LeaseLostError
from memory.model import NodeId, TreeId
from memory.ports.leases import Lease, PathLeases
from tests.contract.conftest import Elapse

pytestmark = pytest.mark.real_time
TREE = TreeId("tree")
NOW = timedelta(0)

Acquire = Callable[..., Coroutine[Any, Any, Lease]]


@pytest.fixture
def acquire(leases: PathLeases) -> Acquire:
    async def take(shared: str = "", exclusive: str = "", *, ttl: float = 60, wait: float = 0, tree: TreeId = TREE) -> Lease:
        return await leases.acquire(
            tree,
            shared=[NodeId(name) for name in shared],
            exclusive=[NodeId(name) for name in exclusive],
            ttl=timedelta(seconds=ttl),
            wait=timedelta(seconds=wait),
        )

    return take


async def test_any_number_share_a_node(acquire: Acquire, leases: PathLeases) -> None:
    held = [await acquire("ab") for _ in range(5)]
    assert all([await leases.holds(lease) for lease in held])
    assert set(held[0].shared) == {"a", "b"}
    assert held[0].exclusive == ()


@pytest.mark.parametrize(
    ("first", "second", "fits"),
    [
        (("a", ""), ("a", ""), True),
        (("a", ""), ("", "a"), False),
        (("", "a"), ("a", ""), False),
        (("", "a"), ("", "a"), False),
        (("", "a"), ("", "b"), True),
        (("ab", "c"), ("a", "d"), True),
        (("ab", "c"), ("ac", "d"), False),
        (("ab", "c"), ("x", "b"), False),
        (("a", "a"), ("a", ""), False),
        (("", ""), ("", "a"), True),
    ],
)
async def test_who_keeps_out_whom(
    acquire: Acquire, leases: PathLeases, first: tuple[str, str], second: tuple[str, str], fits: bool
) -> None:
    lease = await acquire(*first)
    if fits:
        await acquire(*second)
        return
    with pytest.raises(LeaseBusyError, match="tree"):
        await acquire(*second)
    await leases.release(lease)
    await acquire(*second)


async def test_a_node_named_in_both_is_exclusive(acquire: Acquire) -> None:
    lease = await acquire("ab", "a")
    assert (lease.shared, lease.exclusive) == (("b",), ("a",))


async def test_all_nodes_or_none(acquire: Acquire) -> None:
    await acquire("", "a")
    with pytest.raises(LeaseBusyError):
        await acquire("x", "ya")
    await acquire("", "xy")  # the refused lease left nothing behind


async def test_trees_are_apart(acquire: Acquire) -> None:
    await acquire("", "a")
    await acquire("", "a", tree=TreeId("other"))


async def test_tokens_only_grow(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    tokens = []
    for number in range(6):
        lease = await acquire("a", ttl=1)
        tokens.append(lease.token)
        if number % 2:
            await leases.release(lease)
        else:
            await elapse(1.5)
    assert tokens == sorted(set(tokens))


async def test_a_lease_ends_by_itself(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    lease = await acquire("", "a", ttl=2)
    await elapse(1)
    assert await leases.holds(lease)
    with pytest.raises(LeaseBusyError):
        await acquire("a")
    await elapse(1.5)
    assert not await leases.holds(lease)
    taken = await acquire("", "a")
    assert taken.token > lease.token
    with pytest.raises(LeaseLostError):
        await leases.renew(lease, ttl=timedelta(seconds=9))
    await leases.release(lease)
    assert await leases.holds(taken), "what ended before cannot end another's lease"


async def test_a_renewed_lease_lives_from_now(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    lease = await acquire("", "a", ttl=2)
    for _ in range(3):
        await elapse(1.5)
        await leases.renew(lease, ttl=timedelta(seconds=2))
    await elapse(1)
    assert await leases.holds(lease)
    await leases.renew(lease, ttl=timedelta(seconds=1))
    await elapse(1.5)
    assert not await leases.holds(lease)


async def test_a_released_lease_has_ended(acquire: Acquire, leases: PathLeases) -> None:
    lease = await acquire("", "a")
    await leases.release(lease)
    await leases.release(lease)
    assert not await leases.holds(lease)
    with pytest.raises(LeaseLostError):
        await leases.renew(lease, ttl=timedelta(seconds=9))
    await acquire("", "a")


async def test_a_waiter_gets_its_turn_when_the_holder_leaves(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    holder = await acquire("", "a")
    waiter = asyncio.create_task(acquire("", "a", wait=10))
    await elapse(1)
    assert not waiter.done()
    await leases.release(holder)
    await elapse(0.5)
    assert (await waiter).token > holder.token


async def test_a_waiter_gets_its_turn_when_the_holders_time_is_over(acquire: Acquire, elapse: Elapse) -> None:
    await acquire("", "a", ttl=2)
    waiter = asyncio.create_task(acquire("", "a", wait=10))
    await elapse(1)
    assert not waiter.done()
    await elapse(1.5)
    assert waiter.done()
    await waiter


async def test_a_wait_is_bounded(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    holder = await acquire("", "a")
    waiter = asyncio.create_task(acquire("", "a", wait=2))
    await elapse(1)
    assert not waiter.done()
    await elapse(1.5)
    with pytest.raises(LeaseBusyError, match="2 s"):
        await waiter
    await leases.release(holder)
    await acquire("", "a")  # nothing is held by who gave up


async def test_a_renewal_makes_waiters_wait_on(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    holder = await acquire("", "a", ttl=2)
    waiter = asyncio.create_task(acquire("", "a", wait=30))
    await elapse(1)
    await leases.renew(holder, ttl=timedelta(seconds=4))
    await elapse(2)
    assert not waiter.done()
    await elapse(2.5)
    assert waiter.done()
    await waiter


async def test_waiters_are_served_in_order_of_arrival(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    holder = await acquire("", "a")
    order: list[int] = []

    async def wait(number: int) -> None:
        lease = await acquire("", "a", wait=100)
        order.append(number)
        await leases.release(lease)

    waiters = []
    for number in range(8):
        waiters.append(asyncio.create_task(wait(number)))
        await elapse(0.1)  # arrival is when the request does: at once, they would race
    await leases.release(holder)
    await elapse(1)
    await asyncio.gather(*waiters)
    assert order == list(range(8))


async def test_sharers_do_not_overtake_who_waits_to_be_alone(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    holder = await acquire("a")
    alone = asyncio.create_task(acquire("", "a", wait=100))
    await elapse(0.1)
    late = asyncio.create_task(acquire("a", wait=100))
    await elapse(0.1)
    assert not late.done()
    await acquire("", "b")  # other nodes are free to have
    await leases.release(holder)
    await elapse(0.1)
    assert alone.done()
    assert not late.done()
    await leases.release(await alone)
    await elapse(0.1)
    assert (await late).token > (await alone).token


async def test_who_waits_to_be_alone_does_not_overtake_who_waits_to_share(
    acquire: Acquire, leases: PathLeases, elapse: Elapse
) -> None:
    holder = await acquire("", "b")
    early = asyncio.create_task(acquire("a", "b", wait=100))
    await elapse(0.1)
    late = asyncio.create_task(acquire("", "a", wait=100))
    await elapse(0.1)
    assert not late.done(), "though nobody holds it yet"
    await leases.release(holder)
    await elapse(0.1)
    assert early.done()
    assert not late.done()
    await leases.release(await early)
    await elapse(0.1)
    assert (await late).token > (await early).token


@pytest.mark.parametrize("gone", ["cancelled", "out of time"])
async def test_when_a_waiter_goes_away_those_behind_it_move_up(
    acquire: Acquire, leases: PathLeases, elapse: Elapse, gone: str
) -> None:
    holder = await acquire("a")
    alone = asyncio.create_task(acquire("", "a", wait=1))
    await elapse(0.1)
    late = asyncio.create_task(acquire("a", wait=100))
    await elapse(0.1)
    if gone == "cancelled":
        alone.cancel()
        await elapse(0.1)
    else:
        await elapse(1.5)
    assert late.done()
    with pytest.raises(asyncio.CancelledError if gone == "cancelled" else LeaseBusyError):
        await alone
    await leases.release(holder)
    await leases.release(await late)
    await acquire("", "a")


async def test_who_is_cancelled_as_it_is_served_holds_nothing(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    for rounds in range(4):
        holder = await acquire("", "a")
        waiter = asyncio.create_task(acquire("", "a", wait=100))
        await elapse(0.1)
        await leases.release(holder)
        for _ in range(rounds):
            await asyncio.sleep(0)
        if not waiter.cancel():
            await leases.release(await waiter)
        await asyncio.gather(waiter, return_exceptions=True)
        if not waiter.cancelled():
            await leases.release(waiter.result())
        await leases.release(await acquire("", "a"))


async def test_under_load_no_two_hold_what_excludes(acquire: Acquire, leases: PathLeases, elapse: Elapse) -> None:
    alone: set[str] = set()
    sharing: dict[str, int] = {}
    served = 0

    async def work(number: int) -> None:
        nonlocal served
        shared, exclusive = ("rs" if number % 3 else "r"), "abcr"[number % 4]
        lease = await acquire(shared, exclusive, wait=1000)
        mine = set(shared) - {exclusive}
        assert exclusive not in alone
        assert not sharing.get(exclusive)
        assert not mine & alone
        alone.add(exclusive)
        for name in mine:
            sharing[name] = sharing.get(name, 0) + 1
        await asyncio.sleep(0)
        alone.remove(exclusive)
        for name in mine:
            sharing[name] -= 1
        served += 1
        await leases.release(lease)

    tasks = [asyncio.create_task(work(number)) for number in range(60)]
    for _ in range(100):
        await elapse(0.1)
        if served == 60:
            break
    await asyncio.gather(*tasks)
    assert served == 60
