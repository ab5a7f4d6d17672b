"""
Worker processes on a real broker and a real Redis, and everything that is done to them while records come.

One seed draws what is done and when; what the machine makes of it is not repeatable, so the verdict must hold for all.
"""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from memory.errors import TransientError
from memory.records import Forget, Record, Turn
from streams.settings import Settings, load
from streams.topics import topics
from tests.fakes.openai_server import FakeOpenAIServer, Fault, Kind, SeenRequest
from tests.integration.kafka.conftest import install, variables
from tests.integration.kafka.workers import LIMIT, Worker, Workers, send, send_raw
from tests.servers import kafka, redis

TREES = 4
FORGETFUL = "chaos-0"
"""Of this tree some events are forgotten, before they come or after; the others' placements can be replayed to the end."""
FORGETS = 2
"""Of each chunk."""
TOPICS = 40
CONVERSATIONS = 60
MAY_END_WITH = frozenset({4, 75})
"""Exit codes of a worker that could not start, or not go on; anything else, but a kill, is a fault of ours."""
CHUNK = 100
RUBBISH = (b"garbage", b'{"tree":"chaos-0","id":"x","text":""}', b'{"tree":"no tree","id":"x","text":"a"}', b"\xff\xfe", b"")
_POLL = 0.2  # seconds
_LOG_START = 65_536
"""Bytes of a log in which a worker has said that it is ready."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How bad it gets."""

    seed: int = 1
    events: int = 6_000
    kills: int = 14
    stops: int = 2
    redis_restarts: int = 1
    broker_restarts: int = 1
    ingest: int = 4
    summaries: int = 2
    pause: tuple[float, float] = (1.5, 3.5)
    """Seconds between two faults."""
    session: float = 6.0
    """Seconds after which Kafka takes a silent worker for dead."""
    lease: float = 2.0
    """Seconds that a lease lasts."""
    stopped: float = 8.0
    """Seconds of a SIGSTOP: more than both."""
    linger: float = 1.0
    """Seconds that a summary waits for more contributions."""
    settle: float = 240.0
    """Seconds in which something must have been done, until all is done after the last fault."""

    @property
    def actions(self) -> list[str]:
        """What is done, in order."""
        drawn = random.Random(self.seed)
        counts = {"kill": self.kills, "stop": self.stops, "redis": self.redis_restarts, "broker": self.broker_restarts}
        actions = [name for name, count in counts.items() for _ in range(count)]
        drawn.shuffle(actions)
        return actions

    @property
    def expected_seconds(self) -> float:
        """How long the faults take, about."""
        rest = 5.0 * self.redis_restarts + 8.0 * self.broker_restarts
        return sum(self.pause) / 2 * len(self.actions) + rest


class MoodyModel(FakeOpenAIServer):
    """
    A model that answers one question in three with an error, with nothing, or with rubbish.

    Not with 402: an account without credit is waited for minutes, as it should be.
    """

    FAULTS: tuple[tuple[Fault, float], ...] = (
        (Fault(kind="status", status=429, retry_after="1"), 0.08),
        (Fault(kind="status", status=500), 0.06),
        (Fault(kind="hang"), 0.01),
        *((Fault(kind=kind), 0.02) for kind in ("malformed", "not-json", "empty-object", "disconnect", "no-choices", "refusal")),
        *((Fault(kind=kind), 0.02) for kind in ("empty-content", "blank-content", "null-content", "length")),
        (Fault(kind="huge"), 0.002),
    )

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._drawn = random.Random(seed)
        self.answered: Counter[Kind | str] = Counter()
        """By what was answered."""

    def _take(self, request: SeenRequest) -> Fault | None:
        del request  # a run has more of them than should be kept
        with self._lock:
            chance = self._drawn.random()
            for fault, share in self.FAULTS:
                chance -= share
                if chance < 0:
                    self.answered[f"{fault.kind} {fault.status}" if fault.kind == "status" else fault.kind] += 1
                    return fault
            self.answered["good"] += 1
            return None


@dataclass(slots=True)
class Slot:
    """A place for one worker, as an orchestrator has it: what ends is started again."""

    role: str
    name: str
    instance: str | None
    worker: Worker
    held: bool = False
    """Something is being done to it."""

    @property
    def ready(self) -> bool:
        """Whether it works, or at least has said that it does."""
        with self.worker.log.open("rb") as log:
            said = b'"event": "ready"' in log.read(_LOG_START)
        return said and not self.held and self.worker.process.poll() is None


