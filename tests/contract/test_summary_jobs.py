"""What `SummaryJobs` promises (memory/ports/jobs.py), over every adapter."""

from __future__ import annotations

import asyncio
from collections import Counter

from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob, SummaryJobs
from tests.contract.conftest import Elapse

TREE = TreeId("tree")


def nodes(names: str) -> list[NodeId]:
    return [NodeId(name) for name in names]


async def test_a_job_is_claimed_once(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("ab"))
    assert {(await jobs.claim()).node, (await jobs.claim()).node} == {"a", "b"}
    third = asyncio.create_task(jobs.claim())
    await elapse(1)
    assert not third.done()
    third.cancel()


async def test_a_claim_waits_for_a_job(jobs: SummaryJobs, elapse: Elapse) -> None:
    claim = asyncio.create_task(jobs.claim())
    await elapse(1)
    await jobs.put(TREE, nodes("a"))
    await elapse(0.1)
    assert await claim == SummaryJob(tree=TREE, node=NodeId("a"), attempt=0)


async def test_every_waiting_claim_gets_a_job(jobs: SummaryJobs, elapse: Elapse) -> None:
    claims = [asyncio.create_task(jobs.claim()) for _ in range(5)]
    await elapse(0.1)
    await jobs.put(TREE, nodes("abcde"))
    await elapse(0.1)
    assert {job.node for job in await asyncio.gather(*claims)} == set("abcde")


async def test_a_waiting_node_is_not_queued_twice(jobs: SummaryJobs, elapse: Elapse) -> None:
    for _ in range(3):
        await jobs.put(TREE, nodes("aa"))
    assert jobs.backlog() == 1
    await jobs.done(await jobs.claim())
    assert jobs.backlog() == 0
    claim = asyncio.create_task(jobs.claim())
    await elapse(1)
    assert not claim.done()
    claim.cancel()


