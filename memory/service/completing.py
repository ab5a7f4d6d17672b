"""What a plan leaves open because it is pure and knows no old texts: the texts that fresh summaries begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from memory.changes import Create, Grow, Step
from memory.model import Node, NodeId, NodeKind
from memory.tree.provisional import provisional_text

PROVISIONAL_LEAVES = 2
"""Leaves that a summary's provisional text is made of."""


class Fresh:
    """
    The summaries that a plan creates.

    Args:
        steps: of the plan.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = steps
        self._texts = {step.id: step.text for step in steps if isinstance(step, Create) and step.kind is NodeKind.LEAF}
        self._made = [step for step in steps if isinstance(step, Create) and step.kind is NodeKind.SUMMARY]
        self._first: dict[NodeId, list[NodeId]] = {step.id: [] for step in self._made if step.above is None}
        grows = (step for step in steps if isinstance(step, Grow)) if self._first else ()
        for grow in grows:
            if self._first.keys().isdisjoint(grow.nodes):
                continue
            for node in grow.nodes:
                leaves = self._first.get(node)
                if leaves is not None and len(leaves) < PROVISIONAL_LEAVES:
                    leaves.append(grow.leaf)

    @property
    def wanted(self) -> list[NodeId]:
        """Nodes whose texts are in the store and are needed."""
        old = {leaf for leaves in self._first.values() for leaf in leaves if leaf not in self._texts}
        above = {step.above for step in self._made if step.above is not None}
        return sorted((old | above) - {step.id for step in self._made})

    def complete(self, found: Mapping[NodeId, Node]) -> tuple[Step, ...]:
        """
        The steps with texts.

        A summary that is put above another says what that one says; another one says how the first leaves below it begin.

        Args:
            found: those of `wanted` that exist. One that is missing makes the commit stale, whatever is said here.
        """
        if not self._made:
            return tuple(self._steps)
        texts = {**self._texts, **{node.id: node.text for node in found.values()}}
        done: dict[NodeId, Create] = {}
        for step in self._made:
            below: Node | Create | None = None
            if step.above is None:
                text = provisional_text([texts.get(leaf, "") for leaf in self._first[step.id]])
                done[step.id] = replace(step, text=text)
            elif (below := found.get(step.above) or done.get(step.above)) is not None:
                done[step.id] = replace(step, text=below.text, cohesion=below.cohesion, provisional=below.provisional)
        return tuple(done.get(step.id, step) if isinstance(step, Create) else step for step in self._steps)