@dataclass(slots=True)
class Offered:
    """What was put on the topics."""

    texts: dict[str, dict[str, str]] = field(default_factory=dict)
    """By tree and event, the text that stands."""
    forgotten: set[str] = field(default_factory=set)
    """Events of the forgetful tree."""
    rubbish: int = 0
    again: int = 0
    """Sent a second time."""
    conflicting: int = 0
    """Sent with an id that was there, and another text."""

    def left(self, tree: str) -> dict[str, str]:
        """Of a tree what was not forgotten."""
        gone = self.forgotten if tree == FORGETFUL else ()
        return {event: text for event, text in self.texts[tree].items() if event not in gone}


def record(seed: int, number: int) -> Turn:
    """An event; some trees get more than others."""
    drawn = random.Random(f"{seed}-{number}")
    topic = min(int(drawn.expovariate(3 / TOPICS)), TOPICS - 1)
    words = [f"topic{topic}"] * 2 + [f"detail{drawn.randrange(100_000)}" for _ in range(4)]
    return Turn(
        tree=f"chaos-{min(drawn.randrange(TREES + 2), TREES - 1)}",
        id=f"e{number}",
        text=f"{' '.join(words)} number{number}.",
        conversation=f"c{number % CONVERSATIONS}",
        speaker=("Ana", "Ben")[number % 2],
    )


