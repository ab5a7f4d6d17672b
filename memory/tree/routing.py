"""
Where an item goes: the descent of MemTree's Algorithm 1 (section 3.1, A.1.1), for one item, without changing anything.

The pseudo-code read literally never ends: "if v is a leaf, expand it and attach its content as a child" is followed by a
comparison with that child, which is as similar as the leaf was, so that it is entered and expanded again. The text of section 3.1
says what is meant, and this is how we read it: the descent compares with the children of a node; it enters the best one while
its similarity reaches θ(depth of the node whose children are compared); when the best one is a leaf it is expanded, that is, a
summary takes its place with the old leaf and the new one as its two children, and the descent ends; when none reaches θ the new
leaf is attached there. At `depth_max` nothing is expanded: the leaf is attached beside the one it resembles.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from memory.model import NodeId, Vector
from memory.tree.similarity import TIE, best, calibrate, decalibrate
from memory.tree.thresholds import MemTreeParameters
from memory.tree.view import Branch, Cosines, View


@dataclass(frozen=True, slots=True)
class Decision:
    """What was seen and decided at one node of the descent; what `--explain` shows."""

    node: NodeId
    depth: int
    best: NodeId | None
    """The most similar child; None when there are no children."""
    similarity: float
    """Calibrated similarity to it; 0 without children."""
    threshold: float
    """θ(depth)."""
    note: str = ""
    """What was looked at instead, where a structure does not place by similarity."""
    expands: bool = False
    """Whether `best`, a leaf, gives its place to a summary of both."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where an item goes: below `branch`, or into the place of its child `expands`."""

    branch: Branch
    expands: NodeId | None
    expands_slot: int
    """Row of `expands` in the branch's block; -1 when nothing is expanded."""
    path: list[tuple[Branch, NodeId | None, float]]
    """From the root to `branch`: what was compared, the best child there (None without children) and its cosine."""


class Router:
    """
    The descent under fixed parameters.

    Args:
        parameters: thresholds and depth limit.
        unrelated_cosine: of the tree's embedding model; thresholds are turned into cosines with it, once.
    """

    def __init__(self, parameters: MemTreeParameters, unrelated_cosine: float) -> None:
        self.parameters = parameters
        self.unrelated_cosine = unrelated_cosine
        self._cuts = [decalibrate(parameters.threshold(depth), unrelated_cosine) for depth in range(parameters.depth_max + 1)]

    def route(self, view: View, vector: Vector, *, root_cosines: Cosines | None = None) -> Route:
        """
        Find where an item goes.

        Args:
            view: the tree as it stands.
            vector: (d,) float32, quantized.
            root_cosines: with the root's children, when the caller has had a cheaper way than a product (`planning.plan` computes
                those of a whole batch at once).
        """
        branch, branches, cuts = view.root, view.branches, self._cuts
        path: list[tuple[Branch, NodeId | None, float]] = []
        cosines = root_cosines
        while branch.ids:
            ids = branch.ids
            slot, cosine = best(branch.cosines(vector) if cosines is None else cosines, ids)
            child, cosines = ids[slot], None
            path.append((branch, child, cosine))
            if cosine < cuts[branch.depth]:
                return Route(branch, None, -1, path)
            inner = branches.get(child)
            if inner is None:
                expands = branch.depth + 1 < self.parameters.depth_max
                return Route(branch, child if expands else None, slot if expands else -1, path)
            branch = inner
        path.append((branch, None, 0.0))
        return Route(branch, None, -1, path)

    def decisions(self, route: Route) -> tuple[Decision, ...]:
        """What was decided at each node of a route."""
        seen = [self._decision(branch, child, cosine) for branch, child, cosine in route.path]
        if route.expands is not None:
            seen[-1] = replace(seen[-1], expands=True)
        return tuple(seen)

    def agrees(self, view: View, vector: Vector, branch: Branch, expands: NodeId | None) -> Decision | None:
        """
        Whether a recorded placement is one the descent could have chosen, when similarities within `TIE` count as equal.

        Args:
            view: the tree as it stood before the placement.
            vector: of the item.
            branch: where it was attached, or where the expanded leaf hung.
            expands: the leaf that was expanded, or None.

        Returns:
            None when it agrees, else what was decided at the node where the descent would have gone another way.
        """
        chain = [*reversed([above.id for above in view.ancestors(branch.id)] if branch is not view.root else []), branch.id]
        for depth, node in enumerate(chain):
            here = view.branches[node]
            last = node == branch.id
            chosen = expands if last else chain[depth + 1]
            if not here.ids:
                return None if chosen is None else self._decision(here, None, 0.0)
            cosines = here.cosines(vector)
            slot, top = best(cosines, here.ids)
            cut = self._cuts[here.depth]
            if chosen is None:
                bounded = here.depth + 1 >= self.parameters.depth_max and any(
                    here.ids[int(row)] in view.homes for row in (cosines >= top - TIE).nonzero()[0]
                )
                agrees = top < cut + TIE or bounded
            else:
                cosine = float(cosines[here.ids.index(chosen)])
                agrees = cosine >= top - TIE and cosine >= cut - TIE and not (last and here.depth + 1 >= self.parameters.depth_max)
            if not agrees:
                return self._decision(here, here.ids[slot], top)
        return None

    def _decision(self, branch: Branch, child: NodeId | None, cosine: float) -> Decision:
        return Decision(
            branch.id,
            branch.depth,
            child,
            calibrate(cosine, self.unrelated_cosine) if child is not None else 0.0,
            self.parameters.threshold(branch.depth),
        )
