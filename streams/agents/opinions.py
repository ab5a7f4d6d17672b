"""A micro-batch of feedback into the weights of what it is about."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import structlog

from memory.errors import RecordError
from memory.model import TreeId
from memory.records import Feedback
from memory.results import EventStatus
from memory.service.weighing import Weighing
from streams.agents.by_tree import ByTree, Taken
from streams.dead_letters import DeadLetters
from streams.events import decode_feedback
from streams.retrying import Retry


class Opinions(ByTree[Feedback]):
    """
    Puts batches of feedback into trees.

    Args:
        weighing: the use case.
        dead, retry, log: see `ByTree`.
    """

    def __init__(self, *, weighing: Weighing, dead: DeadLetters, retry: Retry, log: structlog.stdlib.BoundLogger) -> None:
        super().__init__(Feedback.KIND, decode_feedback, dead=dead, retry=retry, log=log)
        self._weighing = weighing

    async def deal(self, tree: TreeId, group: Sequence[Taken[Feedback]]) -> Counter[str]:
        """See `ByTree.deal`: there is no such tree, or it keeps no weights."""
        results = await self.retry("weighing", lambda: self._weighing.take(tree, [taken.said for taken in group]))
        for taken, result in zip(group, results, strict=True):
            if result.status is EventStatus.REJECTED:
                field, _, reason = result.reason.partition(": ")
                self.give_up(taken.delivery, RecordError(field, reason))
            elif result.status is EventStatus.CONFLICT:
                self.log.warning("conflict", tree=tree, event_id=result.id, at=taken.delivery.place, reason=result.reason)
        return Counter(result.status.value for result in results)
