"""A tree with very many dirty nodes does not fill a summary worker, and none of its jobs is lost (P8)."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
import structlog
from numpy.typing import NDArray

from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob
from streams.acknowledging import Message
from streams.deliveries import Delivery
from streams.workers import spilling
from streams.workers.jobs import MESSAGES_A_NODE, SHARES, TakenJobs
from streams.workers.spilling import BEHIND_CROWDED, Spill
from tests.fakes.virtual_time import LoopClock, run_virtually

ROOM = 40
PARTITIONS = 3
TREE = TreeId("t")


class Worker:
    """A worker over a store in which nodes are dirty from the time on when their job is sent until a call that began later ends."""

    def __init__(
        self, *, calls: int = 4, seconds: float = 1.0, spills: bool = True, renews: bool = False, tree_max: int = 0
    ) -> None:
        self.dirty: dict[TreeId, dict[NodeId, int]] = defaultdict(dict)
        """Contributions by node."""
        self.sent_at: dict[tuple[TreeId, NodeId], float] = {}
        self.waited: dict[TreeId, list[float]] = defaultdict(list)
        self.offsets = [0] * PARTITIONS
        self.sent: list[list[tuple[TreeId, NodeId]]] = [[] for _ in range(PARTITIONS)]
        self.acknowledged: dict[int, list[int]] = defaultdict(list)
        self.renewals: set[tuple[int, int]] = set()
        """Partition and offset of the messages that stand for a whole tree."""
        self.most_held = 0
        self.calls = calls
        self.seconds = seconds
        clock = LoopClock()
        self.jobs = TakenJobs(
            InProcessSummaryJobs(clock, tree_max=tree_max),
            room=ROOM,
            before=self.nothing,
            clock=clock,
            log=structlog.stdlib.get_logger("test"),
            dirty=self.dirty_nodes if spills else None,
            renew=self.renew if renews else None,
        )

    async def nothing(self) -> None:
        """Nothing has to be sent."""

    async def dirty_nodes(self, tree: TreeId, limit: int) -> Sequence[NodeId]:
        await asyncio.sleep(0.01)
        return list(self.dirty[tree])[:limit]

    def contribute(self, tree: TreeId, node: NodeId) -> None:
        """A contribution, and its job on the topic."""
        self.dirty[tree][node] = self.dirty[tree].get(node, 0) + 1
        self.sent_at.setdefault((tree, node), asyncio.get_running_loop().time())
        self.sent[hash_of(tree, node)].append((tree, node))

    async def read(self) -> None:
        """Take what is on the topic, evenly from its partitions, as long as there is room; ends when all is taken."""
        while True:
            await self.jobs.room()
            batch = [(partition, self.offsets[partition]) for partition in range(PARTITIONS)]
            batch = [(partition, offset) for partition, offset in batch if offset < len(self.sent[partition])]
            if not batch:
                return
            for partition, offset in batch:
                tree, node = self.sent[partition][offset]
                self.offsets[partition] += 1
                delivery = Delivery(topic="jobs", partition=partition, offset=offset, key=None, value=None)
                message = Message(delivery, lambda at=(partition, offset): self.acknowledged[at[0]].append(at[1]))  # type: ignore[misc]
                self.jobs.stand(message)
                await self.jobs.take(SummaryJob(tree=tree, node=node), message, whole=(partition, offset) in self.renewals)
            self.most_held = max(self.most_held, self.jobs.backlog())

    async def call(self) -> None:
        job = await self.jobs.claim()
        taken = self.dirty[job.tree].get(job.node, 0)
        await asyncio.sleep(self.seconds)
        left = self.dirty[job.tree].get(job.node, 0) - taken
        if left:
            self.dirty[job.tree][job.node] = left
        elif self.dirty[job.tree].pop(job.node, None) is not None:
            self.waited[job.tree].append(asyncio.get_running_loop().time() - self.sent_at.pop((job.tree, job.node)))
        await self.jobs.done(job)

    async def work(self) -> None:
        while True:
            await self.call()

    async def idle(self) -> None:
        await self.read()
        while self.jobs.backlog() or any(self.dirty.values()):  # noqa: ASYNC110  # virtual time
            await asyncio.sleep(0.1)
        await asyncio.sleep(0.1)

    async def renew(self, tree: TreeId, node: NodeId) -> None:
        self.sent[hash_of(tree, NodeId(""))].append((tree, node))
        self.renewals.add((hash_of(tree, NodeId("")), len(self.sent[hash_of(tree, NodeId(""))]) - 1))

    def rebalance(self) -> int:
        """Go back to what is committed, as Faust does; returns how many messages will be read again."""
        committed = [self.committed(partition) for partition in range(PARTITIONS)]
        again = sum(self.offsets) - sum(committed)
        self.offsets = committed
        return again

    def comes_again(self) -> set[tuple[TreeId, NodeId]]:
        """What would be worked on after a crash."""
        found: set[tuple[TreeId, NodeId]] = set()
        for partition, sent in enumerate(self.sent):
            for offset in range(self.committed(partition), len(sent)):
                tree, node = sent[offset]
                found |= {(tree, each) for each in self.dirty[tree]} if (partition, offset) in self.renewals else {(tree, node)}
        return found

    def whole(self) -> bool:
        """Whether everything is acknowledged, in order."""
        return all(self.committed(partition) == self.offsets[partition] for partition in range(PARTITIONS))

    def committed(self, partition: int) -> int:
        """How many are acknowledged; they must be in order, those that came again after a rebalance behind the others."""
        found = list(dict.fromkeys(self.acknowledged[partition]))
        assert found == list(range(len(found)))
        return len(found)


def hash_of(tree: TreeId, node: NodeId) -> int:
    return sum(f"{tree}/{node}".encode()) % PARTITIONS


def test_a_tree_that_floods_has_its_share_and_every_node_is_done() -> None:
    async def main() -> None:
        worker = Worker()
        workers = [asyncio.ensure_future(worker.work()) for _ in range(worker.calls)]
        for number in range(500):
            worker.contribute(TreeId("flood"), NodeId(f"n{number}"))
        await worker.idle()
        assert worker.most_held <= ROOM // SHARES + 1
        assert not worker.dirty[TreeId("flood")]
        assert worker.whole()
        for task in workers:
            task.cancel()

    run_virtually(main())


def test_messages_of_one_node_are_not_kept_without_end() -> None:
    async def main() -> None:
        worker = Worker()
        for _ in range(1_000):
            worker.contribute(TreeId("t"), NodeId("hot"))
        await worker.read()
        assert worker.jobs.backlog() == 1
        assert sum(map(len, worker.jobs._waiting.values())) == MESSAGES_A_NODE
        await worker.call()
        assert worker.whole()

    run_virtually(main())


def waits(*, flood: bool, spills: bool = True) -> NDArray[np.float64]:
    """Seconds until calm trees' nodes are up to date, beside a tree with 50 times their dirty nodes or without."""

    async def main() -> list[float]:
        worker = Worker(spills=spills)
        workers = [asyncio.ensure_future(worker.work()) for _ in range(worker.calls)]
        reading = asyncio.ensure_future(asyncio.sleep(0))
        for second in range(60):
            if flood and second < 20:
                for number in range(25):
                    worker.contribute(TreeId("flood"), NodeId(f"n{second}-{number}"))
            if second % 2 == 0:
                worker.contribute(TreeId(f"t{second // 2 % 10}"), NodeId(f"n{second}"))
            if reading.done():
                reading = asyncio.ensure_future(worker.read())
            await asyncio.sleep(1.0)
        await reading
        await worker.idle()
        assert worker.whole()
        for task in workers:
            task.cancel()
        return [wait for tree, each in worker.waited.items() if tree != "flood" for wait in each]

    return np.array(run_virtually(main()))


