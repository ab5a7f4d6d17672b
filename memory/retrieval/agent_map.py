"""The layers of a tree as a walk sees them: numbers in a layer, neighbours in time, what is above and below. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from memory.model import NodeId, Vector
from memory.ports.navigator import Action
from memory.tree.view import View


@dataclass(frozen=True, slots=True)
class Place:
    """Where a walk stands."""

    node: NodeId
    layer: int
    number: int
    """In its layer, from 0."""


class Layers:
    """
    A tree in layers, each from the oldest node to the newest.

    Good for one state of the view; layers are listed as far down as they are asked for.

    Args:
        view: the tree, with at least one node below the structural root.
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self.seq = view.seq
        self._layers: list[list[NodeId]] = [list(view.root.ids)]

    def layer(self, number: int) -> list[NodeId]:
        """Nodes of a layer; empty below the last one."""
        while len(self._layers) <= number and self._layers[-1]:
            last = self._layers[-1]
            branches = (self._view.branches.get(node) for node in last)
            self._layers.append([child for branch in branches if branch is not None for child in branch.ids])
        return self._layers[number] if number < len(self._layers) else []

    @property
    def count(self) -> int:
        """Layers of the path to the newest node."""
        depth, branch = 0, self._view.root
        while branch.ids:
            depth += 1
            below = self._view.branches.get(branch.ids[-1])
            if below is None:
                break
            branch = below
        return depth

    def root(self) -> Place:
        """The first node of the uppermost layer."""
        return Place(self._layers[0][0], 0, 0)

    def find(self, node: NodeId) -> Place | None:
        """Where a node stands now; None when it is gone."""
        if node not in self._view:
            return None
        layer = sum(1 for _ in self._view.ancestors(node)) - 1
        return Place(node, layer, self.layer(layer).index(node))

    def similarity(self, node: NodeId, vector: Vector) -> float:
        """Cosine of a node with a vector."""
        parent = self._view.parent(node)
        assert parent is not None
        return float(parent.row(self._view.slot(node)) @ vector)

    def children(self, node: NodeId, vector: Vector) -> list[tuple[float, NodeId]]:
        """A node's children and their cosines with a vector, the nearest first."""
        branch = self._view.branches.get(node)
        if branch is None or not branch.ids:
            return []
        found = zip(branch.cosines(vector).tolist(), branch.ids, strict=True)
        return sorted(found, key=lambda scored: (-scored[0], scored[1]))

    def leaves(self, node: NodeId, vector: Vector, *, limit: int) -> list[tuple[float, NodeId]] | None:
        """All leaves below a node, the oldest first, and their cosines with a vector; None where there are more than `limit`."""
        found: list[tuple[float, NodeId]] = []
        waiting = [node]
        while waiting:
            branch = self._view.branches.get(waiting.pop())
            if branch is None or not branch.ids:
                continue
            if branch.ids[0] in self._view.branches:
                waiting.extend(reversed(branch.ids))
            else:
                found.extend(zip(branch.cosines(vector).tolist(), branch.ids, strict=True))
            if len(found) + len(waiting) > limit:
                return None
        return found

    def beside(self, place: Place, action: Action) -> NodeId | None:
        """The neighbour to the left or right; None at the edge."""
        layer = self.layer(place.layer)
        number = place.number + (1 if action is Action.RIGHT else -1)
        return layer[number] if 0 <= number < len(layer) else None

    def above(self, place: Place) -> NodeId | None:
        """The parent; None for the root of the walk."""
        if place.layer == 0:
            return None
        parent = self._view.parent(place.node)
        return None if parent is None else parent.id
