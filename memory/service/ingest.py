"""
One micro-batch of records of one tree into that tree (design section 3).

embed (one call) → plan on the view → compare and apply; refused: catch up and plan again. The first attempts are made as they are,
on the view as it is; after `lease_after` refusals a lease on the paths, taken between plan and commit, keeps others from refusing
it (decision 0013).
The effect is once: an event's id is remembered in the same atomic step as its leaves, and one that is seen again is answered with
its first receipt.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.changes import ChangeSet, Create, EventEntry, Grow, LogEntry, Move, Step
from memory.errors import ContentionError, EmbedderError, LeaseBusyError, LeaseLostError, StoreDamagedError, TreeMismatchError
from memory.model import EventId, Item, NodeId, TreeId, TreeInfo, Vector
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.jobs import SummaryJobs
from memory.ports.leases import Lease, PathLeases
from memory.ports.store import Applied, Receipt, Seen, Stale, TreeStore
from memory.records import Record
from memory.results import EventResult, EventStatus
from memory.retrieval.text import embedded_text
from memory.service.chunking import items
from memory.service.completing import Fresh
from memory.service.embedding import check_model, embed
from memory.service.finishing import finished
from memory.service.recent import RecentLeaves
from memory.service.stages import Stages
from memory.service.views import Views
from memory.settings import IngestSettings
from memory.structures import registry
from memory.structures.base import Structure
from memory.tree.planning import Insertion, Plan, leaf_id
from memory.tree.view import View

EMBEDDER_WAIT_MAX = 30.0  # seconds between attempts
STRUCTURES_MAX = 100_000
"""Trees whose structure is remembered, about 200 bytes each; that of another one is read again."""
ALIKE_MAX = 1_000
SMALL, SMALL_REFUSALS = 8, 3
"""A batch of so many items at most is planned again after so many refusals before its paths are leased in Redis."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Records of one tree that are new to it as far as was known, embedded and ready to be committed."""

    tree: TreeId
    records: tuple[Record, ...]
    """One an id."""
    insertions: tuple[tuple[Insertion, ...], ...]
    """Of each record, its items."""
    known: Mapping[EventId, Receipt]
    """Receipts of the records that had been applied before."""


@dataclass(slots=True)
class IngestCounters:
    """What ingestion has done since the process started."""

    items: int = 0
    commits: int = 0
    refused: int = 0
    """Commits that had to be planned again."""
    leased: int = 0
    """Commits that were planned under a lease."""
    unleased: int = 0
    """Leases that were not to be had in time; the commit was tried without one."""
    contributions: int = 0
    """Leaves that came to wait at summaries, counted at each of them."""


