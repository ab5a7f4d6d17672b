"""What a batch and a summary leave behind: one line each, and numbers that a scrape reads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from memory.errors import ContentionError, SummarizerError
from memory.model import TreeId
from memory.service.ingest import Ingest
from memory.settings import IngestSettings
from streams.agents.batches import Batches
from streams.agents.early import Early
from streams.agents.opinions import Opinions
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.health import Health
from streams.job_topic import JobTopic
from streams.liveness import Watchdog
from streams.metric_readings import of_pipeline, of_worker
from streams.metrics import metrics_of
from streams.observing import changed_settings
from streams.pipelines import Ingesting
from streams.progress import Limits, PartitionLook, Progress
from streams.retrying import Retry
from streams.settings import load
from streams.spending import spend
from streams.workers.jobs import Message, TakenJobs
from tests.fakes.embedder import EmbedderFault, FakeEmbedder
from tests.fakes.erasures import erasing
from tests.fakes.labels import FakeLabels
from tests.fakes.producer import FakeProducer
from tests.fakes.virtual_time import LoopClock
from tests.fakes.world import World, turn

LOG = structlog.stdlib.get_logger("test")
LIMITS = replace(IngestSettings(), batch_items=8, embedder_patience=timedelta(0))
PRIVATE = "the diagnosis of Mrs Lindqvist"


@pytest.fixture
async def pipeline(tmp_path: Path) -> AsyncIterator[Ingesting]:
    world = World(tmp_path / "store.db", embedder=FakeEmbedder(faults=[EmbedderFault.BUSY]))
    yield ingesting(world)
    await world.close()


def ingesting(world: World, labels: FakeLabels | None = None) -> Ingesting:
    producer = FakeProducer()
    jobs = JobTopic(producer, "jobs")
    ingest = Ingest(
        store=world.store,
        leases=world.leases,
        jobs=jobs,
        embedder=world.embedder,
        clock=world.clock,
        views=world.views,
        settings=LIMITS,
        structure="memtree" if labels is None else "hmem",
        labels=labels,
    )
    dead = DeadLetters(producer, "dead", world.clock)
    batches = Batches(ingest=ingest, store=world.store, jobs=jobs, dead=dead, clock=world.clock, limits=LIMITS, log=LOG)
    early = Early(world.clock, timedelta(0))
    opinions = Opinions(weighing=world.weighing, early=early, dead=dead, retry=batches.retry, log=LOG)
    erasures = erasing(world, jobs=jobs, dead=dead, retry=batches.retry, log=LOG)
    return Ingesting(batches, opinions, erasures, world.views, AsyncExitStack())


def record(number: int, *, tree: str = "t", text: str = PRIVATE) -> Delivery:
    value = json.dumps({"tree": tree, "id": f"e{number}", "text": f"{text} {number % 3}"}).encode()
    return Delivery(topic="turns", partition=0, offset=number, key=b"k", value=value)


def bad(offset: int) -> Delivery:
    value = json.dumps({"tree": "t", "id": "x", "text": PRIVATE, "at": PRIVATE}).encode()
    return Delivery(topic="turns", partition=0, offset=offset, key=b"k", value=value)


async def test_a_batch_leaves_one_line_that_says_what_became_of_it(pipeline: Ingesting) -> None:
    with capture_logs() as lines:
        await pipeline.batches.take([*(record(number) for number in range(12)), bad(12)])
        await pipeline.batches.take([record(3), record(100)])
    first, second = (line for line in lines if line["event"] == "batch")
    assert {name: first[name] for name in ("topic", "records", "trees", "tree", "accepted", "dead_letters", "outcome")} == {
        "topic": "turns",
        "records": 13,
        "trees": 1,
        "tree": "t",
        "accepted": 12,
        "dead_letters": 1,
        "outcome": "done",
    }
    assert first["seq"] > 0
    assert first["jobs"] > 0
    for stage in ("decode", "embed", "plan", "lease", "commit", "send"):
        assert first[f"{stage}_ms"] >= 0
    assert min(first["embed_ms"], first["commit_ms"]) >= 0
    assert (second["accepted"], second["duplicate"]) == (1, 1)
    assert second["jobs_again"] > 0


async def test_a_batch_of_several_trees_does_not_name_one(pipeline: Ingesting) -> None:
    with capture_logs() as lines:
        await pipeline.batches.take([record(number, tree=f"t{number % 3}") for number in range(6)])
    [line] = (line for line in lines if line["event"] == "batch")
    assert line["trees"] == 3
    assert "tree" not in line


async def test_nothing_that_users_wrote_is_in_the_log(pipeline: Ingesting) -> None:
    with capture_logs() as lines:
        await pipeline.batches.take([*(record(number) for number in range(12)), bad(12), record(5, text=f"other {PRIVATE}")])
    assert {line["event"] for line in lines} >= {"batch", "dead letter", "conflict", "waiting"}
    assert PRIVATE not in str(lines)
    assert "Lindqvist" not in str(lines)


async def test_a_batch_that_fails_leaves_its_line_too(pipeline: Ingesting) -> None:
    async def broken() -> int:
        raise ValueError(PRIVATE)

    pipeline.batches._jobs.flush = broken  # type: ignore[method-assign]
    with capture_logs() as lines, pytest.raises(ValueError, match="diagnosis"):
        await pipeline.batches.take([record(1)])
    [line] = (line for line in lines if line["event"] == "batch")
    assert (line["outcome"], line["error"]) == ("failed", "ValueError")
    assert PRIVATE not in str(line)


def values(pipeline: Ingesting) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(reading.name, reading.labels): reading.value for reading in of_pipeline(pipeline)}


async def test_a_scrape_reads_what_was_done(pipeline: Ingesting) -> None:
    await pipeline.batches.take([*(record(number) for number in range(12)), bad(12)])
    await pipeline.batches.take([record(number) for number in range(12)])
    found = values(pipeline)
    assert found["banyan_events_total", ("accepted",)] == found["banyan_events_total", ("duplicate",)] == 12
    assert found["banyan_items_committed_total", ()] == 12
    assert found["banyan_commits_total", ()] == 2  # batches of at most eight
    assert found["banyan_dead_letters_total", ("turns",)] == 1
    assert found["banyan_retries_total", ("embedding",)] == 1
    assert found["banyan_summary_jobs_sent_total", ()] > 0 < found["banyan_summary_jobs_again_total", ()]
    assert found["banyan_views", ()] == 1
    assert found["banyan_view_bytes", ()] > 0
    stats = await pipeline.batches.store.stats(TreeId("t"))
    assert found["banyan_contributions_added_total", ()] == stats.pending > 0
    assert {name for name, _ in found} <= {metric.name for metric in metrics_of("ingest")}


async def test_a_scrape_reads_what_a_model_labelled_and_only_where_there_is_one(pipeline: Ingesting, tmp_path: Path) -> None:
    assert not [name for name, _ in values(pipeline) if "label" in name]
    world = World(tmp_path / "labelled.db")
    labels = FakeLabels(texts_max=8)
    labelled = ingesting(world, labels)
    await labelled.batches.take([record(number, text="number") for number in range(5)])
    labels.failures = 1
    await labelled.batches.take([record(number, text="number") for number in range(5, 8)])
    found = values(labelled)
    assert found["banyan_items_labelled_total", ()] == 5
    assert found["banyan_items_unlabelled_total", ()] == 3
    assert found["banyan_label_calls_failed_total", ()] == found["banyan_labels_resting", ()] == 1
    assert {name for name, _ in found} <= {metric.name for metric in metrics_of("ingest")}
    await world.close()


def test_a_scrape_reads_how_far_a_worker_is() -> None:
    progress = Progress()
    batch = [Delivery(topic="turns", partition=number % 2, offset=number, key=None, value=None) for number in range(10)]
    progress.taken(0, batch)
    progress.done(0, batch[:4])
    looks = [
        PartitionLook(topic="turns", partition=number, end=50, position=50, delivered=49, committed=committed)
        for number, committed in enumerate((4, None))
    ]
    progress.looked(0, looks, member=True)
    health = Health(state="")
    health.missing["store"] = "StoreUnavailableError"
    found = {(reading.name, reading.labels): reading.value for reading in of_worker(health, progress)}
    assert found["banyan_partitions_held", ("turns",)] == 2
    assert found["banyan_consumer_lag_records", ("turns", "0")] == 46
    assert found["banyan_consumer_lag_records", ("turns", "1")] == 50
    assert found["banyan_records_taken_total", ("turns",)] == 10
    assert found["banyan_records_in_hand", ("turns",)] == 6
    assert (found["banyan_healthy", ()], found["banyan_ready", ()]) == (1, 0)
    assert (found["banyan_dependency_up", ("store",)], found["banyan_dependency_up", ("kafka",)]) == (0, 1)


def test_a_worker_on_its_way_out_is_unhealthy_to_a_scrape() -> None:
    progress = Progress()
    watchdog = Watchdog(progress, Limits(stall=60, in_hand=1_000, outcast=30), end=lambda _: None)
    progress.looked(0, [], member=False)
    watchdog.verdict(20)
    readings = {reading.name: reading.value for reading in of_worker(Health(unwell=lambda: watchdog.unwell), progress)}
    assert readings["banyan_healthy"] == 0


async def test_a_summary_leaves_one_line_that_says_where_its_time_went(tmp_path: Path) -> None:
    world = World(tmp_path / "store.db")

    async def before() -> None:
        """Nothing has to be sent."""

    jobs = TakenJobs(world.jobs, room=10, before=before, clock=world.clock, log=LOG)
    told: list[str] = []
    jobs.stages.told = lambda name, _: told.append(name)
    world.summarize.stages.told = spend
    await world.put(*(turn(number) for number in range(0, 21, 7)))
    job = await jobs.claim()
    await world.summarize.refresh(job.tree, job.node)
    with capture_logs() as lines:
        await jobs.done(job)
    [line] = lines
    assert line["event"] == "summary"
    assert (line["tree"], line["node"], line["attempt"]) == (job.tree, job.node, 1)
    parts = [line[name] for name in ("model_ms", "write_ms")]  # of nothing at all, where the model is a fake
    assert line["ms"] >= max(parts) >= min(parts) >= 0
    assert told == ["summary"]
    await world.close()


async def test_the_oldest_message_in_hand_is_known(tmp_path: Path) -> None:
    world = World(tmp_path / "store.db")

    async def before() -> None:
        """Nothing has to be sent."""

    jobs = TakenJobs(world.jobs, room=10, before=before, clock=world.clock, log=LOG)
    assert jobs.oldest() is None
    messages = [
        Message(Delivery(topic="jobs", partition=number, offset=0, key=None, value=None, timestamp=time), lambda: None)
        for number, time in enumerate((30.0, 10.0, 20.0))
    ]
    for message in messages:
        jobs.stand(message)
    assert jobs.oldest() == 10.0
    await jobs.settle([messages[1]])
    assert jobs.oldest() == 20.0
    await world.close()


async def test_what_is_waited_for_is_known_while_it_is_waited_for() -> None:
    away = asyncio.Event()
    health = Health(state="")

    class Clock(LoopClock):
        async def sleep(self, seconds: float) -> None:
            del seconds
            await away.wait()

    retry = Retry(Clock(), LOG)
    health.waited_for = lambda: retry.waited_for
    answers = iter([SummarizerError("429"), ContentionError("others are faster")])

    async def work() -> int:
        if (error := next(answers, None)) is not None:
            raise error
        return 7

    waiting = asyncio.ensure_future(retry("asking", work))
    await asyncio.sleep(0)
    assert health.ready() == (False, {"status": "not ready", "missing": {"summarizer": "SummarizerError"}})
    assert health.alive()[0]
    away.set()
    assert await waiting == 7
    assert health.ready() == (True, {"status": "ready"})
    assert retry.failures_of == {"asking": 2}


def test_the_first_line_tells_what_was_set_and_no_secret() -> None:
    environment = {
        "OPENAI_API_KEY": "sk-very-secret",
        "BANYAN_STORE": "redis://user:hidden@cache:6379",
        "BANYAN_EMBEDDER": "local",
        "BANYAN_WORKER_GRACE": "5s",
    }
    found = changed_settings(load(environment).settings)
    assert found == {"openai_api_key": "********", "store": "redis://********@cache:6379", "worker_grace": "5s"}
