"""
Feedback into the weights of what it is about (H-MEM, section 3.3), once an event.

read the leaves → count the verdicts → compare and apply. What is written is absolute and expects the version that was read, so that
two who weigh one leaf cannot overwrite one another; the event's id is remembered in the same atomic step, as a turn's is.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from memory.changes import Annotate, ChangeSet, EventEntry, Expectation
from memory.errors import ContentionError, NoWeightsError
from memory.model import EventId, Node, NodeId, TreeId
from memory.ports.clock import Clock
from memory.ports.store import Applied, Receipt, Seen, TreeStore
from memory.records import Feedback
from memory.results import EventResult, EventStatus
from memory.structures import registry
from memory.structures.weights import Opinion, heard

BATCH_MAX = 64
"""Feedback that is committed together."""
LEAVES_MAX = 2_000
"""Leaves that a commit weighs; more only where one piece of feedback is about more."""
ATTEMPTS_MAX = 50
_NOT_COME = " is not in the tree"


class Weighing:
    """
    Takes feedback.

    Args:
        store, clock: the ports.
    """

    def __init__(self, *, store: TreeStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def require(self, tree: TreeId) -> None:
        """
        Make sure that a tree takes feedback.

        Raises:
            TreeNotFoundError: there is no such tree; feedback makes none.
            NoWeightsError: its structure keeps no weights.
        """
        info = await self._store.tree(tree)
        if not registry.KINDS[info.structure].structure.keeps_weights:
            keep = ", ".join(name for name, kind in registry.KINDS.items() if kind.structure.keeps_weights)
            raise NoWeightsError(
                f"tree {tree!r} is a {info.structure} tree, which keeps no weights; feedback is taken by {keep} trees"
            )

    async def take(self, tree: TreeId, feedback: Sequence[Feedback]) -> list[EventResult]:
        """
        Apply feedback, and tell what became of each, in the given order.

        Feedback about an event that the tree does not have is rejected: once the event is there, it can be sent again under its id.

        Args:
            tree: of all feedback.
            feedback: with the same id twice, the second is compared with the first.

        Raises:
            TreeNotFoundError, NoWeightsError: as `require` says.
            ContentionError: refused too often; what was answered for before stands, the same call may be repeated.
        """
        await self.require(tree)
        results: list[EventResult] = []
        batch: dict[str, Feedback] = {}
        for each in feedback:
            if each.id in batch or len(batch) >= BATCH_MAX:
                results += await self._batch(tree, list(batch.values()))
                batch = {}
            batch[each.id] = each
        return [*results, *(await self._batch(tree, list(batch.values())))]

    async def _batch(self, tree: TreeId, batch: Sequence[Feedback]) -> list[EventResult]:
        """Feedback with distinct ids."""
        before = await self._store.receipts(tree, list({EventId(name) for each in batch for name in (each.id, each.event)}))
        fresh = [each for each in batch if each.id not in before]
        if len(batch) > 1 and len({leaf for each in fresh for leaf in _named(each, before)}) > LEAVES_MAX:
            half = len(batch) // 2
            return [*await self._batch(tree, batch[:half]), *await self._batch(tree, batch[half:])]
        missing: dict[str, str] = {}
        accepted: dict[str, int] = {}
        for attempt in range(ATTEMPTS_MAX):
            leaves, missing = await self._leaves(tree, fresh)
            fits = [each for each in fresh if each.id not in missing]
            if not fits:
                break
            outcome = await self._store.apply(self._changes(tree, fits, leaves))
            if isinstance(outcome, Applied):
                accepted = {each.id: outcome.seq for each in fits}
                break
            if isinstance(outcome, Seen):
                before |= outcome.receipts
                fresh = [each for each in fresh if each.id not in before]
            elif attempt:
                # Two that refuse each other in step would go on doing so.
                await self._clock.sleep(random.uniform(0, 0.001 * 2 ** min(attempt, 6)))  # noqa: S311  # jitter, not a secret
        else:
            raise ContentionError(
                f"tree {tree!r}: feedback was refused {ATTEMPTS_MAX} times because others weighed the same memories; try again",
                retry_after=1.0,
            )
        return [_result(tree, each, before, missing, accepted) for each in batch]

    async def _leaves(self, tree: TreeId, fresh: Sequence[Feedback]) -> tuple[dict[str, list[Node]], dict[str, str]]:
        """Of each feedback, by its id, the leaves that it is about, or why there are none."""
        receipts = await self._store.receipts(tree, list({EventId(each.event) for each in fresh}))
        named = {each.id: _named(each, receipts) for each in fresh}
        nodes = await self._store.nodes(tree, list({leaf for leaves in named.values() for leaf in leaves}))
        found = {each: [nodes[leaf] for leaf in leaves if leaf in nodes] for each, leaves in named.items()}
        return found, {each.id: _why(each, receipts) for each in fresh if not found[each.id]}

    def _changes(self, tree: TreeId, feedback: Sequence[Feedback], leaves: Mapping[str, Sequence[Node]]) -> ChangeSet:
        opinions: dict[NodeId, list[Opinion]] = {}
        nodes: dict[NodeId, Node] = {}
        for each in feedback:
            for node in leaves[each.id]:
                nodes[node.id] = node
                opinions.setdefault(node.id, []).append(Opinion(each.verdict, each.at))
        return ChangeSet(
            tree=tree,
            steps=tuple(Annotate(node=node, attributes=heard(nodes[node].attributes, said)) for node, said in opinions.items()),
            expects=tuple(Expectation(node=node, version=found.version) for node, found in nodes.items()),
            events=tuple(EventEntry(id=EventId(each.id), digest=each.digest, leaves=()) for each in feedback),
            at=self._clock.now(),
        )


def is_early(result: EventResult) -> bool:
    """Whether feedback was rejected since nothing has come of what it is about: that may yet be to come."""
    return result.status is EventStatus.REJECTED and result.reason.endswith(_NOT_COME)


def _named(feedback: Feedback, receipts: Mapping[EventId, Receipt]) -> tuple[NodeId, ...]:
    receipt = receipts.get(EventId(feedback.event))
    if receipt is None:
        return ()
    return receipt.leaves if feedback.chunk is None else receipt.leaves[feedback.chunk : feedback.chunk + 1]


def _why(feedback: Feedback, receipts: Mapping[EventId, Receipt]) -> str:
    receipt = receipts.get(EventId(feedback.event))
    if receipt is None:
        return f"event: {feedback.event!r}{_NOT_COME}"
    if receipt.forgotten:
        return f"event: {feedback.event!r} was forgotten"
    if receipt.leaves and feedback.chunk is not None:
        return f"chunk: {feedback.event!r} has {len(receipt.leaves)}, the last is {len(receipt.leaves) - 1}"
    return f"event: of {feedback.event!r} there is no leaf in the tree"


def _result(
    tree: TreeId, feedback: Feedback, before: Mapping[EventId, Receipt], missing: Mapping[str, str], accepted: Mapping[str, int]
) -> EventResult:
    event = EventId(feedback.id)
    if event in accepted:
        return EventResult(tree=tree, id=event, status=EventStatus.ACCEPTED, seq=accepted[event])
    receipt = before.get(event)
    if receipt is None:
        return EventResult(tree=tree, id=event, status=EventStatus.REJECTED, seq=0, reason=missing[event])
    if receipt.forgotten:
        return EventResult(tree=tree, id=event, status=EventStatus.FORGOTTEN, seq=receipt.seq, reason="was forgotten")
    if receipt.digest == feedback.digest:
        return EventResult(tree=tree, id=event, status=EventStatus.DUPLICATE, seq=receipt.seq, reason="was applied before")
    reason = "the id was applied before with another content; the first one stands"
    return EventResult(tree=tree, id=event, status=EventStatus.CONFLICT, seq=receipt.seq, reason=reason)
