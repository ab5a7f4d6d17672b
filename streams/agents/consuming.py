"""The loop that all agents of records share: read ahead, put micro-batches into the trees, acknowledge in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from streams.acknowledging import Message
from streams.agents.lanes import Lanes
from streams.deliveries import Delivery, Later, delivery

if TYPE_CHECKING:
    from streams.pipelines import Ingesting
    from streams.runtime import Runtime


class Takes(Protocol):
    """What batches of one topic are given to."""

    async def take(self, deliveries: Sequence[Delivery], *, committed: Callable[[], None]) -> Sequence[Later] | None:
        """See `streams.agents.batches.Batches.take`; returns what is to be given again, if anything."""


Chosen = Callable[["Ingesting"], Takes]
"""Which part of the pipeline that is."""


async def consume(stream: Any, runtime: Runtime[Ingesting], chosen: Chosen = lambda pipeline: pipeline.batches) -> None:
    """
    Read a Faust stream to its end.

    Faust commits past a held record at the head of a partition, so the order of acknowledgements is the whole of the guarantee: of
    each partition in order of arrival, after everything that the records caused is durable. An error that left this function
    would acknowledge what it was on; it ends the process instead.
    """
    settings = runtime.settings
    now = asyncio.get_running_loop().time
    lanes = Lanes(window=settings.worker.read_ahead, share=settings.memory.ingest.batch_items, now=now)
    reading = asyncio.current_task()
    assert reading is not None
    working = asyncio.ensure_future(_work(lanes, runtime, chosen))
    # One that ends by itself has failed; then nothing is to be read either.
    working.add_done_callback(lambda done: None if done.cancelled() else reading.cancel())
    try:
        async for events in stream.noack_take(settings.worker.batch_records, within=settings.worker.batch_wait.total_seconds()):
            await runtime.unless_draining()
            messages = [Message(delivery(event), event.ack) for event in events]
            runtime.taken([message.delivery for message in messages])
            lanes.stand(messages)
            await lanes.room()
        await lanes.rest()
    except asyncio.CancelledError:
        if working.done() and not working.cancelled() and (error := working.exception()) is not None:
            raise error from None
        raise
    finally:
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)


async def _work(lanes: Lanes, runtime: Runtime[Ingesting], chosen: Chosen) -> None:
    """One batch after the other, each from all trees in turn."""
    settings = runtime.settings.worker
    while True:
        messages = await lanes.take(settings.batch_records, within=settings.batch_wait.total_seconds())
        await runtime.unless_draining()
        deliveries = [message.delivery for message in messages]
        with runtime.batch(deliveries):
            pipeline = await runtime.pipeline()
            later = await chosen(pipeline).take(deliveries, committed=lanes.committed) or ()
            waits = {(each.delivery.partition, each.delivery.offset): each.seconds for each in later}
            places = [(message.delivery.partition, message.delivery.offset) for message in messages]
            for message, place in zip(messages, places, strict=True):
                if place in waits:
                    lanes.put_off(message, waits[place])
            acknowledged = lanes.settle([each for each, place in zip(messages, places, strict=True) if place not in waits])
        runtime.acknowledged(acknowledged)
