"""
The workers' own loops over a simulated broker, in virtual time, with everything that can go wrong drawn from one seed.

Ingest and summary workers as they are (`streams.agents`, `streams.workers`, `streams.runtime`), the real services and tables; the
broker acknowledges as the framework does. Around every operation on store, models and broker a worker may be delayed, stopped for
longer than its leases last, or die; the group is shared anew at any time, also under a batch in hand; records come twice, with
other texts, or are none; jobs and dead letters arrive and their acknowledgement does not.

    python -m tests.simulation.pipeline 17     prints the history of seed 17
"""

from __future__ import annotations

import asyncio
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from memory.adapters.embedded.claims import InProcessClaims
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.errors import RecordError
from memory.model import EventId, NodeKind
from memory.service.ingest import Ingest
from memory.service.pool import SummaryPool
from memory.service.weighing import Weighing
from streams.agents.batches import Batches
from streams.agents.consuming import consume
from streams.agents.early import Early
from streams.agents.opinions import Opinions
from streams.dead_letters import DeadLetters, DeadLetterShare, decode_envelope
from streams.events import decode, encode
from streams.job_topic import JobTopic
from streams.pipelines import Ingesting, Summarizing
from streams.producing import Message
from streams.retrying import Retry
from streams.runtime import Runtime
from streams.setting_tables import KafkaSettings, WorkerSettings
from streams.settings import Settings
from streams.topics import record_key, topics
from streams.workers.jobs import TakenJobs
from streams.workers.summaries import _consume as consume_jobs
from streams.workers.waiting import Waiting
from tests.fakes.erasures import erasing
from tests.fakes.virtual_time import LoopClock, run_virtually
from tests.fakes.world import TREE, turn
from tests.simulation.broker import Group, Member, Place, SimulatedBroker, SimulatedProducer
from tests.simulation.simulation import LIVES_MAX, SETTINGS, Life, Simulation, _life, _tracked, template

KAFKA = KafkaSettings(prefix="sim", instance=None)
NAMES = topics(KAFKA)
PARTITIONS = 3
GRACE = 20.0  # seconds
LIMIT = 7_200.0
"""Simulated seconds until everything must be done."""
RUBBISH = (b"garbage", b'{"tree":"tree","id":"x","text":""}', b"")


def _kept_in(lines: list[dict[str, Any]]) -> structlog.stdlib.BoundLogger:
    """A logger that says nothing aloud."""

    def keep(_logger: object, _name: str, event: Any) -> Any:
        lines.append(dict(event))
        raise structlog.DropEvent

    logger: structlog.stdlib.BoundLogger = structlog.wrap_logger(
        None, processors=[keep], wrapper_class=structlog.stdlib.BoundLogger
    )
    return logger


@dataclass(frozen=True)
class _Passed:
    """A stream as an agent sees it."""

    member: Member
    topic: str

    def noack_take(self, most: int, within: float) -> Any:
        del within
        return self.member.noack_take(self.topic, most)


