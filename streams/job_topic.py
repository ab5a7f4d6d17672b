"""Summary jobs on their way to Kafka: what ingestion puts. `streams.workers.summaries` takes them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from memory.errors import RecordError
from memory.model import NodeId, TreeId
from memory.ports.jobs import SummaryJob, SummaryJobs
from memory.records import tree_id
from streams import tracing
from streams.dead_letters import NO_PLACE
from streams.deliveries import Delivery
from streams.producing import Message, Producer
from streams.schema_versions import SCHEMA_HEADER, schema_of
from streams.topics import job_key

SCHEMA = schema_of("summary-job", 1)
WHOLE_SCHEMA = schema_of("summary-job", 2)
"""Of what stands for a whole tree. A reader of version 1 would take it for a job of the one node, and lose the others."""
_ONLY_PUTS = "jobs on the topic are taken by `banyan worker summaries`"


class JobMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One job on the topic: nothing but which node. What is to be done is read from the store."""

    tree: str
    node: str
    seq: int = 0
    """The commit that made the node dirty; 0 where it is not known which."""
    whole: bool = False
    """Whether it stands for all nodes of the tree that are dirty, not for this one alone."""


def decode_message(data: bytes | None) -> tuple[SummaryJob, bool]:
    """
    What a message is about, and whether it stands for all dirty nodes of its tree.

    Raises:
        RecordError: it is no job.
    """
    job = decode_job(data)
    return job, msgspec.json.decode(data or b"", type=JobMessage).whole


def whole_tree(topic: str, tree: TreeId, node: NodeId) -> Message:
    """
    A message that stands for all nodes of a tree that are dirty.

    Args:
        topic: of jobs.
        tree: which.
        node: one of them. No node has its key, so that no job takes its place when the topic is compacted.
    """
    value = msgspec.json.encode(JobMessage(tree=tree, node=node, whole=True))
    return Message(topic=topic, value=value, key=job_key(tree, NodeId("")), headers=[(SCHEMA_HEADER, WHOLE_SCHEMA)])


def decode_job(data: bytes | None) -> SummaryJob:
    """
    What a message is about.

    Raises:
        RecordError: it is no job.
    """
    try:
        message = msgspec.json.decode(data or b"", type=JobMessage)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise RecordError("record", f"is no summary job: {error}") from error
    if not message.node:
        raise RecordError("node", "is empty")
    if message.seq < 0:
        raise RecordError("seq", "is negative")
    return SummaryJob(tree=tree_id(message.tree), node=NodeId(message.node), seq=message.seq)


def job_delivery(topic: str, job: SummaryJob) -> Delivery:
    """A job that came with no message, as if it had: for its dead letter, which sends it when it is replayed."""
    value = msgspec.json.encode(JobMessage(tree=job.tree, node=job.node, seq=job.seq))
    key, headers = job_key(job.tree, job.node), ((SCHEMA_HEADER, SCHEMA),)
    return Delivery(topic=topic, partition=NO_PLACE, offset=NO_PLACE, key=key, value=value, headers=headers)


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
        self._unsent: dict[tuple[TreeId, NodeId], int] = {}
        """The commit that each is about."""
        self._traced: dict[tuple[TreeId, NodeId], tracing.Headers] = {}
        """Of those that are traced, what carries the trace that made the node dirty first."""
        self._whole: dict[TreeId, NodeId] = {}
        self._sending = asyncio.Lock()

    async def put(self, tree: TreeId, nodes: Sequence[NodeId], *, seq: int = 0) -> None:
        """Collect the nodes."""
        carried = tracing.carried()
        for node in nodes:
            self._unsent[tree, node] = _later(self._unsent.get((tree, node), seq), seq)
            if carried:
                self._traced.setdefault((tree, node), carried)

    def put_whole(self, tree: TreeId, node: NodeId) -> None:
        """Collect a message that stands for all nodes of a tree that are dirty, one of which is given."""
        self._whole[tree] = node

    async def flush(self) -> int:
        """
        Send what was put; returns how many. On an error all are kept for the next call.

        When it returns, everything put before the call is on the broker, also what another task's call was sending.

        Raises:
            BrokerUnavailableError, BrokerRefusedError: Kafka did not take them.
        """
        async with self._sending:
            jobs, self._unsent = self._unsent, {}
            whole, self._whole = self._whole, {}
            try:
                await self._producer.send(whole_tree(self._topic, tree, node) for tree, node in whole.items())
                await self._producer.send(
                    Message(
                        topic=self._topic,
                        value=msgspec.json.encode(JobMessage(tree=tree, node=node, seq=seq)),
                        key=job_key(tree, node),
                        headers=[(SCHEMA_HEADER, SCHEMA), *tracing.sent(self._topic, after=self._traced.get((tree, node), ()))],
                    )
                    for (tree, node), seq in jobs.items()
                )
            except BaseException:
                for key, seq in self._unsent.items():
                    jobs[key] = _later(jobs.get(key, seq), seq)
                self._unsent = jobs
                self._whole = {**whole, **self._whole}
                raise
            for each in jobs.keys() & self._traced.keys():
                del self._traced[each]
            return len(jobs) + len(whole)

    async def claim(self) -> SummaryJob:
        """Not here."""
        raise TypeError(_ONLY_PUTS)

    async def done(self, job: SummaryJob) -> None:  # noqa: ARG002
        """Not here."""
        raise TypeError(_ONLY_PUTS)

    async def retry(self, job: SummaryJob, *, after: float, failed: bool = True) -> None:  # noqa: ARG002
        """Not here."""
        raise TypeError(_ONLY_PUTS)

    def hurry(self, tree: TreeId | None = None) -> None:
        """Nothing waits here for more."""

    def backlog(self, tree: TreeId | None = None) -> int:
        """Jobs put and not yet sent; of one tree or of all."""
        return sum(1 for each, _ in self._unsent if tree is None or each == tree)


def _later(one: int, other: int) -> int:
    """Which commit a job is about that stands for two; not known (0) where it is not of one of them."""
    return max(one, other) if one and other else 0
