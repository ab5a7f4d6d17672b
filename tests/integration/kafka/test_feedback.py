"""Feedback that the worker reads before what it is about: waited for, or a dead letter that can be replayed."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.model import EventId, TreeId
from memory.records import Feedback
from memory.structures.weights import APPROVALS
from streams.bootstrap import open_backend
from streams.dead_letters import decode_envelope
from streams.settings import Settings
from streams.topics import topics
from tests.integration.kafka.test_repair import banyan
from tests.integration.kafka.workers import STEADY, Workers, read, send, turns, until_events

pytestmark = pytest.mark.slow
HMEM = {"BANYAN_STRUCTURE": "hmem", **STEADY}


def approval(number: int, event: str) -> Feedback:
    return Feedback(tree="t", id=f"f{number}", event=event, verdict="approval", at=datetime(2026, 5, 8, tzinfo=UTC))


async def approvals(settings: Settings, event: str) -> object:
    backend = await open_backend(settings)
    try:
        receipt = (await backend.store.receipts(TreeId("t"), [EventId(event)]))[EventId(event)]
        nodes = await backend.store.nodes(TreeId("t"), receipt.leaves)
        return nodes[receipt.leaves[0]].attributes.get(APPROVALS)
    finally:
        await backend.close()


async def test_it_waits_for_its_turn_and_others_do_not_wait_for_it(installed: Settings, workers: Workers) -> None:
    worker = workers("worker", "ingest", BANYAN_WORKER_FEEDBACK_WAIT="1h", **HMEM)
    await send(installed, [approval(0, "e7")])
    worker.until("batch")
    assert worker.events("batch")[0]["put_off"] == 1, "there is no such tree yet"
    await send(installed, turns(5))
    await send(installed, [approval(1, "e0")])
    # Five turns and the feedback on what is there; what is about e7 goes on waiting.
    await until_events(installed, 6)
    assert await approvals(installed, "e0") == 1.0
    await send(installed, turns(3, first=5))
    await until_events(installed, 10)
    assert await approvals(installed, "e7") == 1.0
    worker.signal()
    worker.ends()
    assert await read(installed, topics(installed.kafka).dead_letters.name) == []


async def test_what_it_is_about_may_come_after_it_was_given_up(
    installed: Settings, environment: dict[str, str], workers: Workers
) -> None:
    worker = workers("worker", "ingest", BANYAN_WORKER_FEEDBACK_WAIT="0", **HMEM)
    await send(installed, [approval(0, "e0")])
    worker.until("batch")
    [message] = await read(installed, topics(installed.kafka).dead_letters.name)
    assert "`banyan dead-letters replay`" in decode_envelope(message.value).reason
    await send(installed, turns(1))
    await until_events(installed, 1)
    assert banyan(environment, "dead-letters", "replay")["replayed"] == 1
    await until_events(installed, 2)
    assert await approvals(installed, "e0") == 1.0
    worker.signal()
    worker.ends()
