"""What `NodeClaims` promises (memory/ports/claims.py), over every adapter."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from memory.errors import ClaimBusyError
from memory.model import NodeId, TreeId
from memory.ports.claims import REASON_CHARACTERS_MAX, NodeClaims
from tests.contract.conftest import Elapse, Family

pytestmark = pytest.mark.real_time
TREE = TreeId("tree")
NODE = NodeId("n")
TTL = timedelta(seconds=4)


@pytest.fixture
def claims(family: Family) -> NodeClaims:
    return family.claims


async def test_one_at_a_time_has_a_node(claims: NodeClaims) -> None:
    first = await claims.claim(TREE, NODE, ttl=TTL)
    with pytest.raises(ClaimBusyError) as busy:
        await claims.claim(TREE, NODE, ttl=TTL)
    assert busy.value.retry_after is not None
    assert 0 < busy.value.retry_after <= TTL.total_seconds()
    await claims.release(first)
    assert (await claims.claim(TREE, NODE, ttl=TTL)).token != first.token


async def test_nodes_and_trees_are_claimed_apart(claims: NodeClaims) -> None:
    await claims.claim(TREE, NODE, ttl=TTL)
    await claims.claim(TREE, NodeId("other"), ttl=TTL)
    await claims.claim(TreeId("other"), NODE, ttl=TTL)


async def test_what_is_no_tree_can_be_claimed_too(claims: NodeClaims) -> None:
    held = await claims.claim(TreeId("*"), NODE, ttl=TTL)
    with pytest.raises(ClaimBusyError):
        await claims.claim(TreeId("*"), NODE, ttl=TTL)
    await claims.release(held)
    await claims.claim(TreeId("*"), NODE, ttl=TTL)


async def test_of_many_that_want_a_node_one_gets_it(claims: NodeClaims) -> None:
    asked = await asyncio.gather(*(claims.claim(TREE, NODE, ttl=TTL) for _ in range(8)), return_exceptions=True)
    assert sum(not isinstance(answer, ClaimBusyError) for answer in asked) == 1


async def test_a_claim_that_is_not_renewed_ends_by_its_time(claims: NodeClaims, elapse: Elapse) -> None:
    dead = await claims.claim(TREE, NODE, ttl=TTL)
    await elapse(4.5)
    alive = await claims.claim(TREE, NODE, ttl=TTL)
    assert not await claims.renew(dead, ttl=TTL)
    await claims.release(dead)
    assert await claims.renew(alive, ttl=TTL), "what the dead one gives back is not its own any more"


async def test_a_claim_that_is_renewed_lasts(claims: NodeClaims, elapse: Elapse) -> None:
    claim = await claims.claim(TREE, NODE, ttl=TTL)
    for _ in range(3):
        await elapse(2.5)
        assert await claims.renew(claim, ttl=TTL)
    with pytest.raises(ClaimBusyError):
        await claims.claim(TREE, NODE, ttl=TTL)


async def test_a_claim_that_ended_and_that_nobody_took_can_be_renewed(claims: NodeClaims, elapse: Elapse) -> None:
    claim = await claims.claim(TREE, NODE, ttl=TTL)
    await elapse(4.5)
    assert await claims.renew(claim, ttl=TTL)
    with pytest.raises(ClaimBusyError):
        await claims.claim(TREE, NODE, ttl=TTL)


async def test_failures_in_a_row_are_counted_until_one_succeeds(claims: NodeClaims) -> None:
    for count in (1, 2, 3):
        claim = await claims.claim(TREE, NODE, ttl=TTL)
        assert claim.failures == count - 1
        assert await claims.failed(claim, f"reason {count}") == count
    [known] = await claims.failures(TREE)
    assert (known.node, known.failures, known.reason) == (NODE, 3, "reason 3")
    assert known.at.tzinfo is not None
    await claims.done(await claims.claim(TREE, NODE, ttl=TTL))
    assert await claims.failures(TREE) == []
    assert (await claims.claim(TREE, NODE, ttl=TTL)).failures == 0


async def test_giving_back_says_nothing_about_failures(claims: NodeClaims) -> None:
    await claims.failed(await claims.claim(TREE, NODE, ttl=TTL), "once")
    claim = await claims.claim(TREE, NODE, ttl=TTL)
    await claims.release(claim)
    await claims.release(claim)
    assert [failure.failures for failure in await claims.failures(TREE)] == [1]


async def test_a_failure_counts_also_when_the_claim_had_ended(claims: NodeClaims, elapse: Elapse) -> None:
    slow = await claims.claim(TREE, NODE, ttl=TTL)
    await elapse(4.5)
    other = await claims.claim(TREE, NODE, ttl=TTL)
    assert await claims.failed(slow, "too late") == 1
    assert await claims.renew(other, ttl=TTL)


async def test_those_that_failed_most_come_first_and_reasons_are_bounded(claims: NodeClaims) -> None:
    for node, times in (("a", 1), ("b", 3), ("c", 2)):
        for _ in range(times):
            await claims.failed(await claims.claim(TREE, NodeId(node), ttl=TTL), "x" * 10_000 + "\ud83d")
    found = await claims.failures(TREE, limit=2)
    assert [failure.node for failure in found] == ["b", "c"]
    assert len(found[0].reason) == REASON_CHARACTERS_MAX
    assert await claims.failures(TreeId("nobody")) == []


async def test_half_a_surrogate_pair_is_no_obstacle(claims: NodeClaims) -> None:
    await claims.failed(await claims.claim(TREE, NODE, ttl=TTL), "half \ud83d")
    assert [failure.reason[:5] for failure in await claims.failures(TREE)] == ["half "]
