"""What came before what it is about, on another topic: how long it may wait, and how much of it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from memory.model import TreeId
from memory.ports.clock import Clock
from streams.deliveries import Delivery

WAIT_FIRST = 0.5  # seconds
WAIT_MAX = 8.0  # seconds
"""Between two attempts."""
WAITING_MAX = 1_000
"""Messages that wait at once."""
WAITING_OF_A_TREE_MAX = 200
"""Of these: what is said of one tree must not keep what is said of others from waiting."""
BYTES_MAX = 8_000_000
"""Of all that wait."""

Place = tuple[str, int, int]


@dataclass(slots=True)
class _Waiting:
    tree: TreeId
    bytes: int
    since: float
    """Monotonic time of the first attempt."""
    attempts: int = 0
    seen: float = 0.0


class Early:
    """
    Keeps count of what waits; the messages themselves are with whoever reads.

    Args:
        clock: tells how long something has waited.
        patience: after which it waits no more; nothing waits with 0.
    """

    def __init__(self, clock: Clock, patience: timedelta) -> None:
        self._clock = clock
        self._patience = patience.total_seconds()
        self._waiting: dict[Place, _Waiting] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, delivery: Delivery, tree: TreeId) -> float | None:
        """Seconds after which a message that came too early is to be tried again; None when it is to be given up."""
        now = self._clock.monotonic()
        place = _place(delivery)
        waiting = self._waiting.get(place)
        if waiting is None:
            self._forget_lost(now)
            waiting = _Waiting(tree, len(delivery.value or b""), now)
            if not self._room(waiting):
                return None
            self._waiting[place] = waiting
        left = waiting.since + self._patience - now
        if left <= 0:
            return None
        waiting.seen = now
        waiting.attempts += 1
        return min(WAIT_FIRST * 2.0 ** min(waiting.attempts - 1, 10), WAIT_MAX, left)

    def over(self, delivery: Delivery) -> int:
        """A message waits no more, if it did; returns the attempts that were made."""
        waiting = self._waiting.pop(_place(delivery), None)
        return 1 if waiting is None else waiting.attempts + 1

    def _room(self, new: _Waiting) -> bool:
        others = self._waiting.values()
        return (
            len(self._waiting) < WAITING_MAX
            and sum(each.tree == new.tree for each in others) < WAITING_OF_A_TREE_MAX
            and sum(each.bytes for each in others) + new.bytes <= BYTES_MAX
        )

    def _forget_lost(self, now: float) -> None:
        """Those whose partition went to another worker meanwhile do not come again."""
        limit = 2 * self._patience
        for place in [place for place, each in self._waiting.items() if now - each.seen > limit]:
            del self._waiting[place]


def _place(delivery: Delivery) -> Place:
    return delivery.topic, delivery.partition, delivery.offset