def test_a_flooding_tree_makes_others_wait_no_more_than_three_times_as_long() -> None:
    alone, beside = waits(flood=False), waits(flood=True)
    assert len(beside) == len(alone) == 30
    assert np.percentile(beside, 99) <= 3 * np.percentile(alone, 99)


def test_held_in_the_order_of_the_topic_they_would() -> None:
    """That the test above can fail."""
    assert np.percentile(waits(flood=True, spills=False), 99) > 3 * np.percentile(waits(flood=False), 99)


@pytest.mark.parametrize("seed", range(20))
def test_wherever_it_dies_what_is_not_acknowledged_names_every_dirty_node(seed: int) -> None:
    """Every dirty node is named by a message that would come again."""

    async def main() -> None:
        rng = random.Random(seed)
        worker = Worker(seconds=0.5)
        workers = [asyncio.ensure_future(worker.work()) for _ in range(worker.calls)]
        reading = asyncio.ensure_future(worker.read())
        for _ in range(300):
            tree = TreeId("flood" if rng.random() < 0.8 else f"t{rng.randrange(3)}")
            worker.contribute(tree, NodeId(f"n{rng.randrange(60)}"))
            if rng.random() < 0.2:
                await asyncio.sleep(rng.random())
            if reading.done():
                reading = asyncio.ensure_future(worker.read())
            again = {job for partition, sent in enumerate(worker.sent) for job in sent[len(worker.acknowledged[partition]) :]}
            dirty = {(tree, node) for tree, nodes in worker.dirty.items() for node in nodes}
            assert dirty <= again
        await reading
        await worker.idle()
        assert worker.whole()
        for task in workers:
            task.cancel()

    run_virtually(main())


