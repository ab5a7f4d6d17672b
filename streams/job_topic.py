"""Summary jobs on their way to Kafka: what ingestion puts. `streams.workers.summaries` takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from memory.errors import RecordError
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob, SummaryJobs
from memory.records import tree_id
from streams.producing import SCHEMA_HEADER, Message, Producer
from streams.topics import job_key

SCHEMA = b"summary-job/1"
_ONLY_PUTS = "jobs on the topic are taken by `banyan worker summaries`"


class JobMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One job on the topic: nothing but which node. What is to be done is read from the store."""

    tree: str
    node: str


def decode_job(data: bytes | None) -> tuple[TreeId, NodeId]:
    """
    Which node a message is about.

    Raises:
        RecordError: it is no job.
    """
    try:
        message = msgspec.json.decode(data or b"", type=JobMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError("record", f"is no summary job: {error}") from error
    if not message.node:
        raise RecordError("node", "is empty")
    return tree_id(message.tree), NodeId(message.node)


class JobTopic(SummaryJobs):
    """
    The end of the queue that ingestion sees: it only puts.

    `put` collects, at the price of a set; `flush` sends each node once, however many commits of a batch named it, and returns
    when the broker has them. A crash in between is made good by the input topic: its records come again, are answered as seen,
    and the jobs of their dirty ancestors are put again.

    Args:
        producer: ours.
        topic: the name of the topic of jobs.
    """

    def __init__(self, producer: Producer, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self._unsent: dict[tuple[TreeId, NodeId], None] = {}
        self._sending = asyncio.Lock()

    async def put(self, tree: TreeId, nodes: Sequence[NodeId]) -> None:
        """Collect the nodes."""
        for node in nodes:
            self._unsent[tree, node] = None

    async def flush(self) -> int:
        """
        Send what was put; returns how many. On an error all are kept for the next call.

        When it returns, everything put before the call is on the broker, also what another task's call was sending.

        Raises:
            BrokerUnavailableError, BrokerRefusedError: Kafka did not take them.
        """
        async with self._sending:
            jobs, self._unsent = self._unsent, {}
            try:
                await self._producer.send(
                    Message(
                        topic=self._topic,
                        value=msgspec.json.encode(JobMessage(tree=tree, node=node)),
                        key=job_key(tree, node),
                        headers=[(SCHEMA_HEADER, SCHEMA)],
                    )
                    for tree, node in jobs
                )
            except BaseException:
                self._unsent = {**jobs, **self._unsent}
                raise
            return len(jobs)

    async def claim(self) -> SummaryJob:
        """Not here."""
        raise TypeError(_ONLY_PUTS)

    async def done(self, job: SummaryJob) -> None:  # noqa: ARG002
        """Not here."""
        raise TypeError(_ONLY_PUTS)

    async def retry(self, job: SummaryJob, *, after: float) -> None:  # noqa: ARG002
        """Not here."""
        raise TypeError(_ONLY_PUTS)

    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs put and not yet sent; of one tree or of all."""
        return sum(1 for each, _ in self._unsent if tree is None or each == tree)
