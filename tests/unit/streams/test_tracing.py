"""One trace from the producer of a record to the summaries above it; none, and no cost, while tracing is off."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import structlog
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from memory.errors import SettingError
from memory.ports.jobs import SummaryJob
from memory.service.ingest import Ingest
from memory.settings import IngestSettings
from streams import tracing
from streams.agents.batches import Batches
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.job_topic import JobTopic, decode_job
from streams.spending import spend
from streams.workers.jobs import Message, TakenJobs
from tests.fakes.producer import FakeProducer
from tests.fakes.world import World

LOG = structlog.stdlib.get_logger("test")
LIMITS = replace(IngestSettings(), batch_items=8, embedder_patience=timedelta(0))
PRIVATE = "the diagnosis of Mrs Lindqvist"


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    stop = tracing.configure_tracing("test", exporter=exporter)
    yield exporter
    stop()


def named(spans: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in spans.get_finished_spans() if span.name == name]


def trace(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def is_below(child: ReadableSpan, parent: ReadableSpan) -> bool:
    assert child.parent is not None
    assert parent.context is not None
    return bool(child.parent.span_id == parent.context.span_id)


def record(number: int, headers: tracing.Headers, *, tree: str = "t") -> Delivery:
    value = json.dumps({"tree": tree, "id": f"e{number}", "text": f"{PRIVATE} topic{number % 3}"}).encode()
    return Delivery(topic="turns", partition=0, offset=number, key=b"k", value=value, headers=tuple(headers))


class Chain:
    """Ingestion and summaries over one store, joined by what a fake producer was given."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder / "store.db")
        self.producer = FakeProducer()
        self.topic = JobTopic(self.producer, "jobs")
        self.ingest = Ingest(
            store=self.world.store,
            leases=self.world.leases,
            jobs=self.topic,
            embedder=self.world.embedder,
            clock=self.world.clock,
            views=self.world.views,
            settings=LIMITS,
        )
        dead = DeadLetters(self.producer, "dead", self.world.clock)
        self.batches = Batches(
            ingest=self.ingest, store=self.world.store, jobs=self.topic, dead=dead, clock=self.world.clock, limits=LIMITS, log=LOG
        )
        self.jobs = TakenJobs(self.world.jobs, room=100, before=self._nothing, clock=self.world.clock, log=LOG)
        self.world.summarize.stages.told = spend

    async def summarize(self) -> list[SummaryJob]:
        """Take every job that was sent, and do it."""
        sent = self.producer.of("jobs")
        for offset, message in enumerate(sent):
            headers = tuple(message.headers)
            delivery = Delivery(topic="jobs", partition=0, offset=offset, key=message.key, value=message.value, headers=headers)
            taken = Message(delivery, lambda: None)
            self.jobs.stand(taken)
            await self.jobs.take(decode_job(delivery.value), taken)
        done = []
        while self.jobs.backlog():
            job = await self.jobs.claim()
            await self.world.summarize.refresh(job.tree, job.node)
            await self.jobs.done(job)
            done.append(job)
        return done

    @staticmethod
    async def _nothing() -> None:
        """No dead letters are sent."""