class PipelineSimulation(Simulation):
    """One seed."""

    def __post_init__(self) -> None:
        super().__post_init__()
        drawn = self.drawn
        self.broker = SimulatedBroker(drawn, partitions=PARTITIONS)
        self.ingesters = self.broker.group("ingest", NAMES.turns.name)
        self.summarizers = self.broker.group("summaries", NAMES.summaries.name)
        self.claims = InProcessClaims(LoopClock())
        self.first: dict[str, str] = {}
        """Of each event, the text that came first."""
        self.rubbish = 0
        self.settled = False
        self.met: Counter[str] = Counter()
        self.lines: list[dict[str, Any]] = []
        """What the workers logged."""
        self.log = _kept_in(self.lines)
        worker = WorkerSettings(batch_records=drawn.randint(1, 12), jobs_max=drawn.choice([3, 20, 1_000]))
        self.settings = Settings(kafka=KAFKA, worker=worker, memory=SETTINGS)

    async def run(self) -> None:
        """Records, workers and trouble; until all is in, fresh and acknowledged."""
        random.seed(self.seed)
        loop = asyncio.get_running_loop()
        loop.set_task_factory(_tracked)
        slots = [
            *(self._slot("ingest", number) for number in range(self.drawn.randint(1, 3))),
            *(self._slot("summaries", number) for number in range(self.drawn.randint(1, 2))),
        ]
        self.watcher = Life(self, "watcher", mortal=False)
        try:
            async with asyncio.TaskGroup() as group:
                for slot in slots:
                    group.create_task(slot)
                sharing = group.create_task(self._share_anew())
                offering = group.create_task(self._offer())
                await offering
                await self._until_settled()
                sharing.cancel()
            await self._look_at_the_end()
        finally:
            self.watcher.close()

    async def _offer(self) -> None:
        """Put records on the topic, at their own pace."""
        for number in range(self.drawn.randint(4, 24)):
            for copy in range(self.drawn.choice([1, 1, 1, 2])):
                other = copy and self.drawn.random() < 0.3
                record = turn(number, "another text" if other else None, conversation=f"c{number % 5}")
                self.first.setdefault(record.id, record.text)
                self.broker.append(Message(topic=NAMES.turns.name, value=encode(record), key=record_key(record)))
            if self.drawn.random() < 0.05:
                self.rubbish += 1
                self.broker.append(Message(topic=NAMES.turns.name, value=self.drawn.choice(RUBBISH), key=b"rubbish"))
            if self.drawn.random() < 0.4:
                await asyncio.sleep(self.drawn.expovariate(1.0))

    async def _until_settled(self) -> None:
        while (left := await self._left()) and self._time() < LIMIT:  # noqa: ASYNC110
            await asyncio.sleep(1.0)
        self.settled = True
        assert not left, f"after {LIMIT:g} s: {left}"

    async def _left(self) -> str:
        lags = self.broker.lag("ingest"), self.broker.lag("summaries")
        if any(lags):
            return f"{lags[0]} records and {lags[1]} jobs are not acknowledged"
        stats = await self.watcher.world.store.stats(TREE)
        return f"{stats.dirty} summaries are pending and no job is left" if stats.dirty else ""

    async def _share_anew(self) -> None:
        """The group is shared anew: somebody is thrown out for a while, or it just happens."""
        while True:
            await asyncio.sleep(self.drawn.expovariate(0.1))
            group = self.drawn.choice([self.ingesters, self.summarizers])
            if group.members and self.weather.dies:
                kept = [member for member in group.members if self.drawn.random() < 0.7] or group.members[:1]
                self.broker.share(group, kept)

    def _time(self) -> float:
        return asyncio.get_running_loop().time()

    async def _slot(self, role: str, number: int) -> None:
        """What an orchestrator does: start again what has ended."""
        for count in range(1_000):
            if self.settled:
                return
            life = WorkerLife(self, f"{role}{number}.{count}", role, mortal=count < LIVES_MAX)
            self.lives += 1
            await life.spent(life.serve())
            life.close()
            self.met["died" if life.dead else "ended in order"] += 1
            if life.dead:
                # The group notices after the session timeout, another one may have started by then.
                asyncio.get_running_loop().call_later(self.drawn.uniform(0, 10), life.member.leave)
            await asyncio.sleep(self.drawn.uniform(0, 8))

    async def before_commit(self, place: Place, before: int, after: int) -> None:
        """Every record below a committed offset must be in the store, everything else among the dead letters."""
        if place[0] != NAMES.turns.name:
            return
        self.met["offsets committed"] += 1
        wanted: dict[EventId, int] = {}
        for offset in range(before, after):
            try:
                wanted[EventId(decode(self.broker.messages[place][offset].value or b"", limits=SETTINGS.ingest).id)] = offset
            except RecordError:
                assert (place, offset) in self._letters(), f"{place}@{offset} is no record, and acknowledged without a letter"
        if not wanted:
            return  # nothing of the tree may have come yet
        # Asked from outside any life: nothing happens to who only looks.
        life = _life.set(None)
        try:
            there = await self.watcher.world.store.receipts(TREE, list(wanted))
        finally:
            _life.reset(life)
        lost = wanted.keys() - there.keys()
        assert not lost, f"{place} is acknowledged up to {after}, and {lost} not in the store"

    def _letters(self) -> set[tuple[Place, int]]:
        found = set()
        for place in self.broker.places(NAMES.dead_letters.name):
            for message in self.broker.messages[place]:
                letter = decode_envelope(message.value or b"")
                found.add(((letter.topic, letter.partition), letter.offset))
        return found

    async def _look_at_the_end(self) -> None:
        store, tree = self.watcher.world.store, TREE
        report = await self.watcher.world.inspect.check(tree)
        assert report.violations == (), report.violations[:3]
        events = await store.events(tree)
        assert events.keys() == self.first.keys(), "lost or made up"
        receipts = await store.receipts(tree, [EventId(name) for name in self.first])
        nodes = {node.id: node async for node in store.all_nodes(tree)}
        for node in nodes.values():
            assert not node.pending
            assert not node.provisional
            if node.item is not None:
                event = node.item.event_id
                assert node.text == self.first[event], "the first text stands"
                assert receipts[event].digest == turn(event[1:], node.text, conversation=node.item.conversation).digest
                above = nodes[node.parent] if node.parent else None
                while above is not None and above.kind is NodeKind.SUMMARY:
                    assert set(node.text.split()) <= set(above.text.split()), "a summary says it covers what it was never told"
                    above = nodes[above.parent] if above.parent else None
        assert not self.watcher.gate._counted
        assert len(self._letters()) == self.rubbish
        stats = await store.stats(tree)
        self.note(f"end seq={stats.seq} nodes={stats.nodes} rewrites={stats.rewrites} rebalances={self.broker.rebalances}")


