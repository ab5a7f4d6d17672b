"""
A few processes that share one store, in one thread and in virtual time, with everything that can go wrong drawn from one seed.

Around every operation on the store, the index, the embedder and the summarizer a process may be delayed, stopped for longer than
its leases last, or die. What dies is started again and offered the same records again, as a broker would. The tables, the planning,
the leases and the services are the real ones.

    python -m tests.simulation.simulation 17     prints the history of seed 17
"""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.adapters.embedded.gate import FileLeases
from memory.changes import Rewrite, written
from memory.errors import EmbedderError, SummarizerAnswerError, SummarizerError, TransientError
from memory.model import EventId, Node, NodeId, NodeKind
from memory.ports.embedder import Purpose
from memory.ports.summarizer import Summary, SummaryRequest
from memory.records import Record
from memory.results import EventResult, EventStatus
from memory.service.freshness import Freshness
from memory.service.stream import stream
from memory.settings import IngestSettings, MemorySettings, SummarySettings
from memory.structures import registry
from memory.structures.memgas import GRANULARITY
from tests.fakes.embedder import FakeEmbedder
from tests.fakes.inline_store import InlineStore
from tests.fakes.memory_index import MemoryIndex
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.virtual_time import LoopClock, run_virtually
from tests.fakes.world import TREE, World, turn

SETTINGS = MemorySettings(
    ingest=IngestSettings(batch_items=4, attempts_max=500, lease_ttl=timedelta(seconds=10), lease_wait=timedelta(seconds=5)),
    summaries=SummarySettings(workers=3, attempts_max=1_000, time_limit=timedelta(seconds=60)),
)
LIVES_MAX = 6
"""Deaths a process suffers at most."""

_life: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)


class _Dead(BaseException):
    """Ends whatever a dead process still tries."""


