"""Pools of several processes over one Redis: each node is paid for once, and a provider's wish holds for all."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from memory.adapters.embedded.clock import SystemClock
from memory.adapters.embedded.extractive import ExtractiveKeywords
from memory.adapters.embedded.hashing import HashingEmbedder
from memory.adapters.embedded.jobs import InProcessSummaryJobs
from memory.adapters.openai.summarizer import OpenAISummarizer
from memory.adapters.redis import Link, RedisCallBudget, RedisNodeClaims, RedisPathLeases, RedisTreeStore
from memory.errors import SummarizerError
from memory.ports.budget import Rate
from memory.ports.summarizer import Summarizer, SummaryRequest
from memory.records import Record
from memory.service.ingest import Ingest
from memory.service.pool import SummaryPool
from memory.service.stream import stream
from memory.service.summarize import Summarize
from memory.service.views import Views
from memory.settings import IngestSettings, SummarySettings
from tests.fakes.openai_server import FakeOpenAIServer
from tests.fakes.summarizer import FakeSummarizer
from tests.fakes.world import TREE, turns
from tests.integration.redis.conftest import Connect

pytestmark = pytest.mark.slow
SETTINGS = SummarySettings(workers=4)


class Process:
    """What one process would have: a link, a queue and a pool of its own."""

    def __init__(self, link: Link, summarizer: Summarizer) -> None:
        clock = SystemClock()
        self.store = RedisTreeStore(link)
        self.jobs = InProcessSummaryJobs(clock)
        self.claims = RedisNodeClaims(link)
        self.summarize = Summarize(
            store=self.store,
            leases=RedisPathLeases(link),
            embedder=HashingEmbedder(),
            summarizer=summarizer,
            keywords=ExtractiveKeywords(),
            clock=clock,
            settings=SETTINGS,
        )
        self.pool = SummaryPool(jobs=self.jobs, claims=self.claims, summarize=self.summarize, settings=SETTINGS)


async def fill(link: Link, records: list[Record]) -> None:
    store, clock = RedisTreeStore(link), SystemClock()
    ingest = Ingest(
        store=store,
        leases=RedisPathLeases(link),
        jobs=InProcessSummaryJobs(clock),
        embedder=HashingEmbedder(),
        clock=clock,
        views=Views(store, bytes_max=1 << 26),
        settings=IngestSettings(),
    )
    await stream(ingest, records, batch_items=64)


async def test_processes_that_have_the_same_jobs_pay_for_each_once(connect: Connect) -> None:
    await fill(await connect(), list(turns(range(120))))
    summarizer = FakeSummarizer(SystemClock(), delay=0.3)
    processes = [Process(await connect(), summarizer) for _ in range(3)]
    dirty = await processes[0].store.dirty(TREE)
    assert len(dirty) > 8
    for process in processes:
        await process.jobs.put(TREE, [node.node for node in dirty])
        process.pool.start()
    async with asyncio.timeout(60):
        while any(process.jobs.backlog() for process in processes):  # noqa: ASYNC110  # three queues
            await asyncio.sleep(0.05)
    for process in processes:
        await process.pool.stop()
    assert len(summarizer.requests) == len(dirty)
    assert (await processes[0].store.stats(TREE)).dirty == 0
    assert sum(process.pool.counts.busy for process in processes) > 0


async def test_failures_of_a_node_are_one_count_for_all_and_outlive_the_process(connect: Connect) -> None:
    await fill(await connect(), list(turns([0, 7])))
    for number in range(1, 4):
        process = Process(await connect(), FakeSummarizer(poison=lambda _: True))
        [dirty] = await process.store.dirty(TREE)
        await process.jobs.put(TREE, [dirty.node])
        process.pool.start()
        async with asyncio.timeout(30):
            while process.pool.counts.failed == 0:  # noqa: ASYNC110  # what is waited for is a counter
                await asyncio.sleep(0.02)
        await process.pool.stop()
        [failure] = await process.claims.failures(TREE)
        assert failure.failures >= number
        assert "never likes" in failure.reason


async def test_what_a_provider_says_to_one_process_holds_for_all(connect: Connect) -> None:
    request = SummaryRequest(existing="", new=("Ana: I moved.",), descendants=2, covered=0)
    with FakeOpenAIServer() as server:
        workers = []
        for _ in range(3):
            budget = RedisCallBudget(await connect(), "provider", Rate())
            workers.append(OpenAISummarizer(model="fake", api_key=None, base_url=server.base_url, budget=budget))
        server.fail_next("status", status=429, retry_after="600")
        answers: Counter[bool] = Counter()
        for worker in workers:
            with pytest.raises(SummarizerError) as caught:
                await worker.summarize(request)
            answers[590 < (caught.value.retry_after or 0.0) <= 600] += 1
        assert (answers, len(server.requests)) == ({True: 3}, 1)
        for worker in workers:
            await worker.close()
