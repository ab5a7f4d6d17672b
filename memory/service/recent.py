"""How the leaves that this process put in last begin: a fresh summary's provisional text is then had without asking the store."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from memory.changes import Create, Step
from memory.model import Mark, Node, NodeId, NodeKind, TreeId
from memory.tree.provisional import provisional_window

LEAVES_MAX = 20_000
"""Leaves remembered, at most about 700 bytes each. A leaf is most often expanded soon after it came: its neighbours in a
conversation are alike."""


class RecentLeaves:
    """The beginnings of leaves' texts, the newest. A leaf's text never changes."""

    def __init__(self) -> None:
        self._texts: OrderedDict[tuple[TreeId, NodeId], str] = OrderedDict()

    def add(self, tree: TreeId, steps: Iterable[Step]) -> None:
        """Remember the leaves that these steps made."""
        for step in steps:
            if isinstance(step, Create) and step.kind is NodeKind.LEAF:
                self._texts[tree, step.id] = provisional_window(step.text)
        while len(self._texts) > LEAVES_MAX:
            self._texts.popitem(last=False)

    def note(self, tree: TreeId, nodes: Iterable[Node]) -> None:
        """Remember those that are leaves: a commit that is refused asks for them again."""
        for node in nodes:
            if node.kind is NodeKind.LEAF:
                self._texts[tree, node.id] = provisional_window(node.text)

    def drop(self, tree: TreeId, nodes: Iterable[NodeId]) -> None:
        """Remember these no longer."""
        for node in nodes:
            self._texts.pop((tree, node), None)

    def find(self, tree: TreeId, nodes: Sequence[NodeId]) -> dict[NodeId, Node]:
        """Those of the nodes that are remembered leaves; of each nothing but the id and the beginning of its text."""
        found: dict[NodeId, Node] = {}
        for node in nodes:
            text = self._texts.get((tree, node))
            if text is not None:
                found[node] = Node(id=node, parent=None, kind=NodeKind.LEAF, depth=0, mark=Mark(0), text=text)
        return found