class Ingest:
    """
    Puts records into trees.

    Args:
        store, leases, jobs, embedder, clock: the ports.
        views: of this process; shared with queries.
        settings: limits.
        structure: how a tree that does not exist yet is made, and its parameters (None: the defaults).
        structure_binds: whether a tree that was made with another structure is refused. Otherwise it goes on growing as it was
            made: for workers, who write to everybody's trees.
    """

    def __init__(
        self,
        *,
        store: TreeStore,
        leases: PathLeases,
        jobs: SummaryJobs,
        embedder: Embedder,
        clock: Clock,
        views: Views,
        settings: IngestSettings,
        structure: str = "memtree",
        parameters: Mapping[str, float] | None = None,
        structure_binds: bool = True,
    ) -> None:
        self._store = store
        self._leases = leases
        self._jobs = jobs
        self._embedder = embedder
        self._clock = clock
        self._views = views
        self._settings = settings
        self._default = registry.make(structure, embedder.model, parameters)
        self._structure_binds = structure_binds
        self._structures: dict[TreeId, Structure] = {}
        self._alike: dict[tuple[Any, ...], Structure] = {}
        """Structures by what they are made of: one serves all trees that are alike."""
        self._recent = RecentLeaves()
        self._busy: dict[TreeId, None] = {}
        """Trees whose last commit was refused once or more: others write there, and a view is worth catching up first."""
        self.counters = IngestCounters()
        self.on_wait: Callable[[EmbedderError, float], None] | None = None
        """Called before each wait, in seconds, for an embedding model that is away."""
        self.on_commit: Callable[[TreeId, LogEntry], None] | None = None
        """Called after each commit with what it did, texts and items included."""
        self.stages = Stages(clock)
        """`embed`, `plan`, `lease` (the wait for one), `commit`."""

    async def ensure_tree(self, tree: TreeId) -> Structure:
        """
        The tree's structure; the tree is made if it does not exist.

        Raises:
            TreeMismatchError: it was made with another embedding model or structure.
        """
        known = self._structures.pop(tree, None)
        if known is None:
            known = await self._make(tree)
        self._structures[tree] = known
        if len(self._structures) > STRUCTURES_MAX:
            del self._structures[next(iter(self._structures))]
        return known

    async def _make(self, tree: TreeId) -> Structure:
        info = await self._store.create_tree(
            TreeInfo(
                id=tree,
                structure=self._default.name,
                model=self._embedder.model,
                parameters=self._default.parameters(),
                created_at=self._clock.now(),
            )
        )
        check_model(info, self._embedder)
        if self._structure_binds and info.structure != self._default.name:
            raise TreeMismatchError(
                f"tree {tree!r} is a {info.structure} tree, {self._default.name} is configured; "
                f"use --structure {info.structure}, or another tree name"
            )
        if not info.seq:
            self._views.begin(tree, info.model.dimension)
        identity = (info.structure, info.model, tuple(sorted(info.parameters.items())))
        if identity not in self._alike:
            if len(self._alike) >= ALIKE_MAX:
                self._alike.clear()
            self._alike[identity] = registry.of(info)
        return self._alike[identity]

    def knows(self, tree: TreeId) -> bool:
        """Whether `ensure_tree` has nothing to wait for."""
        return tree in self._structures

    async def prepare(self, tree: TreeId, records: Sequence[Record]) -> Prepared:
        """
        Look up receipts, cut into items, embed; writes nothing but a new tree.

        Args:
            tree: of all records.
            records: at most one an event id.

        Raises:
            EmbedderError, EmbedderAnswerError: nothing was embedded.
        """
        [prepared] = await self.prepare_all({tree: records})
        return prepared

    async def prepare_all(self, batches: Mapping[TreeId, Sequence[Record]]) -> list[Prepared]:
        """
        `prepare` for several trees, in their order, embedded in one call.

        Raises:
            EmbedderError, EmbedderAnswerError: nothing was embedded.
        """
        missing = [tree for tree in batches if not self.knows(tree)]
        if missing:
            await asyncio.gather(*map(self.ensure_tree, missing))
        receipts = await self._store.receipts_among(
            {tree: [EventId(record.id) for record in records] for tree, records in batches.items()}
        )
        known = [receipts[tree] for tree in batches]
        fresh = [
            tuple(record for record in records if record.id not in seen)
            for records, seen in zip(batches.values(), known, strict=True)
        ]
        cut = [[items(record, chunk_tokens=self._settings.chunk_tokens) for record in records] for records in fresh]
        rows = iter(await self._embed([item for batch in cut for group in batch for item in group]))
        return [
            Prepared(
                tree, records, tuple(tuple(Insertion(item=item, vector=next(rows)) for item in group) for group in batch), seen
            )
            for tree, records, batch, seen in zip(batches, fresh, cut, known, strict=True)
        ]

    async def commit(self, prepared: Prepared, records: Sequence[Record]) -> list[EventResult]:
        """
        Apply what was prepared and tell what became of each record, in the order of `records`.

        When it returns everything accepted is durable and its summary jobs are queued.

        Raises:
            ContentionError: refused too often; nothing of the batch was written.
        """
        receipts = dict(prepared.known)
        accepted: set[EventId] = set()
        waiting = [(record, group) for record, group in zip(prepared.records, prepared.insertions, strict=True)]
        while waiting:
            outcome = await self._apply(prepared.tree, waiting)
            if isinstance(outcome, Seen):
                receipts.update(outcome.receipts)
                waiting = [(record, group) for record, group in waiting if record.id not in outcome.receipts]
                continue
            for record, group in waiting:
                event = EventId(record.id)
                accepted.add(event)
                leaves = tuple(leaf_id(event, insertion.item.chunk) for insertion in group)
                receipts[event] = Receipt(event_id=event, seq=outcome.seq, digest=record.digest, leaves=leaves)
            waiting = []
        return [_result(prepared.tree, record, receipts[EventId(record.id)], accepted) for record in records]

    async def _embed(self, wanted: Sequence[Item]) -> list[Vector]:
        if not wanted:
            return []
        texts = [embedded_text(item) for item in wanted]
        end = self._clock.monotonic() + self._settings.embedder_patience.total_seconds()
        for attempt in itertools.count():
            try:
                with self.stages("embed"):
                    return await embed(self._embedder, texts)
            except EmbedderError as error:
                wait = max(error.retry_after or 0.0, min(2.0**attempt, EMBEDDER_WAIT_MAX))
                if self._clock.monotonic() + wait > end:
                    raise
                if self.on_wait is not None:
                    self.on_wait(error, wait)
                await self._clock.sleep(wait)
        raise AssertionError("itertools.count does not end")

    async def _apply(self, tree: TreeId, waiting: Sequence[tuple[Record, Sequence[Insertion]]]) -> Applied | Seen:
        structure = await self.ensure_tree(tree)
        insertions = [insertion for _, group in waiting for insertion in group]
        events = tuple(_entry(record, group) for record, group in waiting)
        lease_after = self._lease_after(len(insertions))
        # A small plan that is refused costs no more than reading the log before it.
        level = lease_after > 0 and (len(insertions) <= SMALL or tree not in self._busy)
        for attempt in range(self._settings.attempts_max):
            leased = attempt >= lease_after
            async with self._views.hold(tree, fresh=not level) as view:
                outcome, dirty = await self._attempt(tree, view, structure, insertions, events, leased=leased)
                level = isinstance(outcome, Stale) and view.seq >= outcome.seq
            if isinstance(outcome, Applied):
                self._settled(tree, refused=attempt > 0)
                self.counters.commits += 1
                self.counters.items += len(insertions)
                await self._jobs.put(tree, dirty, seq=outcome.seq)
                return outcome
            if isinstance(outcome, Seen):
                return outcome
            self.counters.refused += 1
            if leased or attempt:
                # Two processes that refuse each other in step would go on doing so.
                await self._clock.sleep(random.uniform(0, 0.001 * 2 ** min(attempt, 6)))  # noqa: S311  # jitter, not a secret
        raise ContentionError(
            f"tree {tree!r}: a commit of {len(insertions)} items was refused {self._settings.attempts_max} times because others "
            "changed the same path; try again, with fewer writers on this tree or larger batches",
            retry_after=1.0,
        )

    def _lease_after(self, items: int) -> int:
        """
        Refusals after which paths are leased.

        Where leases are near they cost nothing. Elsewhere they are two round trips and make others wait, for which a small batch is
        planned again a few times, and a large one once.
        """
        if self._settings.lease_after is not None:
            return self._settings.lease_after
        if not self._leases.remote:
            return 0
        return SMALL_REFUSALS if items <= SMALL else 1

    def _settled(self, tree: TreeId, *, refused: bool) -> None:
        if not refused:
            self._busy.pop(tree, None)
            return
        self._busy[tree] = None
        if len(self._busy) > STRUCTURES_MAX:
            del self._busy[next(iter(self._busy))]

    async def _attempt(
        self,
        tree: TreeId,
        view: View,
        structure: Structure,
        insertions: Sequence[Insertion],
        events: tuple[EventEntry, ...],
        *,
        leased: bool,
    ) -> tuple[Applied | Seen | Stale | None, tuple[NodeId, ...]]:
        """
        Plan and commit once; the view is left as of a commit.

        Returns:
            The outcome, None when it was not sent or the lease had ended, and the summaries that it made dirty.
        """
        if (seen := await self._seen(tree, view, events)) is not None:
            return seen, ()
        with self.stages("plan"):
            plan: Plan | None = structure.plan(view, insertions)
        assert plan is not None
        lease = await self._lease(tree, plan) if leased else None
        try:
            if lease is not None:
                plan = await self._revalidated(tree, view, plan, structure, insertions, events)
            if plan is None:
                return None, ()
            outcome = await self._commit(tree, view, plan, events, lease)
            if isinstance(outcome, Applied):
                self.counters.contributions += sum(len(step.nodes) for step in plan.steps if isinstance(step, Grow))
                lease = None if outcome.released else lease
            return outcome, plan.summaries
        finally:
            if lease is not None:
                await self._leases.release(lease)

    async def _seen(self, tree: TreeId, view: View, events: Sequence[EventEntry]) -> Seen | None:
        """The events whose leaves are in the view already: planned again, a leaf would be in it twice."""
        known = [event.id for event in events if any(leaf in view.homes for leaf in event.leaves)]
        if not known:
            return None
        receipts = await self._store.receipts(tree, known)
        if len(receipts) < len(known):
            missing = next(event for event in known if event not in receipts)
            raise StoreDamagedError(f"tree {tree!r} has a leaf of the event {missing!r}, but no receipt of it; run `banyan check`")
        return Seen(receipts=receipts)

    async def _revalidated(
        self,
        tree: TreeId,
        view: View,
        plan: Plan,
        structure: Structure,
        insertions: Sequence[Insertion],
        events: Sequence[EventEntry],
    ) -> Plan | None:
        """
        The plan, made again if what was committed while the lease was waited for touched its paths.

        None, and a view without the plan, when one of the events was committed meanwhile. A plan made again may leave the leased
        nodes; then its expectations still protect it, the lease only no longer keeps others from making it fail.
        """
        seq = view.seq
        view.undo(plan.steps)
        await self._views.catch_up(tree, view)
        if view.seq != seq and any(leaf in view.homes for event in events for leaf in event.leaves):
            return None
        holds = view.seq == seq or all(
            expected.node in view.branches and view.branches[expected.node].routing == expected.routing for expected in plan.expects
        )
        if not holds:
            return structure.plan(view, insertions)
        for step in plan.steps:
            view.apply(step)
        return plan

    async def _commit(
        self, tree: TreeId, view: View, plan: Plan, events: tuple[EventEntry, ...], lease: Lease | None
    ) -> Applied | Seen | Stale | None:
        changes = ChangeSet(
            tree=tree, steps=await self._completed(tree, plan), expects=plan.expects, events=events, at=self._clock.now()
        )
        # A cancelled caller must not let go of the lease before it is known whether the commit happened. Without a lease there is
        # nothing to let go of but the view, which is then loaded anew.
        outcome: Applied | Seen | Stale | None
        try:
            with self.stages("commit"):
                work = self._store.apply(changes, lease=lease, release=True, after=view.seq)
                outcome = await (work if lease is None else finished(work))
        except LeaseLostError:
            # This process was stopped, or slow, for longer than the lease lasts: others went on, and so does it.
            outcome = None
        if isinstance(outcome, Applied):
            self._recent.add(tree, changes.steps)
            if self.on_commit is not None:
                ids = tuple(event.id for event in events)
                self.on_commit(tree, LogEntry(seq=outcome.seq, at=changes.at, steps=changes.steps, events=ids))
            if outcome.seq == view.seq + 1:
                view.seq = outcome.seq
                return outcome
        view.undo(plan.steps)
        if isinstance(outcome, Applied | Stale):
            view.catch_up(outcome.missed)
        if isinstance(outcome, Applied) and outcome.seq == view.seq + 1:
            for step in plan.steps:  # in its place, after what others committed before it; else the log brings it back
                view.apply(step)
            view.seq = outcome.seq
        return outcome

    async def _completed(self, tree: TreeId, plan: Plan) -> tuple[Step, ...]:
        fresh = Fresh(plan.steps)
        wanted = fresh.wanted
        found = self._recent.find(tree, wanted)
        if len(found) < len(wanted):
            read = await self._store.nodes(tree, [node for node in wanted if node not in found])
            self._recent.note(tree, read.values())
            found |= read
        return fresh.complete(found)

    async def _lease(self, tree: TreeId, plan: Plan) -> Lease | None:
        """
        Exclusive on the nodes whose children change, shared on the rest of the paths (design section 3, step 2).

        None when it was not to be had in time: whoever has it may be stopped or dead, and expectations keep the commit right.
        """
        made = {step.id for step in plan.steps if isinstance(step, Create)}
        changed = {step.parent for step in plan.steps if isinstance(step, Create)}
        changed |= {step.old_parent for step in plan.steps if isinstance(step, Move)}
        path = {expectation.node for expectation in plan.expects}
        try:
            with self.stages("lease"):
                lease = await self._leases.acquire(
                    tree,
                    shared=sorted(path - changed),
                    exclusive=sorted(changed - made),
                    ttl=self._settings.lease_ttl,
                    wait=self._settings.lease_wait,
                )
        except LeaseBusyError:
            self.counters.unleased += 1
            return None
        self.counters.leased += 1
        return lease


def _entry(record: Record, group: Sequence[Insertion]) -> EventEntry:
    event = EventId(record.id)
    return EventEntry(id=event, digest=record.digest, leaves=tuple(leaf_id(event, insertion.item.chunk) for insertion in group))


def _result(tree: TreeId, record: Record, receipt: Receipt, accepted: set[EventId]) -> EventResult:
    event = EventId(record.id)
    if event in accepted:
        return EventResult(tree=tree, id=event, status=EventStatus.ACCEPTED, seq=receipt.seq)
    if receipt.digest == record.digest:
        return EventResult(tree=tree, id=event, status=EventStatus.DUPLICATE, seq=receipt.seq, reason="was applied before")
    reason = "the id was applied before with another text; the first one stands"
    return EventResult(tree=tree, id=event, status=EventStatus.CONFLICT, seq=receipt.seq, reason=reason)