async def test_one_worker_at_a_time_has_a_node(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"))
    job = await jobs.claim()
    await jobs.put(TREE, nodes("a"))
    await jobs.put(TREE, nodes("a"))
    second = asyncio.create_task(jobs.claim())
    await elapse(1)
    assert not second.done()
    assert jobs.backlog() == 1
    await jobs.done(job)
    await elapse(0.1)
    assert (await second).node == "a", "it was put while it was being worked on"
    await jobs.done(await second)
    assert jobs.backlog() == 0


async def test_a_node_that_was_not_put_meanwhile_is_done(jobs: SummaryJobs) -> None:
    await jobs.put(TREE, nodes("a"))
    await jobs.done(await jobs.claim())
    assert jobs.backlog() == jobs.backlog(TREE) == 0


async def test_trees_take_turns(jobs: SummaryJobs) -> None:
    await jobs.put(TreeId("busy"), [NodeId(f"n{number}") for number in range(100)])
    await jobs.put(TreeId("calm"), nodes("ab"))
    await jobs.put(TreeId("third"), nodes("a"))
    first = [await jobs.claim() for _ in range(6)]
    assert Counter(job.tree for job in first) == {"busy": 3, "calm": 2, "third": 1}
    await jobs.put(TreeId("late"), nodes("a"))
    assert "late" in {(await jobs.claim()).tree for _ in range(2)}


async def test_a_tree_that_is_refilled_does_not_starve_others(jobs: SummaryJobs) -> None:
    await jobs.put(TreeId("busy"), nodes("a"))
    await jobs.put(TreeId("calm"), nodes("abc"))
    served: Counter[str] = Counter()
    for number in range(6):
        job = await jobs.claim()
        served[job.tree] += 1
        await jobs.put(TreeId("busy"), [NodeId(f"more{number}")])
        await jobs.done(job)
    assert served["calm"] == 3


async def test_a_retried_job_comes_back_later_with_one_more_attempt(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"))
    await jobs.retry(await jobs.claim(), after=2)
    assert jobs.backlog(TREE) == 1
    claim = asyncio.create_task(jobs.claim())
    await elapse(1)
    assert not claim.done()
    await elapse(1.5)
    assert claim.done()
    assert (await claim).attempt == 1
    await jobs.retry(await claim, after=0)
    await elapse(0.1)
    job = await jobs.claim()
    assert job.attempt == 2
    await jobs.done(job)
    assert jobs.backlog() == 0


async def test_a_delayed_node_that_is_put_stays_delayed(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"))
    job = await jobs.claim()
    await jobs.put(TREE, nodes("a"))
    await jobs.retry(job, after=2)
    await jobs.put(TREE, nodes("a"))
    claim = asyncio.create_task(jobs.claim())
    await elapse(1)
    assert not claim.done()
    await elapse(1.5)
    assert (await claim).attempt == 1
    await jobs.done(await claim)
    assert jobs.backlog() == 0


async def test_delays_end_in_order_of_their_time(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("abc"))
    for after in (3, 1, 2):
        await jobs.retry(await jobs.claim(), after=after)
    order: list[str] = []

    async def work() -> None:
        while True:
            order.append((await jobs.claim()).node)

    worker = asyncio.create_task(work())
    await elapse(0.5)
    for expected in ("b", "bc", "bca"):
        await elapse(1)
        assert "".join(order) == expected
    worker.cancel()


async def test_a_shorter_delay_is_not_hidden_by_a_claim_that_sleeps_for_a_longer_one(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("ab"))
    first, second = await jobs.claim(), await jobs.claim()
    await jobs.retry(first, after=50)
    claim = asyncio.create_task(jobs.claim())
    await elapse(0.1)
    await jobs.retry(second, after=1)
    await elapse(1.5)
    assert claim.done()
    assert (await claim).node == "b"


async def test_a_cancelled_claim_loses_nothing(jobs: SummaryJobs, elapse: Elapse) -> None:
    for rounds in range(5):
        doomed = asyncio.create_task(jobs.claim())
        other = asyncio.create_task(jobs.claim())
        await elapse(0.1)
        await jobs.put(TREE, nodes("a"))
        for _ in range(rounds):
            await asyncio.sleep(0)
        doomed.cancel()
        await elapse(0.1)
        taken = [claim for claim in (doomed, other) if claim.done() and not claim.cancelled()]
        assert len(taken) == 1, "one of the two has the job"
        await jobs.done(await taken[0])
        other.cancel()
        await elapse(0.1)
        assert jobs.backlog() == 0


async def test_a_cancelled_claim_on_a_delayed_job_loses_nothing(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"))
    await jobs.retry(await jobs.claim(), after=2)
    doomed = asyncio.create_task(jobs.claim())
    await elapse(1)
    doomed.cancel()
    await elapse(1.5)
    assert (await jobs.claim()).node == "a"


async def test_the_backlog_counts_waiting_delayed_and_claimed(jobs: SummaryJobs) -> None:
    await jobs.put(TREE, nodes("abc"))
    await jobs.put(TreeId("other"), nodes("a"))
    claimed = [await jobs.claim() for _ in range(4)]
    mine = [job for job in claimed if job.tree == TREE]
    await jobs.retry(mine[0], after=100)
    await jobs.put(TREE, nodes("d"))
    await jobs.put(TREE, [mine[1].node])
    assert (jobs.backlog(), jobs.backlog(TREE), jobs.backlog(TreeId("other")), jobs.backlog(TreeId("no"))) == (5, 4, 1, 0)
    await jobs.done(mine[2])
    assert jobs.backlog(TREE) == 3


async def test_a_job_that_is_not_claimed_cannot_be_done_or_given_back(jobs: SummaryJobs) -> None:
    stranger = SummaryJob(tree=TREE, node=NodeId("a"))
    await jobs.done(stranger)
    await jobs.retry(stranger, after=0)
    assert jobs.backlog() == 0
    await jobs.put(TREE, nodes("a"))
    await jobs.done(stranger)
    assert jobs.backlog() == 1


async def test_many_workers_do_every_job_once(jobs: SummaryJobs, elapse: Elapse) -> None:
    working: set[tuple[TreeId, NodeId]] = set()
    served: Counter[tuple[TreeId, NodeId]] = Counter()

    async def work() -> None:
        while True:
            job = await jobs.claim()
            key = (job.tree, job.node)
            assert key not in working
            working.add(key)
            await asyncio.sleep(0)
            working.remove(key)
            served[key] += 1
            await (jobs.retry(job, after=1) if job.attempt == 0 and len(served) % 3 == 0 else jobs.done(job))

    workers = [asyncio.create_task(work()) for _ in range(8)]
    wanted = {(TreeId(f"t{tree}"), NodeId(f"n{node}")) for tree in range(5) for node in range(20)}
    for tree, node in sorted(wanted):
        await jobs.put(tree, [node])
        await asyncio.sleep(0)
    for _ in range(30):
        await elapse(0.5)
    assert set(served) == wanted
    assert jobs.backlog() == 0
    assert max(served.values()) <= 2
    assert not any(worker.done() for worker in workers)
    for worker in workers:
        worker.cancel()


async def test_a_job_is_about_the_latest_commit_that_put_its_node(jobs: SummaryJobs) -> None:
    await jobs.put(TREE, nodes("a"), seq=3)
    await jobs.put(TREE, nodes("a"), seq=7)
    await jobs.put(TREE, nodes("a"), seq=5)
    job = await jobs.claim()
    assert job.seq == 7
    await jobs.put(TREE, nodes("a"), seq=9)
    await jobs.put(TREE, nodes("a"), seq=8)
    await jobs.done(job)
    assert (await jobs.claim()).seq == 9


async def test_a_job_that_is_about_whatever_waits_stays_so(jobs: SummaryJobs) -> None:
    await jobs.put(TREE, nodes("a"))
    await jobs.put(TREE, nodes("a"), seq=7)
    job = await jobs.claim()
    assert job.seq == 0
    await jobs.put(TREE, nodes("a"), seq=8)
    await jobs.retry(job, after=0)
    assert (await jobs.claim()).seq == 0


async def test_a_job_that_comes_back_is_about_the_later_of_its_commits(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"), seq=3)
    job = await jobs.claim()
    await jobs.put(TREE, nodes("a"), seq=4)
    await jobs.retry(job, after=1)
    await jobs.put(TREE, nodes("a"), seq=6)
    await elapse(1.5)
    assert (await jobs.claim()).seq == 6


async def test_what_is_put_off_without_having_failed_keeps_its_attempts(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"))
    await jobs.retry(await jobs.claim(), after=0)
    await jobs.retry(await jobs.claim(), after=1, failed=False)
    await elapse(1.5)
    assert (await jobs.claim()).attempt == 1


async def test_hurrying_does_not_bring_back_what_failed(jobs: SummaryJobs, elapse: Elapse) -> None:
    await jobs.put(TREE, nodes("a"))
    await jobs.retry(await jobs.claim(), after=2)
    jobs.hurry()
    claim = asyncio.create_task(jobs.claim())
    await elapse(1)
    assert not claim.done()
    await elapse(1.5)
    assert (await claim).attempt == 1
