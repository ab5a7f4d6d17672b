"""Whether the server still has the history that this process has seen."""

from __future__ import annotations

from collections import Counter, OrderedDict

from memory.errors import StoreUnavailableError
from memory.model import TreeId

TREES_MAX = 100_000
"""Trees remembered; about 200 bytes each. Of the others a lost commit goes unnoticed until its number is seen again."""


class History:
    """
    Of each tree, the newest commit that this process knows, by number and name.

    A failover to a replica that lagged, or a restart from a file that did, takes commits back; others then get their numbers. A
    view that holds the lost ones would take the new ones for its continuation. So every commit and every reading of the log says
    which commit it has seen, and is refused where the server has no such commit; the caller's view is dropped with that, and
    loaded anew. Only the first to ask is refused, so that what it does next is not; others that follow the log see `losses`.
    """

    def __init__(self) -> None:
        self._newest: OrderedDict[TreeId, tuple[int, bytes]] = OrderedDict()
        self.losses: Counter[TreeId] = Counter()
        """By tree, histories that were forgotten because the server did not have them."""

    def seen(self, tree: TreeId) -> tuple[int, bytes]:
        """The newest commit and its name, or 0."""
        return self._newest.get(tree, (0, b""))

    def add(self, tree: TreeId, seq: int, name: bytes) -> None:
        """Remember a commit."""
        if seq > self.seen(tree)[0]:
            self._newest[tree] = (seq, name)
            self._newest.move_to_end(tree)
            if len(self._newest) > TREES_MAX:
                self._newest.popitem(last=False)

    def lost(self, tree: TreeId) -> StoreUnavailableError:
        """Forget the tree's history; returns what to raise."""
        seq, _ = self._newest.pop(tree, (0, b""))
        self.losses[tree] += 1
        return StoreUnavailableError(
            f"tree {tree}: commit {seq} is gone from Redis, as after a failover to a replica that lagged; the view is loaded "
            "anew, and what was lost comes back when its events are read again (docs/redis.md)",
            retry_after=0.0,
        )
