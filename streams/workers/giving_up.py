"""Jobs that no attempt helps become dead letters, which are sent before the jobs' messages are acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from memory.errors import NOT_THE_RECORD
from memory.ports.jobs import SummaryJob
from streams.acknowledging import Message
from streams.dead_letters import DeadLetters, TooManyDeadLettersError
from streams.job_topic import job_delivery
from streams.retrying import Retry


class GivingUp:
    """
    Gives jobs up, and tells when the process cannot go on.

    Args:
        dead: where letters are collected.
        topic: of the jobs.
        retry: waits until letters can be sent.
        end: ends the process, for a reason.
        log: gets one line a job.
    """

    def __init__(
        self, dead: DeadLetters, topic: str, *, retry: Retry, end: Callable[[str], None], log: structlog.stdlib.BoundLogger
    ) -> None:
        self._dead = dead
        self._topic = topic
        self._retry = retry
        self._end = end
        self._log = log
        self._now = 0

    def give_up(self, job: SummaryJob, messages: Sequence[Message], error: Exception) -> None:
        """
        Make a job a dead letter.

        Raises:
            SettingError, StoreDamagedError, StoreVersionError: every other summary would be given up for it too; the process ends.
        """
        if isinstance(error, NOT_THE_RECORD):
            self._end(f"no summary can be made: {type(error).__name__}: {error}")
            raise error
        self._now += 1
        self._log.warning("summary given up", tree=job.tree, node=job.node, attempts=job.attempt + 1, error=str(error))
        # One letter is enough for all messages about the node: what is to be done is in the store. A job that came with no
        # message (contributions that were left over) has one too, or nobody would learn of it.
        first, *others = [message.delivery for message in messages] or [job_delivery(self._topic, job)]
        self._dead.put(first, error, attempts=job.attempt + 1, also=others)

    async def ended(self) -> None:
        """
        Send letters; to be awaited when a job has ended, before its messages are acknowledged.

        Raises:
            Exception: whatever keeps letters from being sent; the process ends.
        """
        if self._now:
            self._now -= 1
        else:
            self._dead.passed(1)
        try:
            await self._retry("sending dead letters", self._dead.flush)
        except TooManyDeadLettersError as error:
            self._end(str(error))
            raise
        except Exception as error:
            # The job's messages would be held for ever, and all that stands behind them.
            self._end(f"dead letters cannot be sent: {type(error).__name__}: {error}")
            raise
