"""MemTree (section 3.1, Algorithm 1, A.1): a tree that grows by descent under a depth-adaptive threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from memory.changes import Create, LogEntry, Move, Step
from memory.model import ROOT, EmbeddingModel, NodeKind, Vector
from memory.results import Violation
from memory.structures.base import Structure
from memory.tree import planning
from memory.tree.check import Stored
from memory.tree.planning import Insertion, Plan
from memory.tree.routing import Decision, Router
from memory.tree.thresholds import MemTreeParameters
from memory.tree.view import View


class MemTree(Structure):
    """
    MemTree's insertion.

    Args:
        model: of the tree's vectors; gives the zero of the calibrated cosine.
        parameters: thresholds and depth limit.
    """

    name = "memtree"
    invariants: ClassVar[Mapping[str, str]] = {"depth-from-root": "The children of the root are at depth 1."}

    def __init__(self, model: EmbeddingModel, parameters: MemTreeParameters | None = None) -> None:
        self._parameters = parameters or MemTreeParameters()
        self._router = Router(self._parameters, model.unrelated_cosine)

    def parameters(self) -> Mapping[str, float]:
        """Base, rate and depth_max."""
        return self._parameters.as_mapping()

    def plan(self, view: View, insertions: Sequence[Insertion]) -> Plan:
        """See `Structure.plan`."""
        return planning.plan(view, self._router, insertions)

    def route(self, view: View, vector: Vector) -> tuple[Decision, ...]:
        """See `Structure.route`."""
        return self._router.decisions(self._router.route(view, vector))

    def replay(self, view: View, entry: LogEntry) -> tuple[int, list[Violation]]:
        """See `Structure.replay`. A summary created, a leaf moved below it and a new leaf beside that are one expansion."""
        checked, found = 0, []
        held: list[Step] = []  # the first steps of an expansion: its leaf is judged on the view as it was before them
        for step in entry.steps:
            if isinstance(step, Create) and step.kind is NodeKind.LEAF:
                violation = self._judge(view, step, held, entry.seq)
                checked += 1
                if violation is not None:
                    found.append(violation)
                for before in (*held, step):
                    view.apply(before)
                held = []
            elif held or (isinstance(step, Create) and step.kind is NodeKind.SUMMARY):
                held.append(step)
            else:
                view.apply(step)
        for step in held:
            found.append(
                Violation(invariant="serial-replay", node=None, detail=f"seq {entry.seq}: an expansion without a new leaf")
            )
            view.apply(step)
        view.seq = entry.seq
        return checked, found

    def check(self, stored: Stored) -> list[Violation]:
        """See `Structure.check`."""
        return [
            Violation(invariant="depth-from-root", node=node.id, detail=f"is below the root at depth {node.depth}")
            for node in stored.nodes.values()
            if node.parent == ROOT and node.depth != 1
        ]

    def _judge(self, view: View, leaf: Create, held: Sequence[Step], seq: int) -> Violation | None:
        expanded = next((step for step in held if isinstance(step, Move)), None)
        parent = leaf.parent if expanded is None else expanded.old_parent
        branch = view.branches.get(parent)
        if branch is None or (expanded is not None and view.homes.get(expanded.node) is not branch):
            return Violation(
                invariant="serial-replay", node=leaf.id, detail=f"seq {seq}: placed at {parent}, which was not as the log says"
            )
        decision = self._router.agrees(view, leaf.vector, branch, expanded.node if expanded else None)
        if decision is None:
            return None
        went = f"expanded {expanded.node} below {parent}" if expanded else f"was attached to {parent}"
        return Violation(
            invariant="serial-replay",
            node=leaf.id,
            detail=f"seq {seq}: {went}, but at {decision.node} (depth {decision.depth}) the best child is {decision.best} "
            f"with similarity {decision.similarity:.5f} against a threshold of {decision.threshold:.5f}",
        )
