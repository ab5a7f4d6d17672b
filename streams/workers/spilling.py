"""
Jobs of a tree that floods: not held in memory, but read from the store when there is room for them.

Which nodes are dirty stands in the store; a message says no more. So of a tree that has its share in hand already, further
messages need not be kept: the first of them in each partition stays unacknowledged, and with it everything behind it would come
again after a crash. Once the nodes in hand are done the tree's dirty nodes are read, a share at a time, until a reading was whole.

While a tree goes on flooding no reading is whole, and what stands at the heads would stay there: after every crash and every
rebalance all that came since would be read again. So after `BEHIND_MAX` messages one that stands for all of the tree is sent to the
end of the topic, and those that stood for it are done with.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from memory.model import NodeId, TreeId
from streams.acknowledging import Message

BEHIND_MAX = 1_000
"""Messages of a tree that are passed over behind those that are kept."""
BEHIND_CROWDED = BEHIND_MAX // 64
"""The same while so many messages stand behind others that reading would soon stop: some, or each would send another."""
_Partition = tuple[str, int]


@dataclass(slots=True)
class _Tree:
    pins: dict[_Partition, Message] = field(default_factory=dict)
    """The first message of each partition that came since the last reading."""
    read: list[Message] = field(default_factory=list)
    """Pins of before it."""
    outstanding: dict[NodeId, int] = field(default_factory=dict)
    """What it gave and is not done: how often a job of the node has to end until it is."""
    whole: bool = False
    """Whether it gave all."""
    reading: bool = False
    behind: int = 0
    """Messages that came since it was last renewed."""


class Spill:
    """Trees whose messages are not held."""

    def __init__(self) -> None:
        self._trees: dict[TreeId, _Tree] = {}

    def __contains__(self, tree: TreeId) -> bool:
        return tree in self._trees

    def add(self, tree: TreeId, message: Message) -> bool:
        """A message that is not held; True when it may be settled, since one before it in its partition is not."""
        state = self._trees.setdefault(tree, _Tree())
        state.behind += 1
        pins = state.pins
        partition = (message.delivery.topic, message.delivery.partition)
        return pins.setdefault(partition, message) is not message

    def due(self, tree: TreeId, *, crowded: bool = False) -> bool:
        """Whether so many messages have come that another is to stand for them."""
        state = self._trees.get(tree)
        return state is not None and state.behind >= (BEHIND_CROWDED if crowded else BEHIND_MAX)

    def renewed(self, tree: TreeId) -> Sequence[Message]:
        """One is on the topic that stands for all; gives the messages that did, which may be settled."""
        state = self._trees.get(tree)
        if state is None:
            return ()
        messages = [*state.read, *state.pins.values()]
        state.read, state.pins, state.behind = [], {}, 0
        return messages

    def wants(self, tree: TreeId) -> bool:
        """Whether the tree's dirty nodes are to be read, when there is room."""
        state = self._trees.get(tree)
        return state is not None and not state.reading and not state.outstanding

    def begin(self, tree: TreeId) -> None:
        """The dirty nodes are about to be read."""
        state = self._trees[tree]
        state.reading = True
        state.read.extend(state.pins.values())
        state.pins = {}

    def give_up(self, tree: TreeId) -> None:
        """They could not be."""
        self._trees[tree].reading = False

    def found(self, tree: TreeId, nodes: Sequence[NodeId], *, whole: bool, claimed: Iterable[NodeId]) -> None:
        """
        They were, and their jobs are put.

        Args:
            tree: which.
            nodes: the dirty ones, or the first of them.
            whole: whether these are all.
            claimed: those of which a call is under way: it may have begun too early, and another follows.
        """
        state = self._trees[tree]
        early = set(claimed)
        state.outstanding = {node: 2 if node in early else 1 for node in nodes}
        state.whole = whole
        state.reading = False

    def done(self, tree: TreeId, node: NodeId) -> Sequence[Message]:
        """A job has ended; gives the messages that may be settled."""
        state = self._trees.get(tree)
        if state is None:
            return ()
        left = state.outstanding.get(node, 0) - 1
        if left > 0:
            state.outstanding[node] = left
        else:
            state.outstanding.pop(node, None)
        return self.settled(tree)

    def retried(self, tree: TreeId, node: NodeId) -> None:
        """A job comes again: what had to follow it is the same now."""
        state = self._trees.get(tree)
        if state is not None and node in state.outstanding:
            state.outstanding[node] = 1

    def settled(self, tree: TreeId) -> Sequence[Message]:
        """The messages that may be settled, once everything that a whole reading gave is done."""
        state = self._trees.get(tree)
        if state is None or state.reading or state.outstanding or not state.whole:
            return ()
        messages, state.read, state.whole = state.read, [], False
        if not state.pins:
            del self._trees[tree]
        return messages
