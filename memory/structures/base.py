"""What a structure has to say; the rest of Banyan (store, worker loop, summaries, queries) knows no structure."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from memory.changes import LogEntry
from memory.model import Vector
from memory.results import Violation
from memory.tree.planning import Insertion, Plan
from memory.tree.routing import Decision
from memory.tree.view import View


class Structure(ABC):
    """A way to grow a tree, under fixed parameters. Stateless: everything it knows of a tree it reads from the view."""

    name: str
    """As in `--structure`."""

    @abstractmethod
    def parameters(self) -> Mapping[str, float]:
        """What a tree made with it remembers."""

    @abstractmethod
    def plan(self, view: View, insertions: Sequence[Insertion]) -> Plan:
        """
        Plan a batch in turn, each item seeing the ones before.

        The view is left with the plan applied, at its old `seq`; a caller whose commit was refused undoes it with `view.undo`.
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