class WorkerLife(Life):
    """A worker process from its start to its end or death."""

    simulation: PipelineSimulation

    def __init__(self, simulation: PipelineSimulation, name: str, role: str, *, mortal: bool) -> None:
        super().__init__(simulation, name, mortal=mortal)
        self.role = role

    async def serve(self) -> None:
        """Work until told to end, as `streams.run` does it."""
        simulation = self.simulation
        group: Group = simulation.ingesters if self.role == "ingest" else simulation.summarizers
        self.member = Member(simulation.broker, group, before_commit=simulation.before_commit, point=simulation.point)
        runtime: Runtime[Any] = Runtime(
            simulation.settings, self._ingesting if self.role == "ingest" else self._summarizing, end=self._cannot_go_on
        )
        stream = _Passed(self.member, group.topics[0])
        working = asyncio.ensure_future(consume(stream, runtime) if self.role == "ingest" else consume_jobs(stream, runtime))
        committing = asyncio.ensure_future(self.member.commit_now_and_then())
        await asyncio.wait({working, committing, asyncio.ensure_future(self._told_to_end())}, return_when=asyncio.FIRST_COMPLETED)
        for task in (working, committing):
            if task.done() and not task.cancelled():
                task.result()
        drained, _ = await asyncio.wait({asyncio.ensure_future(runtime.drain())}, timeout=GRACE)
        working.cancel()
        committing.cancel()
        await self.member.commit()
        self.member.leave()
        await runtime.close()
        assert not drained or not self.world.local._trees, "a lease is held by a worker that has ended in order"

    async def _told_to_end(self) -> None:
        """SIGTERM: at any time, or when all is done."""
        end = self.simulation._time() + self.simulation.drawn.expovariate(1 / 120)
        while not self.simulation.settled and (self.simulation._time() < end or not self.mortal):  # noqa: ASYNC110
            await asyncio.sleep(3.0)

    def _cannot_go_on(self, reason: str) -> None:
        raise AssertionError(f"{self.name} ended itself: {reason}")

    async def _ingesting(self, settings: Settings) -> Ingesting:
        simulation, world = self.simulation, self.world
        jobs = JobTopic(self._producer(), NAMES.summaries.name)
        ingest = Ingest(
            store=world.store,
            leases=world.leases,
            jobs=jobs,
            embedder=world.embedder,
            clock=world.clock,
            views=world.views,
            settings=replace(settings.memory.ingest, embedder_patience=timedelta(0)),
        )
        dead = DeadLetters(self._producer(), NAMES.dead_letters.name, world.clock, DeadLetterShare(1.0, 100))
        batches = Batches(
            ingest=ingest,
            store=world.store,
            jobs=jobs,
            dead=dead,
            clock=world.clock,
            limits=simulation.settings.memory.ingest,
            log=simulation.log,
        )
        weighing = Weighing(store=world.store, clock=world.clock)
        early = Early(world.clock, settings.worker.feedback_wait)
        opinions = Opinions(weighing=weighing, early=early, dead=dead, retry=batches.retry, log=simulation.log)
        erasures = erasing(world, jobs=jobs, dead=dead, retry=batches.retry, log=simulation.log)
        return Ingesting(batches, opinions, erasures, world.views, AsyncExitStack())

    async def _summarizing(self, settings: Settings) -> Summarizing:
        simulation, world = self.simulation, self.world
        dead = DeadLetters(self._producer(), NAMES.dead_letters.name, world.clock, DeadLetterShare(1.0, 100))
        retry = Retry(world.clock, simulation.log)
        linger = simulation.drawn.choice([0.0, 2.0])
        jobs = TakenJobs(
            InProcessSummaryJobs(world.clock, linger=linger),
            room=settings.worker.jobs_max,
            before=lambda: retry("sending dead letters", dead.flush),
            clock=world.clock,
            log=simulation.log,
        )
        pool = SummaryPool(jobs=jobs, claims=simulation.claims, summarize=world.summarize, settings=settings.memory.summaries)
        waiting = Waiting(world.store, simulation.claims, world.clock)
        return Summarizing(jobs, dead, retry, pool, world.summarize, world.store, waiting, AsyncExitStack())

    def _producer(self) -> SimulatedProducer:
        simulation = self.simulation
        drawn = simulation.drawn
        return SimulatedProducer(
            simulation.broker,
            point=simulation.point,
            fails=lambda: drawn.random() < simulation.weather.fails,
            drawn=drawn,
        )


def simulate(seed: int, folder: Path, empty: Path | None = None) -> PipelineSimulation:
    """Run one seed in a folder of its own."""
    folder.mkdir(parents=True)
    if empty is not None:
        shutil.copyfile(empty, folder / "store.db")

    async def story() -> PipelineSimulation:
        simulation = PipelineSimulation(seed, folder)
        await simulation.run()
        return simulation

    return run_virtually(story())


def main(arguments: Sequence[str]) -> None:
    """Print a history."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulate(int(arguments[0]), Path(folder, "run"), template(Path(folder)))
    if "--digest" not in arguments:
        print("\n".join(simulation.history))
    print(simulation.digest)


if __name__ == "__main__":
    main(sys.argv[1:])
