"""What a structure has to say; the rest of Banyan (store, worker loop, summaries, queries) knows no structure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from memory.changes import LogEntry
from memory.model import Attributes, Node, NodeId, Vector
from memory.results import Violation
from memory.tree.check import Stored
from memory.tree.planning import Insertion, Plan
from memory.tree.routing import Decision
from memory.tree.view import View


class Aggregation(StrEnum):
    """What a summary's text is made from; what each asks of the summarizer is in `memory.service.summarize`."""

    CONTRIBUTIONS = "contributions"
    """Its own text and the items that are not in it yet (MemTree, A.1.2). Levels of one path can be refreshed in any order."""
    CHILDREN = "children"
    """The texts of all its children, once those are up to date (HAT). Levels follow one another upwards; the same children are
    never paid for twice by one process."""
    ITEMS = "items"
    """The items below it, word for word and one after the other as far as there is room (MemGAS' session). No model is asked; the
    vector is the mean of all of them."""
    KEYWORDS = "keywords"
    """Phrases that tell what the items below it are about (MemGAS' keywords), by a keyword extractor; the vector is the embedding
    of that text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What taking leaves out of a tree does to the other nodes."""

    nodes: tuple[NodeId, ...]
    """What goes: the leaves, and the summaries that have no leaf left, deepest first."""
    rewritten: tuple[NodeId, ...]
    """The summaries that stay and had one of the leaves below them, deepest first: their texts may still speak of it."""


class Structure(ABC):
    """
    A way to grow a tree, under fixed parameters (decision 0010).

    Pure, synchronous and stateless: everything it knows of a tree it reads from the view. A plan reads children's vectors, ids and
    attributes, and edges of the association graph, and expects the `routing` of every node whose children it read; that is what
    makes concurrent writers equal to a serial order.
    """

    name: ClassVar[str]
    """As in `--structure`."""
    invariants: ClassVar[Mapping[str, str]] = {}
    """Names and meanings of what `check` and `replay` hold beyond `memory.tree.check.INVARIANTS`."""
    asks_labels: ClassVar[bool] = False
    """Whether it makes use of `Insertion.labels`, so that a configured model is asked for them before planning."""
    keeps_weights: ClassVar[bool] = False
    """Whether its leaves have weights that feedback changes (`memory.structures.weights`)."""

    @abstractmethod
    def parameters(self) -> Mapping[str, float]:
        """What a tree made with it remembers."""

    @abstractmethod
    def plan(self, view: View, insertions: Sequence[Insertion]) -> Plan:
        """
        Plan a batch in turn, each item seeing the ones before.

        Each item becomes exactly one leaf (`planning.leaf_id`), created below a node and followed by the `Grow` of all summaries
        above it. The view is left with the plan applied, at its old `seq`; a caller whose commit was refused undoes it with
        `view.undo`.
        """

    @abstractmethod
    def route(self, view: View, vector: Vector) -> tuple[Decision, ...]:
        """How an item with this vector would be placed now, a decision a level. Changes nothing."""

    @abstractmethod
    def replay(self, view: View, entry: LogEntry) -> tuple[int, list[Violation]]:
        """
        Apply one log entry to the view that stands just before it, checking that each item went where it would go in turn.

        Returns:
            How many placements were checked, and what did not agree.
        """

    def check(self, stored: Stored) -> list[Violation]:  # noqa: ARG002
        """Violations of the structure's own invariants that a stored state can show; none by default."""
        return []

    def aggregation(self, node: Node) -> Aggregation:  # noqa: ARG002
        """What this summary's text is made from."""
        return Aggregation.CONTRIBUTIONS

    def attributes_left(self, view: View, node: NodeId, gone: Collection[NodeId]) -> Attributes:  # noqa: ARG002
        """
        The attributes of a summary when some nodes are taken out and it stays: nothing of what goes may be said there (P6).

        Args:
            view: the tree as it stands; not changed.
            node: a summary that had some of them below it.
            gone: all that go.

        Returns:
            The same names as before. By default also the same values.
        """
        return view.attributes.get(node, {})

    def removal(self, view: View, leaves: Collection[NodeId]) -> Removal:
        """
        What taking these leaves out does (P6). By default a summary goes when nothing is left below it, and nothing moves.

        Args:
            view: the tree as it stands; not changed.
            leaves: those of them that the view does not have are passed over.
        """
        gone: dict[NodeId, int] = {}
        touched: dict[NodeId, int] = {}
        lost: dict[NodeId, int] = {}
        """Children that go, of each node above."""
        for leaf in dict.fromkeys(leaves):
            if leaf not in view.homes:
                continue
            gone[leaf] = view.homes[leaf].depth + 1
            goes = True
            for branch in view.ancestors(leaf):
                lost[branch.id] = lost.get(branch.id, 0) + goes
                goes = goes and lost[branch.id] == len(branch)
                if branch is not view.root:
                    touched[branch.id] = branch.depth
                    if goes:
                        gone[branch.id] = branch.depth
        deepest = sorted(gone, key=lambda node: (-gone[node], node))
        stay = sorted((node for node in touched if node not in gone), key=lambda node: (-touched[node], node))
        return Removal(nodes=tuple(deepest), rewritten=tuple(stay))
