"""
A MemGAS' units in columns, which follow the tree as it grows.

Each commit changes a few of ten thousand units. Making columns and graph anew for each took a hundred times as long as the search
that they are for, so only what has changed is read again: branches whose routing number moved, and the edges of new nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memory.errors import QueryError
from memory.model import NodeId
from memory.retrieval.pagerank import Graph
from memory.structures.memgas import GRANULARITIES

if TYPE_CHECKING:
    from memory.tree.view import View

TURN = "turn"
LEVELS = (*GRANULARITIES, TURN)
ROOM = 1.25
"""Rows made ready for each one that there is."""


class Units:
    """
    The units of one tree.

    Args:
        view: as it is now.

    Raises:
        QueryError: the extra `memgas` (scipy) is not installed.
    """

    def __init__(self, view: View) -> None:
        self.seq = -1
        self.ids: list[NodeId] = []
        self._places: dict[NodeId, int] = {}
        self._levels = np.zeros(0, np.int8)
        self._sessions = np.zeros(0, np.int64)
        self._vectors = np.zeros((0, view.dimension), np.float32)
        self._routing: dict[NodeId, int] = {}
        """Of each branch, as it was read."""
        self._below: dict[NodeId, frozenset[NodeId]] = {}
        try:
            self.graph = Graph(0, [])
        except ImportError as error:
            raise QueryError(
                "the strategy router needs the library scipy: `pip install 'banyan-memory[memgas]'`", field="strategy"
            ) from error
        self.follow(view)

    @property
    def levels(self) -> NDArray[np.int8]:
        """(n,) index into `LEVELS`."""
        return self._levels[: len(self.ids)]

    @property
    def sessions(self) -> NDArray[np.int64]:
        """(n,) place of the session unit that each is of."""
        return self._sessions[: len(self.ids)]

    @property
    def vectors(self) -> NDArray[np.float32]:
        """(n, d) of unit length."""
        return self._vectors[: len(self.ids)]

    @property
    def bytes(self) -> int:
        """Roughly what it holds."""
        return self._vectors.nbytes + 24 * self.graph.edges + 400 * len(self.ids)

    def follow(self, view: View) -> bool:
        """
        Take over what has changed.

        Returns:
            False where that cannot be done, since units have gone or it is another tree: make new ones. These are of no use then.
        """
        if view.seq == self.seq:
            return True
        if view.seq < self.seq or not self._routing.keys() <= view.branches.keys():
            return False
        changed = [branch for node, branch in view.branches.items() if self._routing.get(node) != branch.routing]
        fresh: list[NodeId] = []
        for branch in changed:
            now = frozenset(branch.ids)
            before = self._below.get(branch.id, frozenset())
            if not before <= now:
                return False
            fresh.extend(node for node in branch.ids if node not in before)
            self._below[branch.id] = now
            self._routing[branch.id] = branch.routing
        self._add(fresh)
        for branch in changed:
            if branch.ids:
                rows = np.fromiter(map(self._places.__getitem__, branch.ids), np.int64, len(branch))
                self._vectors[rows] = branch.rows(0)
                self._levels[rows] = min(branch.depth, len(LEVELS) - 1)
        for node in fresh:
            trail = [node, *(branch.id for branch in view.ancestors(node))]
            self._sessions[self._places[node]] = self._places[trail[-2]]
        self.graph = self.graph.grown(len(self.ids), self._edges(view, fresh))
        self.seq = view.seq
        return True

    def _add(self, fresh: list[NodeId]) -> None:
        self._places.update((node, place) for place, node in enumerate(fresh, len(self.ids)))
        self.ids.extend(fresh)
        if len(self.ids) > len(self._levels):
            more = round(len(self.ids) * ROOM) - len(self._levels)
            self._levels = np.pad(self._levels, (0, more))
            self._sessions = np.pad(self._sessions, (0, more))
            self._vectors = np.pad(self._vectors, ((0, more), (0, 0)))

    def _edges(self, view: View, fresh: list[NodeId]) -> NDArray[np.int64]:
        """
        (m, 2) places that edges of new nodes join: associations, and each with the node above it.

        An edge is made with the newer of its two nodes, so that it is taken there and not at the other.
        """
        places = self._places
        found: list[tuple[int, int]] = []
        for node in fresh:
            place = places[node]
            above = view.parent(node)
            if above is not None and above.id in places:  # the root is no unit
                found.append((places[above.id], place))
            found.extend((other, place) for each in view.links.get(node, ()) if (other := places[each]) < place)
        return np.array(found, np.int64).reshape(-1, 2)
