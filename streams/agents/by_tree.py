"""
A micro-batch of messages that say something about a tree: decode, deal with them tree by tree, send dead letters.

As with `streams.agents.batches`, when `ByTree.take` returns the effect of every message is durable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import structlog

from memory.errors import NOT_THE_RECORD, BanyanError, RecordError
from memory.model import TreeId
from streams import tracing
from streams.agents.batches import GIVEN_UP_IN_ROW_MAX, CannotGoOnError
from streams.broker import BrokerRefusedError
from streams.dead_letters import DeadLetters
from streams.deliveries import Delivery, Later
from streams.retrying import Retry
from streams.schema_versions import check_schema

NOT_THE_TREE = (*NOT_THE_RECORD, BrokerRefusedError)
"""Errors that what is said of any other tree would meet too."""


class OfTree(Protocol):
    """What such a message says."""

    @property
    def tree(self) -> str:
        """About which tree."""


Said = TypeVar("Said", bound=OfTree)


@dataclass(frozen=True, slots=True)
class Taken(Generic[Said]):
    """One message."""

    delivery: Delivery
    said: Said


class ByTree(ABC, Generic[Said]):
    """
    Deals with batches of such messages.

    Args:
        form: of the messages, by its name.
        read: decodes one.
        dead: where letters go before a batch is done; not judged by their share.
        retry: waits for what is away.
        log: gets one line a batch.
    """

    def __init__(
        self, form: str, read: Callable[[bytes], Said], *, dead: DeadLetters, retry: Retry, log: structlog.stdlib.BoundLogger
    ) -> None:
        self._form = form
        self._read = read
        # What is about something that is not in yet, or has been forgotten, says nothing about the settings: a worker must not end
        # for it.
        self._dead = dead.unwatched()
        self.retry = retry
        self.log = log
        self.events: Counter[str] = Counter()
        """Messages by what became of them, since the process started."""
        self._later: list[Later] = []
        """Of the batch in hand."""
        self._given_up_in_row = 0
        """For errors that nobody thought of."""

    @abstractmethod
    async def deal(self, tree: TreeId, group: Sequence[Taken[Said]]) -> Counter[str]:
        """
        Deal with the messages about one tree, in order, and count what became of them; what cannot be dealt with is given up.

        Raises:
            BanyanError: none of them can be: it is the tree.
        """

    async def take(self, deliveries: Sequence[Delivery], *, committed: Callable[[], None] = lambda: None) -> Sequence[Later]:
        """
        Deal with messages, those about one tree in the given order.

        Returns:
            Those that `deal` has put off.

        Raises:
            CannotGoOnError, SettingError, BrokerRefusedError, StoreDamagedError, StoreVersionError: the process is to end;
                nothing may be acknowledged.
        """
        topic = deliveries[0].topic if deliveries else ""
        self._later = []
        groups: dict[TreeId, list[Taken[Said]]] = {}
        for each in deliveries:
            try:
                check_schema(each.headers, self._form)
                said = self._read(each.value or b"")
            except RecordError as error:
                self.give_up(each, error)
                continue
            groups.setdefault(TreeId(said.tree), []).append(Taken(each, said))
        statuses: Counter[str] = Counter()
        with tracing.span(f"process {topic}", kind="consumer", of=(each.headers for each in deliveries)):
            for tree, group in groups.items():
                statuses.update(await self._dealt(tree, group))
        committed()
        dead = await self.retry("sending dead letters", self._dead.flush)
        self.events.update(statuses)
        later = self._later
        put_off = {"put_off": len(later)} if later else {}
        self.log.info("batch", topic=topic, records=len(deliveries), trees=len(groups), **statuses, **put_off, dead_letters=dead)
        return later

    async def _dealt(self, tree: TreeId, group: Sequence[Taken[Said]]) -> Counter[str]:
        try:
            counts = await self.deal(tree, group)
        except NOT_THE_TREE:
            raise
        except BanyanError as error:
            for taken in group:
                self.give_up(taken.delivery, error)
            return Counter()
        except Exception as error:  # whatever it is, the message that causes it must not stop all others for good
            self.log.warning("unexpected", what=self._form, error=f"{type(error).__name__}: {error}", exc_info=len(group) == 1)
            if len(group) > 1:
                return sum([await self._dealt(tree, [taken]) for taken in group], Counter())
            self._given_up_in_row += 1
            if self._given_up_in_row > GIVEN_UP_IN_ROW_MAX:
                raise CannotGoOnError(
                    f"{self._given_up_in_row} valid messages in a row failed, the last at {group[0].delivery.place} with "
                    f"{type(error).__name__}: {error}"
                ) from error
            self.give_up(group[0].delivery, error)
            return Counter()
        self._given_up_in_row = 0
        return counts

    def give_up(self, delivery: Delivery, error: Exception, *, attempts: int = 1) -> None:
        """Make a message a dead letter."""
        letter = self._dead.put(delivery, error, attempts=attempts)
        if self._dead.told:
            self.log.warning("dead letter", at=delivery.place, error=letter.error, attempts=attempts)

    def put_off(self, delivery: Delivery, seconds: float) -> None:
        """Have a message of the batch in hand come again."""
        self._later.append(Later(delivery, seconds))
