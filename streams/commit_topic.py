"""`banyan.commits`: what an ingest worker has put into trees, for whoever wants to follow it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from memory.changes import Create, LogEntry, forgotten
from memory.model import NodeKind, TreeId
from memory.ports.store import TreeStore
from streams import tracing
from streams.producing import Message, Producer
from streams.schema_versions import SCHEMA_HEADER, schema_of

SCHEMA = schema_of("commit")


class CommitMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One commit of records, or of forgets; no text. The same commit may come again; tree and seq tell it from all others."""

    tree: str
    seq: Annotated[int, Meta(ge=1, description="Number of the commit in its tree. Not every number comes: summaries commit too.")]
    at: Annotated[datetime, Meta(description="When it was made, UTC.")]
    events: Annotated[list[str], Meta(description="Ids of the turns and documents that it put in.")]
    leaves: Annotated[int, Meta(ge=0, description="Items that it put in: one a turn, one a chunk of a document.")]
    summaries: Annotated[int, Meta(ge=0, description="Summary nodes that it made.")]
    forgotten: Annotated[list[str], Meta(description="Ids of events that it forgot: what was kept of them is to go.")] = []


def message_of(tree: TreeId, entry: LogEntry) -> CommitMessage:
    """What is said of a commit."""
    made = [step.kind for step in entry.steps if isinstance(step, Create)]
    leaves = made.count(NodeKind.LEAF)
    return CommitMessage(
        tree=tree,
        seq=entry.seq,
        at=entry.at,
        events=list(entry.events),
        leaves=leaves,
        summaries=len(made) - leaves,
        forgotten=list[str](forgotten(entry)),
    )


class CommitTopic:
    """
    Says what was committed, at least once.

    `committed` collects; `flush` sends, and returns when the broker has it, before the records are acknowledged. What a crash in
    between left unsaid is said when the records come again (`again`).

    Args:
        producer: ours.
        topic: the name of the topic.
        repeats: whether commits of records that come again are said again.
    """

    def __init__(self, producer: Producer, topic: str, *, repeats: bool = True) -> None:
        self._producer = producer
        self._topic = topic
        self._repeats = repeats
        self._unsent: dict[tuple[TreeId, int], CommitMessage] = {}
        self._sending = asyncio.Lock()

    def committed(self, tree: TreeId, entry: LogEntry) -> None:
        """A commit was made; nothing is said of one that only noted a forget which found nothing."""
        message = message_of(tree, entry)
        if message.events or message.forgotten:
            self._unsent[tree, entry.seq] = message

    async def again(self, store: TreeStore, tree: TreeId, seqs: Iterable[int]) -> None:
        """Commits of records that have come again: what they did is read from the store."""
        if self._repeats:
            await self.read(store, tree, seqs)

    async def read(self, store: TreeStore, tree: TreeId, seqs: Iterable[int]) -> None:
        """Commits whose numbers are known: what they did is read from the store."""
        for seq in sorted(set(seqs)):
            for entry in await store.changes(tree, seq - 1, limit=1):
                if entry.seq == seq:
                    self.committed(tree, entry)

    async def flush(self) -> int:
        """
        Send what was collected; returns how many. On an error all are kept for the next call.

        Raises:
            BrokerUnavailableError, BrokerRefusedError: Kafka did not take them.
        """
        async with self._sending:
            unsent, self._unsent = self._unsent, {}
            try:
                await self._producer.send(
                    Message(
                        topic=self._topic,
                        value=msgspec.json.encode(message),
                        key=tree.encode(),
                        headers=[(SCHEMA_HEADER, SCHEMA), *tracing.sent(self._topic)],
                    )
                    for (tree, _), message in unsent.items()
                )
            except BaseException:
                self._unsent = {**unsent, **self._unsent}
                raise
            return len(unsent)