BEHIND = 60
FLOOD = TreeId("flood")


def reads(*, renews: bool, rebalances: int, seconds: float = 100.0) -> tuple[int, int]:
    """Messages sent, and read again, where a tree floods and the group shares its partitions anew now and then."""

    async def main() -> tuple[int, int]:
        rng = random.Random(rebalances)
        worker = Worker(seconds=0.3, renews=renews)
        workers = [asyncio.ensure_future(worker.work()) for _ in range(worker.calls)]
        again = 0
        end = asyncio.get_running_loop().time() + seconds
        while asyncio.get_running_loop().time() < end:
            for _ in range(rng.randrange(80)):
                worker.contribute(FLOOD, NodeId(f"n{rng.randrange(4_000)}"))
            await worker.read()
            dirty = {(tree, node) for tree, nodes in worker.dirty.items() for node in nodes}
            assert dirty <= worker.comes_again(), "a crash now would lose a job"
            if rng.random() < rebalances / seconds:
                again += worker.rebalance()
            await asyncio.sleep(1.0)
        await worker.idle()
        assert not worker.dirty[FLOOD]
        assert worker.whole()
        for task in workers:
            task.cancel()
        return sum(map(len, worker.sent)), again

    return run_virtually(main())


def test_each_rebalance_reads_a_bounded_number_of_a_flooding_trees_messages_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilling, "BEHIND_MAX", BEHIND)
    sent, again = reads(renews=True, rebalances=10)
    assert sent > 10 * BEHIND
    # What is behind the newest that stands for all, and what was on the topic before it: it comes after that.
    assert 0 < again <= 10 * 3 * BEHIND


def test_without_renewal_each_reads_nearly_all_of_them_again() -> None:
    """That the test above can fail."""
    sent, again = reads(renews=False, rebalances=10)
    assert again > 2 * sent


def test_one_that_stands_for_all_is_worked_on_where_nothing_of_the_tree_is_in_hand() -> None:
    async def main() -> None:
        worker = Worker()
        for number in range(3):
            worker.dirty[TREE][NodeId(f"n{number}")] = 1
            worker.sent_at[TREE, NodeId(f"n{number}")] = 0.0
        await worker.renew(TREE, NodeId("n0"))
        await worker.read()
        assert not worker.whole()
        for _ in range(3):
            await worker.call()
        assert not worker.dirty[TREE]
        assert worker.whole()

    run_virtually(main())


def pinned() -> tuple[Spill, Message]:
    spill, message = Spill(), Message(Delivery(topic="jobs", partition=0, offset=0, key=None, value=None), lambda: None)
    assert not spill.add(TREE, message)
    spill.begin(TREE)
    return spill, message


def test_a_call_that_began_before_the_reading_settles_nothing() -> None:
    spill, message = pinned()
    spill.found(TREE, [NodeId("a")], whole=True, claimed=[NodeId("a")])
    assert spill.done(TREE, NodeId("a")) == ()
    assert spill.done(TREE, NodeId("a")) == [message]
    assert TREE not in spill


def test_one_that_comes_again_begins_after_it() -> None:
    spill, message = pinned()
    spill.found(TREE, [NodeId("a")], whole=True, claimed=[NodeId("a")])
    spill.retried(TREE, NodeId("a"))
    assert spill.done(TREE, NodeId("a")) == [message]


def test_what_came_during_the_reading_waits_for_the_next() -> None:
    spill, message = pinned()
    later = Message(Delivery(topic="jobs", partition=0, offset=1, key=None, value=None), lambda: None)
    spill.add(TREE, later)
    spill.found(TREE, [], whole=True, claimed=[])
    assert spill.settled(TREE) == [message]
    assert spill.wants(TREE)
    spill.begin(TREE)
    spill.found(TREE, [], whole=True, claimed=[])
    assert spill.settled(TREE) == [later]
    assert not spill.wants(TREE)


def test_a_reading_that_was_not_whole_settles_nothing() -> None:
    spill, _ = pinned()
    spill.found(TREE, [NodeId("a")], whole=False, claimed=[])
    assert spill.done(TREE, NodeId("a")) == ()
    assert spill.wants(TREE)


def test_where_many_stand_behind_others_a_few_more_are_renewed() -> None:
    spill, _ = pinned()
    for offset in range(1, BEHIND_CROWDED - 1):
        spill.add(TREE, Message(Delivery(topic="jobs", partition=0, offset=offset, key=None, value=None), lambda: None))
    assert not spill.due(TREE, crowded=True), "each would send another"
    spill.add(TREE, Message(Delivery(topic="jobs", partition=0, offset=99, key=None, value=None), lambda: None))
    assert spill.due(TREE, crowded=True)
    assert not spill.due(TREE)