async def test_one_trace_from_producer_to_summary(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    chain = Chain(tmp_path)
    await chain.batches.take([record(0, ())])
    spans.clear()
    await chain.batches.take([record(3, tracing.sent("turns"))])
    [job] = await chain.summarize()
    [produced], [process], [insert] = named(spans, "send turns"), named(spans, "process turns"), named(spans, "insert")
    [sent], [summarize] = named(spans, "send jobs"), named(spans, "summarize")
    assert {trace(span) for span in (produced, process, insert, sent, summarize)} == {trace(produced)}
    assert is_below(process, produced)
    assert is_below(insert, produced)
    assert is_below(sent, insert)
    assert is_below(summarize, sent)
    assert [span.kind for span in (produced, process, summarize)] == [SpanKind.PRODUCER, SpanKind.CONSUMER, SpanKind.CONSUMER]
    assert summarize.attributes is not None
    assert (summarize.attributes["banyan.tree"], summarize.attributes["banyan.node"]) == (job.tree, job.node)
    for stage, parent in (("decode", process), ("embed", process), ("plan", insert), ("commit", insert), ("model", summarize)):
        [found] = named(spans, stage)
        assert is_below(found, parent)
        assert found.start_time is not None
        assert found.end_time is not None
        assert found.start_time <= found.end_time
    await chain.world.close()


async def test_what_one_batch_serves_is_linked_to_it(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    chain = Chain(tmp_path)
    records = [record(number, tracing.sent("turns"), tree=f"t{number % 2}") for number in range(6)]
    produced = named(spans, "send turns")
    await chain.batches.take(records)
    [process] = named(spans, "process turns")
    assert trace(process) == trace(produced[0])
    assert {link.context.trace_id for link in process.links} == {trace(span) for span in produced[1:]}
    inserts = named(spans, "insert")
    # Each tree's part goes on with the trace of its first record, and names the batch.
    assert [trace(span) for span in inserts] == [trace(produced[0]), trace(produced[1])]
    assert process.context is not None
    assert all(process.context.span_id in {link.context.span_id for link in span.links} for span in inserts)
    await chain.summarize()
    assert {trace(span) for span in named(spans, "summarize")} == {trace(produced[0]), trace(produced[1])}
    await chain.world.close()


async def test_a_record_of_a_producer_that_traces_goes_on_with_its_trace(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    chain = Chain(tmp_path)
    theirs = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    garbage = [("traceparent", b"\xff\x00"), ("tracestate", b"")]
    await chain.batches.take([record(0, garbage), record(1, [("traceparent", theirs.encode())])])
    [process] = named(spans, "process turns")
    assert f"{trace(process):032x}" == "4bf92f3577b34da6a3ce929d0e0e4736"
    await chain.world.close()


async def test_nothing_that_users_wrote_is_in_a_trace(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    chain = Chain(tmp_path)

    async def broken() -> int:
        raise ValueError(PRIVATE)

    await chain.batches.take([record(number, ()) for number in range(6)])
    await chain.summarize()
    chain.topic.flush = broken  # type: ignore[method-assign]
    with pytest.raises(ValueError, match="diagnosis"):
        await chain.batches.take([record(7, ())])
    [*_, failed] = named(spans, "process turns")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "ValueError")
    written = "".join(span.to_json() for span in spans.get_finished_spans())
    assert "Lindqvist" not in written
    await chain.world.close()


async def test_a_job_that_is_given_back_ends_its_trace(tmp_path: Path, spans: InMemorySpanExporter) -> None:
    chain = Chain(tmp_path)
    await chain.batches.take([record(number, ()) for number in (0, 3)])
    [message] = chain.producer.of("jobs")
    taken = Message(Delivery(topic="jobs", partition=0, offset=0, key=None, value=message.value), lambda: None)
    chain.jobs.stand(taken)
    await chain.jobs.take(decode_job(message.value), taken)
    await chain.jobs.retry(await chain.jobs.claim(), after=0.0)
    assert len(named(spans, "summarize")) == 1
    await chain.jobs.done(await chain.jobs.claim())
    assert len(named(spans, "summarize")) == 2
    assert tracing.trace_id() is None
    await chain.world.close()


async def test_without_tracing_nothing_is_carried(tmp_path: Path) -> None:
    chain = Chain(tmp_path)
    assert tracing.sent("turns") == tracing.carried() == ()
    assert tracing.begin("summarize") is None
    assert tracing.span("insert") is tracing.span("process turns")
    assert tracing.trace_id() is None
    await chain.batches.take([record(number, ()) for number in range(6)])
    assert {name for message in chain.producer.sent for name, _ in message.headers} == {"banyan-schema"}
    await chain.world.close()


def test_stopping_ends_it(spans: InMemorySpanExporter) -> None:
    stop = tracing.configure_tracing("another", exporter=spans)
    assert tracing.sent("turns")
    stop()
    assert tracing.sent("turns") == ()


def test_without_the_packages_it_says_how_to_get_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(SettingError, match=r"banyan-memory\[tracing\]"):
        tracing.configure_tracing("test")