class Storm:
    """
    One run.

    Args:
        plan: what is done.
        folder: for servers and logs.
    """

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.offered = Offered()
        self.did: Counter[str] = Counter()
        self.ends: Counter[int] = Counter()
        """Of workers that ended by themselves, by exit code."""
        self.faulty: list[str] = []
        """What those said that ended as none may."""
        self.seconds = 0.0
        self._drawn = random.Random(plan.seed + 1)
        self._slots: list[Slot] = []
        self._exit = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            self.broker = undo.enter_context(kafka.single(self.folder / "kafka"))
            # Always: then what was acknowledged is on disk, and a kill may lose nothing (docs/redis.md).
            self.redis = undo.enter_context(redis.single(self.folder / "redis", appendfsync="always"))
            self.model = undo.enter_context(MoodyModel(self.plan.seed))
            logs = self.folder / "logs"
            logs.mkdir()
            self.environment = variables(self.broker.address, self.folder) | {
                "BANYAN_STORE": self.redis.url,
                "BANYAN_SUMMARIZER": "openai:moody",
                "OPENAI_API_KEY": "for-the-fake-one",
                "OPENAI_BASE_URL": self.model.base_url,
                "BANYAN_OPENAI_TIMEOUT": "2s",
                "BANYAN_SUMMARIES_LINGER": f"{self.plan.linger}s",
                "BANYAN_SUMMARIES_BACKOFF": "0.2s",
                "BANYAN_SUMMARIES_BACKOFF_MAX": "3s",
                "BANYAN_SUMMARIES_ATTEMPTS_MAX": "1000",
                "BANYAN_SUMMARIES_WORKERS": "8",
                "BANYAN_THETA_BASE": "0.6",
                "BANYAN_KAFKA_PARTITIONS": "8",
                "BANYAN_KAFKA_SESSION_TIMEOUT": f"{self.plan.session}s",
                "BANYAN_INGEST_LEASE_TTL": f"{self.plan.lease}s",
                "BANYAN_INGEST_LEASE_WAIT": "1s",
                "BANYAN_WORKER_BATCH_RECORDS": "50",
            }
            self.settings: Settings = load(self.environment).settings
            self.workers = Workers(self.environment, logs)
            undo.callback(self.workers.kill_all)
            self._exit = undo.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    async def rage(self) -> None:
        """Records come, and faults, until both are through; every process is left running."""
        started = time.monotonic()
        await install(self.settings)
        for number in range(self.plan.ingest):
            self._slots.append(self._open("ingest", f"ingest-{number}", f"static-{number}" if number % 2 else None))
        for number in range(self.plan.summaries):
            self._slots.append(self._open("summaries", f"summaries-{number}", None))
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._keep())
            await asyncio.gather(self._produce(), self._break())
            keeping.cancel()
        self.seconds = time.monotonic() - started

    def keep(self) -> None:
        """Start again what has ended by itself."""
        for slot in self._slots:
            code = None if slot.held else slot.worker.process.poll()
            if code is None:
                continue
            self.ends[code] += 1
            if code not in MAY_END_WITH:
                self.faulty.append(f"{slot.name} ended with {code}: {slot.worker.log.read_text()[-2000:]}")
            slot.worker = self._start(slot.role, slot.instance)

    def end(self) -> list[int]:
        """SIGTERM to all; their exit codes."""
        for slot in self._slots:
            slot.worker.signal(signal.SIGTERM)
        return [slot.worker.process.wait(LIMIT) for slot in self._slots]

    def _open(self, role: str, name: str, instance: str | None) -> Slot:
        return Slot(role, name, instance, self._start(role, instance))

    def _start(self, role: str, instance: str | None) -> Worker:
        return self.workers("worker", role, **({"BANYAN_KAFKA_INSTANCE": instance} if instance else {}))

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_POLL)
            self.keep()

    # ------------------------------------------------------------------------------------------------------------- records

    async def _produce(self) -> None:
        """Evenly over the time that the faults take; a chunk whose sending failed is sent again, whole."""
        pause = self.plan.expected_seconds / (self.plan.events / CHUNK)
        due = time.monotonic()
        for first in range(0, self.plan.events, CHUNK):
            await self._send(self._chunk(first))
            if forgets := self._forgets():
                await self._send(forgets)
            if self._drawn.random() < 0.2:
                await self._send_rubbish()
            due = max(due + pause, time.monotonic() - 5 * pause)
            await asyncio.sleep(max(0.0, due - time.monotonic()))

    def _chunk(self, first: int) -> list[Record]:
        records: list[Record] = []
        for number in range(first, min(first + CHUNK, self.plan.events)):
            made = record(self.plan.seed, number)
            self.offered.texts.setdefault(made.tree, {})[made.id] = made.text
            records.append(made)
        for _ in range(3 if first else 0):
            made = record(self.plan.seed, self._drawn.randrange(first))
            if self._drawn.random() < 0.2:
                self.offered.conflicting += 1
                records.append(Turn(tree=made.tree, id=made.id, conversation=made.conversation, text="quite another text"))
            else:
                self.offered.again += 1
                records.append(made)
        return records

    def _forgets(self) -> list[Forget]:
        """Of events that are in, on their way or still to come."""
        drawn = (record(self.plan.seed, self._drawn.randrange(self.plan.events)) for _ in range(FORGETS * TREES))
        events = [made.id for made in drawn if made.tree == FORGETFUL]
        self.offered.forgotten.update(events)
        return [Forget(tree=FORGETFUL, id=f"forget-{event}", event=event) for event in events]

    async def _send(self, records: Sequence[Record | Forget]) -> None:
        while True:
            try:
                await send(self.settings, records)
            except TransientError:
                self.did["chunks sent again"] += 1
                await asyncio.sleep(0.5)
            else:
                return

    async def _send_rubbish(self) -> None:
        with suppress(TransientError):
            await send_raw(self.settings, topics(self.settings.kafka).turns.name, self._drawn.choice(RUBBISH), key=b"rubbish")
            self.offered.rubbish += 1

    # -------------------------------------------------------------------------------------------------------------- faults

    async def _break(self) -> None:
        async with asyncio.TaskGroup() as group:
            for action in self.plan.actions:
                await asyncio.sleep(self._drawn.uniform(*self.plan.pause))
                print(f"{time.strftime('%H:%M:%S')} {action}", file=sys.stderr)
                match action:
                    case "kill":
                        await self._kill()
                    case "stop":
                        group.create_task(self._stop(await self._victim("ingest" if self._drawn.random() < 0.8 else "summaries")))
                    case "redis":
                        await self._restart_redis()
                    case "broker":
                        await self._restart_broker()
                self.did[action] += 1

    async def _victim(self, role: str | None = None) -> Slot:
        """One that is at work, so that something is broken by what is done to it."""
        while True:
            found = [slot for slot in self._slots if slot.ready and role in (None, slot.role)]
            if found:
                return self._drawn.choice(found)
            await asyncio.sleep(_POLL)

    async def _kill(self) -> None:
        slot = await self._victim()
        # At once, or so late that its partitions have gone to another.
        delay = 0.0 if self._drawn.random() < 0.7 else self.plan.session * 1.5
        with self._held(slot):
            slot.worker.kill()
            await asyncio.sleep(delay)
            slot.worker = self._start(slot.role, slot.instance)

    async def _stop(self, slot: Slot) -> None:
        with self._held(slot):
            slot.worker.signal(signal.SIGSTOP)
            await asyncio.sleep(self.plan.stopped)
            slot.worker.signal(signal.SIGCONT)

    async def _restart_redis(self) -> None:
        await asyncio.to_thread(self.redis.kill)
        # Also for longer than a call is tried again (`RedisSettings.patience`).
        await asyncio.sleep(self._drawn.uniform(0.5, 8.0))
        await asyncio.to_thread(self.redis.start)

    async def _restart_broker(self) -> None:
        await asyncio.to_thread(self.broker.kill)
        await asyncio.sleep(self._drawn.uniform(0.5, 3.0))
        await asyncio.to_thread(self.broker.start)

    @contextmanager
    def _held(self, slot: Slot) -> Iterator[None]:
        """Nothing else is done to it."""
        slot.held = True
        try:
            yield
        finally:
            slot.held = False
