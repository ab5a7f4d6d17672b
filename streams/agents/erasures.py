"""A micro-batch of forgets: what they name goes out of its tree, and whoever follows the tree is told."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from typing import Protocol

import structlog

from memory.errors import TreeNotFoundError
from memory.model import EventId, TreeId
from memory.ports.store import TreeStore
from memory.records import Forget
from memory.results import ForgetReport
from memory.service.forgetting import BATCH_MAX, Forgetting, note_of
from streams.agents.by_tree import ByTree, Taken
from streams.commit_topic import CommitTopic
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.events import decode_forget
from streams.job_topic import JobTopic
from streams.retrying import Retry


class Makes(Protocol):
    """What makes a tree as ingestion would, unless it is there."""

    def __call__(self, tree: TreeId) -> Awaitable[object]:
        """Make it."""


class Erasures(ByTree[Forget]):
    """
    Takes what batches of forgets name out of trees.

    Args:
        opened: gives the use case; asked at the first forget.
        make: makes the tree of an event that is forgotten before anything of its tree has come.
        store: to find what waits for a summary.
        jobs: where the use case puts jobs; sent before a batch is done.
        commits: likewise, what is said of it; None says nothing.
        dead, retry, log: see `ByTree`.
    """

    def __init__(
        self,
        *,
        opened: Callable[[], Awaitable[Forgetting]],
        make: Makes,
        store: TreeStore,
        jobs: JobTopic,
        commits: CommitTopic | None,
        dead: DeadLetters,
        retry: Retry,
        log: structlog.stdlib.BoundLogger,
    ) -> None:
        super().__init__(Forget.KIND, decode_forget, dead=dead, retry=retry, log=log)
        self._opened = opened
        self._make = make
        self._store = store
        self._jobs = jobs
        self._commits = commits
        self.leaves = 0
        """That went, since the process started."""

    async def deal(self, tree: TreeId, group: Sequence[Taken[Forget]]) -> Counter[str]:
        """See `ByTree.deal`: the tree cannot be made."""
        counts: Counter[str] = Counter()
        for some in _parts(group):
            with suppress(TreeNotFoundError):  # nothing is there that could go
                report = await self._forgotten(tree, some)
                counts.update(forgotten=report.forgotten, unknown=report.unknown, already=report.already)
                self.leaves += report.leaves
        await self.retry("sending summary jobs", self._jobs.flush)
        return +counts

    async def again(self, tree: TreeId, events: Sequence[EventId]) -> ForgetReport:
        """
        Forget events that were forgotten before, in a store that may have lost it; says only what it had lost.

        The tree is made if it is not there; the jobs of its summaries are put, and not sent yet.

        Raises:
            TreeMismatchError: it cannot be made.
        """
        await self._there(tree)
        info = await self.retry("reading a tree", lambda: self._store.tree(tree))
        report = await self._forget(tree, events)
        await self._tell_all(tree, events, after=info.seq)
        return report

    async def _forgotten(self, tree: TreeId, some: Sequence[Taken[Forget]]) -> ForgetReport:
        if some[0].said.event is None:
            return await self._selected(tree, some[0])
        events = list(dict.fromkeys(EventId(taken.said.event) for taken in some if taken.said.event is not None))
        await self._there(tree)
        report = await self._forget(tree, events)
        await self._tell_all(tree, events)
        return report

    async def _selected(self, tree: TreeId, taken: Taken[Forget]) -> ForgetReport:
        """Forget a conversation or a past: what is there or, of a message that comes again, what was when it first came."""
        forgetting = await self.retry("opening the index", self._opened)
        note = _note(taken.delivery)
        through = await self.retry("reading what is to be forgotten", lambda: forgetting.noted(tree, note))
        events = await self.retry("reading what is to be forgotten", lambda: _chosen(forgetting, tree, taken.said, through))
        report = await self._forget(tree, events, note)
        await self._tell_all(tree, [note, *events])
        # One that comes again does not find what it named any more, nor therefore the jobs that were not sent.
        await self.retry("reading what waits", lambda: self._put_whole(tree))
        return report

    async def _forget(self, tree: TreeId, events: Sequence[EventId], note: EventId | None = None) -> ForgetReport:
        forgetting = await self.retry("opening the index", self._opened)
        return await self.retry("forgetting", lambda: forgetting.forget(tree, events, note=note))

    async def _there(self, tree: TreeId) -> None:
        try:
            await self.retry("reading a tree", lambda: self._store.tree(tree))
        except TreeNotFoundError:
            await self.retry("making a tree", lambda: self._make(tree))

    async def _tell_all(self, tree: TreeId, events: Sequence[EventId], *, after: int = 0) -> None:
        for first in range(0, len(events), BATCH_MAX):
            await self._tell(tree, events[first : first + BATCH_MAX], after=after)

    async def _tell(self, tree: TreeId, events: Sequence[EventId], *, after: int = 0) -> None:
        """Say by which commits they were forgotten, now or, of what comes again, before: nothing may have been said of those."""
        if (commits := self._commits) is None:
            return
        receipts = await self.retry("reading what was forgotten", lambda: self._store.receipts(tree, events))
        seqs = {receipt.seq for receipt in receipts.values() if receipt.seq > after}
        await self.retry("reading what was forgotten", lambda: commits.read(self._store, tree, seqs))
        await self.retry("saying what was committed", commits.flush)

    async def _put_whole(self, tree: TreeId) -> None:
        waiting = await self._store.dirty(tree, limit=1)
        if waiting:
            self._jobs.put_whole(tree, waiting[0].node)


async def _chosen(forgetting: Forgetting, tree: TreeId, forget: Forget, through: int | None) -> list[EventId]:
    """The events that a forget of a conversation or a past names."""
    if forget.conversation is not None:
        return await forgetting.of_conversation(tree, forget.conversation, through=through)
    assert forget.before is not None
    return await forgetting.before(tree, forget.before, through=through)


def _note(delivery: Delivery) -> EventId:
    """
    Tells a message from all others, however often it comes.

    Not by the forget's own id, which is for logs and may be used again. A topic that was made anew counts from 0 again: hence time
    and content.
    """
    return note_of(f"{delivery.place} {delivery.timestamp!r} ".encode() + (delivery.value or b""))


def _parts(group: Sequence[Taken[Forget]]) -> Iterator[list[Taken[Forget]]]:
    """In order; events that follow one another are forgotten together."""
    for of_events, some in itertools.groupby(group, key=lambda taken: taken.said.event is not None):
        if of_events:
            yield list(some)
        else:
            yield from ([each] for each in some)
