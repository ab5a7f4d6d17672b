"""
The second half of an ingestion: plan on the view → compare and apply; refused: catch up and plan again.

The first attempts are made as they are, on the view as it is; after `lease_after` refusals a lease on the paths, taken between
plan and commit, keeps others from refusing it (decision 0016).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memory.changes import ChangeSet, Create, EventEntry, Grow, LogEntry, Move, Step
from memory.errors import ContentionError, LeaseBusyError, LeaseLostError, StoreDamagedError
from memory.model import NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.jobs import SummaryJobs
from memory.ports.leases import Lease, PathLeases
from memory.ports.store import Applied, Seen, Stale, TreeStore
from memory.service.completing import Fresh
from memory.service.finishing import finished
from memory.service.recent import RecentLeaves
from memory.service.stages import Stages
from memory.service.views import Views
from memory.settings import IngestSettings
from memory.structures.base import Structure
from memory.tree.planning import Insertion, Plan
from memory.tree.view import NodeThereError, View

BUSY_MAX = 100_000
"""Trees remembered as busy at most."""
SMALL, SMALL_REFUSALS = 8, 3
"""A batch of so many items at most is planned again after so many refusals before its paths are leased in Redis."""


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


class Committing:
    """
    Commits what was prepared.

    Args:
        store, leases, jobs, clock: the ports.
        views: of this process.
        settings: limits.
        stages: told of `plan`, `lease` and `commit`.
    """

    def __init__(
        self,
        *,
        store: TreeStore,
        leases: PathLeases,
        jobs: SummaryJobs,
        clock: Clock,
        views: Views,
        settings: IngestSettings,
        stages: Stages,
    ) -> None:
        self._store = store
        self._leases = leases
        self._jobs = jobs
        self._clock = clock
        self._views = views
        self._settings = settings
        self._stages = stages
        self._recent = RecentLeaves()
        self._busy: dict[TreeId, None] = {}
        """Trees in which others write, as the last commit there found: a view is worth catching up first."""
        self.counters = IngestCounters()
        self.on_commit: Callable[[TreeId, LogEntry], None] | None = None
        """Called after each commit with what it did, texts and items included."""

    def forget(self, tree: TreeId, nodes: Sequence[NodeId]) -> None:
        """Let go of what is remembered of these nodes' texts."""
        self._recent.drop(tree, nodes)

    async def apply(
        self, tree: TreeId, structure: Structure, waiting: Sequence[tuple[EventEntry, Sequence[Insertion]]]
    ) -> Applied | Seen:
        """
        Put events with their items into the tree, in one commit.

        When it answers `Applied` all is durable and the summary jobs are queued. `Seen`: some had been applied before, and nothing
        was written.

        Raises:
            ContentionError: refused too often; nothing was written.
        """
        insertions = [insertion for _, group in waiting for insertion in group]
        events = tuple(event for event, _ in waiting)
        lease_after = self._lease_after(len(insertions))
        # A small plan that is refused costs no more than reading the log before it; under a lease it is read anyway.
        level = tree not in self._busy or (lease_after > 0 and len(insertions) <= SMALL)
        for attempt in range(self._settings.attempts_max):
            leased = attempt >= lease_after
            try:
                async with self._views.hold(tree, fresh=False) as view:
                    before = view.seq
                    if not level:
                        await self._views.catch_up(tree, view)
                    outcome, dirty = await self._attempt(tree, view, structure, insertions, events, leased=leased)
                    level = isinstance(outcome, Stale) and view.seq >= outcome.seq
            except NodeThereError as error:
                # Half planned: nobody gets this view back.
                return await self._forgotten(tree, events, error)
            if isinstance(outcome, Applied):
                self._settled(tree, busy=attempt > 0 or (lease_after == 0 and outcome.seq > before + 1))
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

    async def _forgotten(self, tree: TreeId, events: Sequence[EventEntry], error: NodeThereError) -> Seen:
        """The events that were forgotten since their receipts were looked for: summaries made for them are still there."""
        receipts = await self._store.receipts(tree, [event.id for event in events])
        if not receipts:
            raise StoreDamagedError(
                f"tree {tree!r} has a node that belongs to none of its events ({error}); run `banyan check`"
            ) from error
        return Seen(receipts=receipts)

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

    def _settled(self, tree: TreeId, *, busy: bool) -> None:
        if not busy:
            self._busy.pop(tree, None)
            return
        self._busy[tree] = None
        if len(self._busy) > BUSY_MAX:
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
        with self._stages("plan"):
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
        if not await self._store.changes(tree, view.seq, limit=1):
            return plan
        view.undo(plan.steps)
        await self._views.catch_up(tree, view)
        if any(leaf in view.homes for event in events for leaf in event.leaves):
            return None
        holds = all(
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
            with self._stages("commit"):
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
            with self._stages("lease"):
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
