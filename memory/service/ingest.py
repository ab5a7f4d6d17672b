"""
One micro-batch of records of one tree into that tree (design section 3).

`preparing` embeds, in one call; `committing` plans on the view and has the store compare and apply. While one batch is committed
the next is prepared. The effect is once: an event's id is remembered in the same atomic step as its leaves, and one that is seen
again is answered with its first receipt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from memory.changes import EventEntry, LogEntry
from memory.errors import EmbedderError, TreeNotFoundError
from memory.model import EventId, NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.embedder import Embedder
from memory.ports.jobs import SummaryJobs
from memory.ports.labels import LabelExtractor
from memory.ports.leases import PathLeases
from memory.ports.store import Receipt, Seen, TreeStore
from memory.records import Record
from memory.results import EventResult, EventStatus
from memory.service.committing import Committing, IngestCounters
from memory.service.labelling import Labelling
from memory.service.preparing import Prepared, Preparing
from memory.service.stages import Stages
from memory.service.views import Views
from memory.settings import IngestSettings
from memory.structures.base import Structure
from memory.tree.planning import Insertion, leaf_id

__all__ = ["Ingest", "IngestCounters", "Prepared"]


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
        labels: says where items belong, for structures that place by labels; None leaves it to their vectors.
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
        labels: LabelExtractor | None = None,
    ) -> None:
        self.labelling = None if labels is None else Labelling(extractor=labels, views=views, clock=clock)
        """Counts what was labelled; None where nothing is."""
        self.stages = Stages(clock)
        """`embed`, `plan`, `lease` (the wait for one), `commit`."""
        self._preparing = Preparing(
            store=store,
            embedder=embedder,
            clock=clock,
            views=views,
            settings=settings,
            stages=self.stages,
            structure=structure,
            parameters=parameters,
            structure_binds=structure_binds,
            labelling=self.labelling,
        )
        self._committing = Committing(
            store=store, leases=leases, jobs=jobs, clock=clock, views=views, settings=settings, stages=self.stages
        )
        views.on_gone(self._committing.forget)

    @property
    def counters(self) -> IngestCounters:
        """What was done so far."""
        return self._committing.counters

    def on_wait(self, call: Callable[[EmbedderError, float], None]) -> None:
        """Have `call` called before each wait, in seconds, for an embedding model that is away."""
        self._preparing.on_wait = call

    def on_commit(self, call: Callable[[TreeId, LogEntry], None]) -> None:
        """Have `call` called after each commit with what it did, texts and items included."""
        self._committing.on_commit = call

    async def ensure_tree(self, tree: TreeId) -> Structure:
        """
        The tree's structure; the tree is made if it does not exist.

        Raises:
            TreeMismatchError: it was made with another embedding model, or with another structure where that binds.
        """
        return await self._preparing.ensure_tree(tree)

    def forget(self, tree: TreeId, nodes: Sequence[NodeId]) -> None:
        """Let go of what is remembered of these nodes' texts."""
        self._committing.forget(tree, nodes)

    def knows(self, tree: TreeId) -> bool:
        """Whether `ensure_tree` has nothing to wait for."""
        return self._preparing.knows(tree)

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
            StoreUnavailableError: also where the store has lost a tree, which the next call makes anew.
        """
        try:
            return await self._preparing.prepare_all(batches)
        except TreeNotFoundError as error:
            raise self._preparing.lost(batches, error) from error

    async def commit(self, prepared: Prepared, records: Sequence[Record]) -> list[EventResult]:
        """
        Apply what was prepared and tell what became of each record, in the order of `records`.

        When it returns everything accepted is durable and its summary jobs are queued.

        Raises:
            ContentionError: refused too often; nothing of the batch was written.
            StoreUnavailableError: also where the store has lost the tree, which the next call makes anew.
        """
        try:
            return await self._commit(prepared, records)
        except TreeNotFoundError as error:
            raise self._preparing.lost([prepared.tree], error) from error

    async def _commit(self, prepared: Prepared, records: Sequence[Record]) -> list[EventResult]:
        receipts = dict(prepared.known)
        accepted: set[EventId] = set()
        waiting = [(_entry(record, group), group) for record, group in zip(prepared.records, prepared.insertions, strict=True)]
        while waiting:
            structure = await self._preparing.ensure_tree(prepared.tree)
            outcome = await self._committing.apply(prepared.tree, structure, waiting)
            if isinstance(outcome, Seen):
                receipts.update(outcome.receipts)
                waiting = [(event, group) for event, group in waiting if event.id not in outcome.receipts]
                continue
            for event, _ in waiting:
                accepted.add(event.id)
                receipts[event.id] = Receipt(event_id=event.id, seq=outcome.seq, digest=event.digest, leaves=event.leaves)
            waiting = []
        return [_result(prepared.tree, record, receipts[EventId(record.id)], accepted) for record in records]


def _entry(record: Record, group: Sequence[Insertion]) -> EventEntry:
    event = EventId(record.id)
    return EventEntry(id=event, digest=record.digest, leaves=tuple(leaf_id(event, insertion.item.chunk) for insertion in group))


def _result(tree: TreeId, record: Record, receipt: Receipt, accepted: set[EventId]) -> EventResult:
    event = EventId(record.id)
    if event in accepted:
        return EventResult(tree=tree, id=event, status=EventStatus.ACCEPTED, seq=receipt.seq)
    if receipt.forgotten:
        return EventResult(tree=tree, id=event, status=EventStatus.FORGOTTEN, seq=receipt.seq, reason="was forgotten")
    if receipt.digest == record.digest:
        return EventResult(tree=tree, id=event, status=EventStatus.DUPLICATE, seq=receipt.seq, reason="was applied before")
    reason = "the id was applied before with another text; the first one stands"
    return EventResult(tree=tree, id=event, status=EventStatus.CONFLICT, seq=receipt.seq, reason=reason)
