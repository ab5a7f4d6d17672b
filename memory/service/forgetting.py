"""
Forgetting (P6, decision 0024): leaves go, summaries above them are made anew out of what is left, events stay as tombstones.

read receipts → plan on the view → compare and apply, in one atomic step; refused: catch up and plan again. No model is waited for:
in that step every summary that spoke of what goes gets a provisional text and vector of what stays, and waits to be made properly.
Then the index and the change log let go of it, on disk too, and only after that is it answered.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from memory.changes import NOTE, ChangeSet, Rewrite, removed
from memory.errors import ContentionError
from memory.model import MARK_BITS, EventId, Item, NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJobs
from memory.ports.store import Applied, Receipt, Seen, TreeStore
from memory.results import ForgetReport
from memory.service.finishing import finished
from memory.service.indexing import Indexing
from memory.service.known import KnownStructures
from memory.service.remnants import PlannedRemoval, Remnants
from memory.service.views import Views

BATCH_MAX = 64
"""Events that one commit forgets."""
LEAVES_MAX = 500
"""Leaves that one commit removes; more only where one event has more."""
ATTEMPTS_MAX = 50
LOG_PER_READ = 200


@dataclass(slots=True)
class _Counts:
    """What one call has done so far."""

    forgotten: int = 0
    unknown: int = 0
    already: int = 0
    leaves: int = 0
    gone: int = 0
    remade: dict[NodeId, None] = field(default_factory=dict)
    """Summaries that are to be made anew; several commits may have changed one."""
    seq: int = 0
    """Of the last commit."""


class Forgetting:
    """
    Forgets events.

    Args:
        store, jobs, clock: the ports.
        views: of this process.
        indexing: of the index that questions to this process are answered from; None where it answers none, and whoever does
            follows the change log.
    """

    def __init__(
        self,
        *,
        store: TreeStore,
        jobs: SummaryJobs,
        clock: Clock,
        views: Views,
        indexing: Indexing | None = None,
    ) -> None:
        self._store = store
        self._jobs = jobs
        self._clock = clock
        self._views = views
        self._indexing = indexing
        self._structures = KnownStructures(store)
        self._remnants = Remnants(store)
        self._listeners: list[Callable[[TreeId, Sequence[NodeId]], None]] = []

    def on_forgotten(self, call: Callable[[TreeId, Sequence[NodeId]], None]) -> None:
        """Have `call` told, after each commit, of the nodes that are gone: caches of this process let go of them."""
        self._listeners.append(call)

    async def forget(self, tree: TreeId, events: Sequence[EventId], *, note: EventId | None = None) -> ForgetReport:
        """
        Forget events, whether they have come or not; when it returns nothing of them is left, in memory or on disk.

        Repeating it changes nothing, and finishes what a call that was cut off has left.

        Args:
            tree: which.
            events: their ids.
            note: is remembered with the first commit, whatever there is to forget, and not reported (`note_of`, `noted`).

        Raises:
            TreeNotFoundError: there is no such tree.
            ContentionError: refused too often; what was committed before stands, the same call may be repeated.
            StoreBusyError: all is forgotten, but somebody reads an earlier state of the store; the same call may be repeated.
        """
        counts = _Counts()
        await self._store.tree(tree)
        waiting = list(dict.fromkeys(events if note is None else (note, *events)))
        try:
            for start in range(0, len(waiting), BATCH_MAX):
                some = waiting[start : start + BATCH_MAX]
                receipts = await self._store.receipts(tree, some)
                for batch in _by_leaves(some, receipts):
                    await self._batch(tree, batch, receipts, counts)
        finally:
            # Not after each commit: a model would be paid for summaries that the next one changes again.
            if counts.remade:
                await self._jobs.put(tree, list(counts.remade), seq=counts.seq)
        await self.finish(tree)
        return ForgetReport(
            tree=tree,
            seq=(await self._store.tree(tree)).seq,
            forgotten=counts.forgotten,
            unknown=counts.unknown,
            already=counts.already,
            leaves=counts.leaves,
            summaries_gone=counts.gone,
            summaries_remade=len(counts.remade),
        )

    async def of_conversation(self, tree: TreeId, conversation: str, *, through: int | None = None) -> list[EventId]:
        """The events whose items belong to a conversation, as of now; of these only what commits up to `through` put in."""
        return await self._chosen(tree, lambda item: item.conversation == conversation, through)

    async def before(self, tree: TreeId, time: datetime, *, through: int | None = None) -> list[EventId]:
        """
        The events that were said or published before a time, as of now; those that say none are not among them.

        Of these only what commits up to `through` put in.
        """
        return await self._chosen(tree, lambda item: item.at is not None and item.at < time, through)

    async def noted(self, tree: TreeId, note: EventId) -> int | None:
        """The commit that a note was remembered with; None for one that is not there."""
        receipt = (await self._store.receipts(tree, [note])).get(note)
        return None if receipt is None else receipt.seq

    async def finish(self, tree: TreeId) -> None:
        """
        Take what commits removed out of the index and the change log, as far as that is not done; idempotent.

        Raises:
            StoreBusyError: somebody reads an earlier state of the store, so that its files cannot be cleaned yet.
        """
        info = await self._store.tree(tree)
        if info.redacted >= info.floor:
            return
        nodes: dict[NodeId, int] = {}
        after = info.redacted
        while after < info.floor:
            entries = await self._store.changes(tree, after, limit=LOG_PER_READ)
            if not entries:
                break
            for entry in entries:
                gone = removed(entry) if entry.seq <= info.floor else []
                nodes.update(dict.fromkeys(gone, entry.seq))
                if gone:
                    # What this commit itself says of those that stay is made of what was left.
                    nodes.update((step.node, entry.seq - 1) for step in entry.steps if isinstance(step, Rewrite))
            after = entries[-1].seq
        if self._indexing is not None:
            await self._indexing.catch_up(tree)
            await self._indexing.expunge(tree)
        await self._store.redact(tree, nodes, to=info.floor)

    async def _chosen(self, tree: TreeId, fits: Callable[[Item], bool], through: int | None) -> list[EventId]:
        found: dict[EventId, None] = {}
        async for node in self._store.all_nodes(tree):
            if node.item is not None and fits(node.item) and (through is None or node.mark >> MARK_BITS <= through):
                found[node.item.event_id] = None
        return list(found)

    async def _batch(self, tree: TreeId, events: Sequence[EventId], receipts: Mapping[EventId, Receipt], counts: _Counts) -> None:
        for attempt in range(ATTEMPTS_MAX):
            if attempt:
                receipts = await self._store.receipts(tree, events)
            already = [event for event in events if event in receipts and receipts[event].forgotten]
            counts.already += _events(already)
            await self._put_again(tree, {receipts[event].seq for event in already})
            events = [event for event in events if event not in already]
            if not events:
                return
            outcome, plan = await self._attempt(tree, events, receipts)
            if isinstance(outcome, Applied):
                known = sum(event in receipts for event in events)
                counts.forgotten += known
                counts.unknown += _events(events) - known
                counts.leaves += len(plan.leaves)
                counts.gone += len(plan.removal.nodes) - len(plan.leaves)
                counts.remade |= dict.fromkeys(plan.removal.rewritten)
                for node in plan.removal.nodes:
                    counts.remade.pop(node, None)
                counts.seq = outcome.seq
                for listener in self._listeners:
                    listener(tree, plan.removal.nodes)
                return
            if attempt and not isinstance(outcome, Seen):
                # Two that refuse each other in step would go on doing so.
                await self._clock.sleep(random.uniform(0, 0.001 * 2 ** min(attempt, 6)))  # noqa: S311  # jitter, not a secret
        raise ContentionError(
            f"tree {tree!r}: forgetting {len(events)} events was refused {ATTEMPTS_MAX} times because others changed the same "
            "summaries; try again, with fewer writers on this tree",
            retry_after=1.0,
        )

    async def _attempt(
        self, tree: TreeId, events: Sequence[EventId], receipts: Mapping[EventId, Receipt]
    ) -> tuple[object, PlannedRemoval]:
        """Plan and commit once."""
        structure = await self._structures.of(tree)
        leaves = [leaf for event in events if event in receipts for leaf in receipts[event].leaves]
        async with self._views.hold(tree) as view:
            plan = await self._remnants.plan(tree, structure, view, leaves)
            changes = ChangeSet(tree=tree, steps=plan.steps, expects=plan.expects, forgets=tuple(events), at=self._clock.now())
            outcome = await finished(self._store.apply(changes))
            if isinstance(outcome, Applied) and outcome.seq == view.seq + 1:
                for step in plan.steps:
                    view.apply(step)
                view.seq = outcome.seq
        return outcome, plan

    async def _put_again(self, tree: TreeId, commits: set[int]) -> None:
        """Queue again what earlier commits have left to be made: whoever made them may have died before it was queued."""
        for seq in commits:
            entries = await self._store.changes(tree, seq - 1, limit=1)
            rewritten = [step.node for entry in entries for step in entry.steps if isinstance(step, Rewrite)]
            found = await self._store.nodes(tree, rewritten)
            await self._jobs.put(tree, [node.id for node in found.values() if node.pending])


def note_of(message: bytes) -> EventId:
    """The name of a note that stands for a message; nothing of the message can be read in it, and no event has such an id."""
    return EventId(f"{NOTE}forget {hashlib.blake2b(message, digest_size=16).hexdigest()}")


def _events(names: Iterable[EventId]) -> int:
    """How many there are without notes."""
    return sum(not name.startswith(NOTE) for name in names)


def _by_leaves(events: Sequence[EventId], receipts: Mapping[EventId, Receipt]) -> list[list[EventId]]:
    """The events in batches of at most `LEAVES_MAX` leaves."""
    batches: list[list[EventId]] = [[]]
    size = 0
    for event in events:
        leaves = len(receipts[event].leaves) if event in receipts else 0
        if batches[-1] and size + leaves > LEAVES_MAX:
            batches.append([])
            size = 0
        batches[-1].append(event)
        size += leaves
    return batches
