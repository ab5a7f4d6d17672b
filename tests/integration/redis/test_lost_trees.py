"""A server that has lost whole trees, below a worker that knew them: its records go in, and none becomes a dead letter."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import structlog

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.adapters.redis import Link, RedisPathLeases, RedisTreeStore
from memory.model import TreeId
from memory.service.ingest import Ingest, Prepared
from memory.service.views import Views
from memory.settings import IngestSettings
from streams.agents.batches import Batches
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.job_topic import JobTopic
from tests.fakes.producer import FakeProducer

LIMITS = replace(IngestSettings(), embedder_patience=timedelta(0))
TREES = ("a", "b")


class LosesBetween(Ingest):
    """The server is emptied once between preparing and committing."""

    link: Link | None = None

    async def prepare_all(self, *args: object, **options: object) -> list[Prepared]:
        prepared = await super().prepare_all(*args, **options)  # type: ignore[arg-type]
        if (link := self.link) is not None:
            self.link = None
            await empty(link)
        return prepared


async def empty(link: Link) -> None:
    """As a restart without a file does, to the keys of this test."""
    for key in await link.command("KEYS", f"{link.settings.prefix}:*"):
        await link.command("DEL", key)


def message(number: int, tree: str) -> Delivery:
    record = {"tree": tree, "id": f"e{number}", "text": f"topic{number % 3} words about subject{number % 3}"}
    return Delivery(topic="turns", partition=0, offset=number, key=b"k", value=json.dumps(record).encode())


async def test_trees_that_the_server_has_lost_are_made_anew(link: Link) -> None:
    store, clock, producer = RedisTreeStore(link), SystemClock(), FakeProducer()
    jobs = JobTopic(producer, "jobs")
    ingest = LosesBetween(
        store=store,
        leases=RedisPathLeases(link),
        jobs=jobs,
        embedder=HashingEmbedder(),
        clock=clock,
        views=Views(store, bytes_max=10_000_000),
        settings=LIMITS,
    )
    batches = Batches(
        ingest=ingest,
        store=store,
        jobs=jobs,
        dead=DeadLetters(producer, "dead", clock),
        clock=clock,
        limits=LIMITS,
        log=structlog.stdlib.get_logger("test"),
    )

    async def take(first: int, count: int) -> None:
        await batches.take([message(number, TREES[number % 2]) for number in range(first, first + count)])

    await take(0, 40)
    await empty(link)
    await take(40, 40)
    ingest.link = link
    await take(80, 40)
    assert producer.of("dead") == []
    # What was there when the server was emptied is `banyan repair`'s to bring back.
    assert [(await store.stats(TreeId(tree))).leaves for tree in TREES] == [20, 20]
