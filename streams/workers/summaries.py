"""`banyan.summaries`: each node that a job names is brought up to date by a pool of calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.errors import RecordError
from streams.deliveries import delivery
from streams.job_topic import decode_message
from streams.schema_versions import check_schema
from streams.workers.jobs import Message

if TYPE_CHECKING:
    from streams.pipelines import Summarizing
    from streams.runtime import Runtime


def register(app: Any, runtime: Runtime[Summarizing]) -> None:
    """Add the agent to a Faust app."""
    topic = app.topic(runtime.topics.summaries.name, key_serializer="raw", value_serializer="raw")

    async def summaries(stream: Any) -> None:
        await _consume(stream, runtime)

    app.agent(topic, name="summaries", concurrency=1)(summaries)


async def _consume(stream: Any, runtime: Runtime[Summarizing]) -> None:
    """Hand jobs to the pool, which acknowledges them; wait while it has enough."""
    settings = runtime.settings.worker
    async for events in stream.noack_take(settings.batch_records, within=settings.batch_wait.total_seconds()):
        await runtime.unless_draining()
        deliveries = [delivery(event) for event in events]
        runtime.taken(deliveries)
        with runtime.batch(deliveries):
            pipeline = await runtime.pipeline()
            pipeline.jobs.acknowledged = runtime.acknowledged
            pipeline.pool.start()
            await _take(pipeline, events)
        await pipeline.jobs.room()


async def _take(pipeline: Summarizing, events: Any) -> None:
    bad: list[Message] = []
    for event in events:
        message = Message(delivery(event), event.ack)
        pipeline.jobs.stand(message)
        try:
            check_schema(message.delivery.headers, "summary-job")
            job, whole = decode_message(message.delivery.value)
        except RecordError as error:
            pipeline.dead.put(message.delivery, error)
            bad.append(message)
        else:
            await pipeline.jobs.take(job, message, whole=whole)
    if bad:
        await pipeline.retry("sending dead letters", pipeline.dead.flush)
        await pipeline.jobs.settle(bad)
