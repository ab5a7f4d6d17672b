"""The loop that all agents of records share: take a micro-batch, have it put into the trees, acknowledge it in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streams.deliveries import delivery

if TYPE_CHECKING:
    from streams.pipelines import Ingesting
    from streams.runtime import Runtime


async def consume(stream: Any, runtime: Runtime[Ingesting]) -> None:
    """
    Read a Faust stream to its end.

    Faust commits past a held record at the head of a partition, so the order of acknowledgements is the whole of the guarantee:
    one batch at a time, in order of arrival, after everything that the batch caused is durable. An error that left this function
    would acknowledge what it was on; it ends the process instead.
    """
    settings = runtime.settings.worker
    async for events in stream.noack_take(settings.batch_records, within=settings.batch_wait.total_seconds()):
        await runtime.unless_draining()
        deliveries = [delivery(event) for event in events]
        runtime.taken(deliveries)
        with runtime.batch():
            pipeline = await runtime.pipeline()
            await pipeline.batches.take(deliveries)
            for event in events:
                event.ack()
        runtime.acknowledged(deliveries)