SMALL = {"hat": {"memory_length": 2.0}}
"""Parameters under which few records make many levels."""


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How bad it is; drawn from the seed, so that quiet and wild runs both happen."""

    dies: float
    stops: float
    """Waits for 8 to 25 seconds: longer than leases last, most of the time."""
    waits: float
    fails: float
    """Of models."""

    @staticmethod
    def drawn(drawn: random.Random) -> Weather:
        """From a calm to a terrible day."""
        scale = drawn.choice([0.0, 0.2, 1.0, 1.0, 3.0])
        return Weather(dies=0.004 * scale, stops=0.006 * scale, waits=0.3, fails=0.1 * scale)


@dataclass
class Simulation:
    """One seed."""

    seed: int
    folder: Path
    history: list[str] = field(default_factory=list)
    results: list[EventResult] = field(default_factory=list)
    lives: int = 0
    offered: dict[str, set[str]] = field(default_factory=dict)
    """Texts by id."""
    forgets: list[list[tuple[float, list[EventId]]]] = field(default_factory=list)
    """Of each process, what it forgets, and when it begins to."""
    forgotten: set[EventId] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.drawn = random.Random(self.seed)
        self.weather = Weather.drawn(self.drawn)
        self.structure = registry.NAMES[self.seed % len(registry.NAMES)]
        self.index = MemoryIndex(self.point)

    def note(self, what: str) -> None:
        """Keep a line of what happened."""
        life = _life.get()
        self.history.append(f"{asyncio.get_running_loop().time():.6f} {life.name if life else '-'} {what}")

    async def point(self, name: str) -> None:
        """Something may happen here."""
        life = _life.get()
        if life is None:
            return
        if life.dead:
            raise _Dead
        self.note(name)
        chance = self.drawn.random()
        weather = self.weather
        if chance < weather.dies and life.mortal:
            life.dead = True
            life.died.set()
            raise _Dead
        chance -= weather.dies
        if chance < weather.stops:
            await asyncio.sleep(self.drawn.uniform(8, 25))
        elif chance < weather.stops + weather.waits:
            await asyncio.sleep(self.drawn.expovariate(50))
        else:
            await asyncio.sleep(0)
        if life.dead:
            raise _Dead

    async def run(self) -> None:
        """All processes, until everything is in; then one that is left in peace, until every summary is fresh."""
        random.seed(self.seed)
        asyncio.get_running_loop().set_task_factory(_tracked)
        processes = self.drawn.randint(1, 3)
        shares = self._shares(processes)
        self._choose(processes)
        async with asyncio.TaskGroup() as group:
            for number, share in enumerate(shares):
                group.create_task(self._process(number, share))
        self.weather = Weather(dies=0, stops=0, waits=0, fails=0)
        last = Life(self, "last", mortal=False)
        await last.spent(last.finish())
        await self._judge(last)
        last.close()

    def _shares(self, processes: int) -> list[list[list[Record]]]:
        """Of each process, what each of its writers puts in: some records twice, some with another text, some to two processes."""
        numbers = range(self.drawn.randint(5, 40))
        shares: list[list[list[Record]]] = []
        for _ in range(processes):
            writers: list[list[Record]] = [[] for _ in range(self.drawn.randint(1, 3))]
            shares.append(writers)
        everyone = [writer for writers in shares for writer in writers]
        for number in numbers:
            for _ in range(self.drawn.choice([1, 1, 1, 2, 3])):
                record = turn(number) if self.drawn.random() < 0.9 else turn(number, f"another text {self.drawn.randrange(3)}")
                self.offered.setdefault(record.id, set()).add(record.text)
                writer = self.drawn.choice(everyone)
                writer.insert(self.drawn.randint(0, len(writer)), record)
        return shares

    def _choose(self, processes: int) -> None:
        """What is forgotten: in most runs a few records, in some most of them, some by two processes, and one that never comes."""
        share = self.drawn.choice([0.0, 0.15, 0.15, 0.7])
        chosen = [EventId(name) for name in self.offered if self.drawn.random() < share]
        chosen += [EventId("never")] if chosen else []
        self.forgotten.update(chosen)
        self.forgets = [[] for _ in range(processes)]
        while chosen:
            some = [chosen.pop() for _ in range(min(len(chosen), self.drawn.randint(1, 6)))]
            for forgetters in self.drawn.sample(self.forgets, self.drawn.randint(1, processes)):
                forgetters.append((self.drawn.expovariate(0.2), some))

    async def _process(self, number: int, share: Sequence[Sequence[Record]]) -> None:
        for life_number in range(LIVES_MAX + 1):
            life = Life(self, f"p{number}.{life_number}", mortal=life_number < LIVES_MAX)
            self.lives += 1
            await life.spent(life.work(share, self.forgets[number]))
            life.close()
            if not life.dead:
                return

    async def _judge(self, last: Life) -> None:
        world = last.world
        report = await world.inspect.check(TREE)
        assert report.violations == (), report.violations[:3]
        events = await world.store.events(TREE)
        assert events.keys() == self.offered.keys() | self.forgotten
        accepted = Counter(result.id for result in self.results if result.status is EventStatus.ACCEPTED)
        assert {result.id for result in self.results} <= events.keys(), "acknowledged, and not there"
        assert all(count == 1 for count in accepted.values()), accepted
        receipts = await world.store.receipts(TREE, [EventId(name) for name in events])
        assert {name for name, receipt in receipts.items() if receipt.forgotten} == self.forgotten
        secrets = {f"number{name[1:]}" for name in self.forgotten}
        nodes = {node.id: node async for node in world.store.all_nodes(TREE)}
        for node in nodes.values():
            assert not node.provisional
            assert not node.pending
            assert not secrets & set(node.text.replace(",", " ").split()), "something speaks of what was forgotten"
            if node.item is not None:
                assert node.text in self.offered[node.item.event_id]
                assert receipts[node.item.event_id].digest == turn(node.item.event_id[1:], node.text).digest
                above = nodes[node.parent] if node.parent else None
                while above is not None and above.kind is NodeKind.SUMMARY:
                    told = above.attributes.get(GRANULARITY) == "keyword" or set(node.text.split()) <= set(above.text.split())
                    assert told, "a summary says it covers what it was never told"
                    above = nodes[above.parent] if above.parent else None
        stats = await world.store.stats(TREE)
        stays = self.offered.keys() - self.forgotten
        assert (stats.pending, stats.dirty, stats.leaves, stats.events) == (0, 0, len(stays), len(stays))
        await self._judge_log(world, nodes)
        await world.indexing.catch_up(TREE)
        indexed = self.index.trees[TREE].entries
        assert {entry.event_id for entry in indexed.values() if entry.kind is NodeKind.LEAF} == stays
        texts = await world.texts()
        assert all(entry.text == texts[name] for name, entry in indexed.items())
        assert not world.local._trees, "a lease is held"
        assert not last.gate._counted
        for result in self.results:
            if result.id in self.forgotten:
                assert result.seq <= receipts[result.id].seq
                continue
            assert result.status is not EventStatus.FORGOTTEN
            assert result.seq == receipts[result.id].seq, "an acknowledgement of another commit"
        self.note(f"end seq={stats.seq} nodes={stats.nodes} rewrites={stats.rewrites}")

    async def _judge_log(self, world: World, nodes: Mapping[NodeId, Node]) -> None:
        """The change log holds no vector of what is gone, whoever died before it was taken out."""
        info = await world.store.tree(TREE)
        assert info.redacted >= info.floor
        for entry in await world.store.changes(TREE, 0, limit=100_000):
            for step in written(entry):
                gone = (step.node if isinstance(step, Rewrite) else step.id) not in nodes
                assert not (gone and step.vector.any()), "the log has a vector of what was forgotten"

    @property
    def digest(self) -> str:
        """Of the whole history."""
        return hashlib.sha256("\n".join(self.history).encode()).hexdigest()[:16]


class Life:
    """A process from its start to its end or death."""

    def __init__(self, simulation: Simulation, name: str, *, mortal: bool) -> None:
        self.simulation = simulation
        self.name = name
        self.mortal = mortal
        self.dead = False
        self.died = asyncio.Event()
        self.tasks: set[asyncio.Task[Any]] = set()
        clock = LoopClock()
        self.gate = FileLeases(simulation.folder / "store.lock", clock)
        self.world = World(
            simulation.folder / "store.db",
            clock=clock,
            leases=self.gate,
            local=self.gate.local,
            embedder=_Embedder(simulation),
            summarizer=_Summarizer(simulation),
            index=simulation.index,
            settings=SETTINGS,
            point=simulation.point,
            structure=simulation.structure,
            parameters=SMALL.get(simulation.structure),
        )

    async def spent(self, work: Coroutine[Any, Any, None]) -> None:
        """Live: do the work, until it is done or death comes; then nothing of this life runs any more."""
        token = _life.set(self)
        main = asyncio.get_running_loop().create_task(work)
        death = asyncio.get_running_loop().create_task(self.died.wait())
        _life.reset(token)
        await asyncio.wait({main, death}, return_when=asyncio.FIRST_COMPLETED)
        if self.dead:
            self.simulation.note(f"{self.name} died")
        elif not main.cancelled():
            main.result()
        while left := [task for task in self.tasks if not task.done()]:
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
        if main.done() and not main.cancelled():
            main.exception()

    def close(self) -> None:
        """What the system does for a process that has ended: files and locks are given back."""
        self.gate.close()
        for part in (self.world.store._writer, self.world.store._readers):  # type: ignore[attr-defined]
            part._connection.close()

    async def work(self, share: Sequence[Sequence[Record]], forgets: Sequence[tuple[float, Sequence[EventId]]]) -> None:
        """Several writers, those who forget, and a pool of summaries, as a worker has them."""
        await self.world.start()
        async with asyncio.TaskGroup() as group:
            for records in share:
                group.create_task(self._write(records))
            for seconds, events in forgets:
                group.create_task(self._forget(seconds, events))
        await self.world.pool.stop()

    async def _write(self, records: Sequence[Record]) -> None:
        while True:
            with suppress(TransientError):
                await stream(self.world.ingest, records, batch_items=SETTINGS.ingest.batch_items, on_batch=self._acknowledge)
                break
            self.simulation.note("again")
        if records:
            await self.world.indexing.catch_up(TREE)

    async def _forget(self, seconds: float, events: Sequence[EventId]) -> None:
        await asyncio.sleep(seconds)
        await self.world.ingest.ensure_tree(TREE)
        while True:
            with suppress(TransientError):
                report = await self.world.forgetting.forget(TREE, events)
                break
            self.simulation.note("forget again")
        self.simulation.note(f"forgot {' '.join(events)}: {report.forgotten} {report.unknown} {report.already}")

    def _acknowledge(self, results: Sequence[EventResult]) -> None:
        self.simulation.note(f"acknowledged {' '.join(f'{result.id}={result.status}@{result.seq}' for result in results)}")
        self.simulation.results.extend(results)

    async def finish(self) -> None:
        """Whatever is pending, made by one process that nothing happens to."""
        world = self.world
        await world.start()
        fresh = Freshness(store=world.store, jobs=world.jobs, pool=world.pool, clock=world.clock)
        assert await fresh.wait(TREE, progress=None, seconds=36_000)
        await world.forgetting.finish(TREE)
        await world.pool.stop()


class _Embedder(FakeEmbedder):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self._simulation = simulation

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        await self._simulation.point("embed")
        if self._simulation.drawn.random() < self._simulation.weather.fails:
            raise EmbedderError("busy", retry_after=self._simulation.drawn.choice([None, 3.0]))
        return await super().embed(texts, purpose=purpose)


class _Summarizer(FakeSummarizer):
    def __init__(self, simulation: Simulation) -> None:
        super().__init__(tokens_max=simulation.drawn.choice([20, 60, 2_000]), vector_from_text=simulation.drawn.random() < 0.5)
        self._simulation = simulation

    async def summarize(self, request: SummaryRequest) -> Summary:
        drawn, fails = self._simulation.drawn, self._simulation.weather.fails
        await self._simulation.point("summarize")
        await asyncio.sleep(drawn.expovariate(1.0))
        chance = drawn.random() / fails if fails else 1.0
        if chance < 0.2:
            await asyncio.Event().wait()
        if chance < 0.6:
            raise SummarizerError("away", retry_after=drawn.choice([None, 5.0]))
        if chance < 1.0:
            raise SummarizerAnswerError("nonsense")
        # Says every word it was told, so that a summary shows what it was made of.
        words = {word for text in (request.existing, *request.new) for word in text.split()}
        return Summary(text=" ".join(sorted(words)), calls=1)


def _tracked(loop: asyncio.AbstractEventLoop, work: Any, *, context: contextvars.Context | None = None) -> asyncio.Task[Any]:
    life = _life.get() if context is None else context.get(_life)
    task = asyncio.Task(work, loop=loop, context=context)
    if life is not None:
        life.tasks.add(task)
        task.add_done_callback(life.tasks.discard)
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


def template(folder: Path) -> Path:
    """An empty store to copy: making one anew costs more than a run."""
    path = folder / "template.db"

    async def make() -> None:
        store = InlineStore.make(path, leases=None)
        await store.close()

    run_virtually(make())
    return path


def simulate(seed: int, folder: Path, empty: Path | None = None) -> Simulation:
    """Run one seed in a folder of its own."""
    folder.mkdir(parents=True)
    if empty is not None:
        shutil.copyfile(empty, folder / "store.db")

    async def story() -> Simulation:
        simulation = Simulation(seed, folder)
        await simulation.run()
        return simulation

    return run_virtually(story())


def main() -> None:
    """Print a history."""
    with tempfile.TemporaryDirectory() as folder:
        simulation = simulate(int(sys.argv[1]), Path(folder, "run"))
    if "--digest" not in sys.argv:
        print("\n".join(simulation.history))
    print(simulation.digest)


if __name__ == "__main__":
    main()
