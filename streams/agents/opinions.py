"""
A micro-batch of feedback into the weights of what it is about.

Turns and documents are on other topics, so that feedback may come before what it is about: then it waits, without anything
waiting behind it, and is given up when that has not come in time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import structlog

from memory.errors import RecordError, TreeNotFoundError
from memory.model import TreeId
from memory.records import Feedback
from memory.results import EventStatus
from memory.service.weighing import Weighing, is_early
from streams.agents.by_tree import ByTree, Taken
from streams.agents.early import Early
from streams.dead_letters import DeadLetters
from streams.events import decode_feedback
from streams.retrying import Retry

_WHAT_TO_DO = "once it is there, `banyan dead-letters replay` puts this in"


class Opinions(ByTree[Feedback]):
    """
    Puts batches of feedback into trees.

    Args:
        weighing: the use case.
        early: says how long what comes too early waits.
        dead, retry, log: see `ByTree`.
    """

    def __init__(
        self, *, weighing: Weighing, early: Early, dead: DeadLetters, retry: Retry, log: structlog.stdlib.BoundLogger
    ) -> None:
        super().__init__(Feedback.KIND, decode_feedback, dead=dead, retry=retry, log=log)
        self._weighing = weighing
        self._early = early

    async def deal(self, tree: TreeId, group: Sequence[Taken[Feedback]]) -> Counter[str]:
        """See `ByTree.deal`: the tree keeps no weights."""
        try:
            results = await self.retry("weighing", lambda: self._weighing.take(tree, [taken.said for taken in group]))
        except TreeNotFoundError as error:
            for each in group:
                self._has_waited(each, TreeNotFoundError(f"{error}; {_WHAT_TO_DO}"))
            return Counter()
        counts: Counter[str] = Counter()
        for taken, result in zip(group, results, strict=True):
            if result.status is EventStatus.REJECTED:
                field, _, reason = result.reason.partition(": ")
                if is_early(result):
                    if not self._has_waited(taken, RecordError(field, f"{reason}; {_WHAT_TO_DO}")):
                        continue
                else:
                    self.give_up(taken.delivery, RecordError(field, reason), attempts=self._early.over(taken.delivery))
            else:
                self._early.over(taken.delivery)
                if result.status is EventStatus.CONFLICT:
                    self.log.warning("conflict", tree=tree, event_id=result.id, at=taken.delivery.place, reason=result.reason)
            counts[result.status.value] += 1
        return counts

    def _has_waited(self, taken: Taken[Feedback], error: Exception) -> bool:
        """Whether feedback that came too early has waited its time, and is given up with the error."""
        seconds = self._early.wait(taken.delivery, TreeId(taken.said.tree))
        if seconds is not None:
            self.put_off(taken.delivery, seconds)
            return False
        self.give_up(taken.delivery, error, attempts=self._early.over(taken.delivery))
        return True
