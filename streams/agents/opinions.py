"""
A micro-batch of feedback into the weights of what it is about: decode, weigh tree by tree, send dead letters.

As with `streams.agents.batches`, when `Opinions.take` returns the effect of every message is durable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from memory.errors import BanyanError, RecordError, StoreDamagedError, StoreVersionError
from memory.model import TreeId
from memory.records import Feedback
from memory.results import EventResult, EventStatus
from memory.service.weighing import Weighing
from streams import tracing
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery
from streams.events import decode_feedback
from streams.retrying import Retry
from streams.schema_versions import check_schema


@dataclass(frozen=True, slots=True)
class _Taken:
    delivery: Delivery
    feedback: Feedback


class Opinions:
    """
    Puts batches of feedback into trees.

    Args:
        weighing: the use case.
        dead: where letters go before a batch is done; not judged by their share.
        retry: waits for what is away.
        log: gets one line a batch.
    """

    def __init__(self, *, weighing: Weighing, dead: DeadLetters, retry: Retry, log: structlog.stdlib.BoundLogger) -> None:
        self._weighing = weighing
        # Feedback on what is not in yet, or has been forgotten, says nothing about the settings: a worker must not end for it.
        self._dead = dead.unwatched()
        self._retry = retry
        self._log = log
        self.events: Counter[str] = Counter()
        """Feedback by `EventStatus`, since the process started."""

    async def take(self, deliveries: Sequence[Delivery], *, committed: Callable[[], None] = lambda: None) -> None:
        """
        Weigh what the messages are about, those of one tree in the given order.

        Raises:
            StoreDamagedError, StoreVersionError: the process is to end; nothing may be acknowledged.
        """
        topic = deliveries[0].topic if deliveries else ""
        groups: dict[TreeId, list[_Taken]] = {}
        for each in deliveries:
            try:
                check_schema(each.headers, Feedback.KIND)
                feedback = decode_feedback(each.value or b"")
            except RecordError as error:
                self._give_up(each, error)
                continue
            groups.setdefault(TreeId(feedback.tree), []).append(_Taken(each, feedback))
        statuses: Counter[str] = Counter()
        with tracing.span(f"process {topic}", kind="consumer", of=(each.headers for each in deliveries)):
            for tree, group in groups.items():
                statuses.update(each.status.value for each in await self._weigh(tree, group))
        committed()
        dead = await self._retry("sending dead letters", self._dead.flush)
        self.events.update(statuses)
        self._log.info("batch", topic=topic, records=len(deliveries), trees=len(groups), **statuses, dead_letters=dead)

    async def _weigh(self, tree: TreeId, group: Sequence[_Taken]) -> Sequence[EventResult]:
        try:
            results = await self._retry("weighing", lambda: self._weighing.take(tree, [taken.feedback for taken in group]))
        except (StoreDamagedError, StoreVersionError):
            raise
        except BanyanError as error:  # of the tree: there is none, or it keeps no weights
            for taken in group:
                self._give_up(taken.delivery, error)
            return []
        for taken, result in zip(group, results, strict=True):
            if result.status is EventStatus.REJECTED:
                field, _, reason = result.reason.partition(": ")
                self._give_up(taken.delivery, RecordError(field, reason))
            elif result.status is EventStatus.CONFLICT:
                self._log.warning("conflict", tree=tree, event_id=result.id, at=taken.delivery.place, reason=result.reason)
        return results

    def _give_up(self, delivery: Delivery, error: Exception) -> None:
        letter = self._dead.put(delivery, error)
        if self._dead.told:
            self._log.warning("dead letter", at=delivery.place, error=letter.error, attempts=1)
