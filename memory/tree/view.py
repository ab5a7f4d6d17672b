"""
The view: what routing needs of one tree, in memory.

The children of a node lie in one contiguous block of float32 vectors, so that routing at a node is one matrix-vector product.
Float16 would hold them exactly (`similarity.quantize`) in half the space, but its conversion costs many times what the product
does: at 100,000 leaves, where an item passes seven nodes of two or three children, it was most of a plan (decision 0020).

A leaf costs its vector, its id and one dictionary entry; a summary also costs a `Branch`. Measured in docs/benchmarks.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.changes import Annotate, Create, Grow, Link, LogEntry, Move, Recall, Remove, Rewrite, Shrink, Skeleton, Step
from memory.model import ROOT, Attributes, NodeId, NodeKind, Vector

WIDE = 48
"""Children up to which a block keeps them in order."""

AT = "at"
"""Name of the attribute that says when a leaf was said, in seconds since 1970, where a structure keeps that."""
RAISED_MAX = 4_096
"""Leaves of a plan that can be undone and still have the latest time as it was before."""

Cosines = NDArray[np.float32]


class NodeThereError(Exception):
    """
    A step makes a node that the view has; the view is as it was before that step.

    A summary is named by the leaf that it was made for, and may outlive it: whoever plans that leaf again, not knowing yet that it
    was forgotten, makes the same name.
    """


class Branch:
    """The root or a summary: a node that has children."""

    __slots__ = ("_matrix", "depth", "id", "ids", "parent", "routing", "slot", "version")

    def __init__(self, node: NodeId, parent: Branch | None, depth: int, dimension: int) -> None:
        self.id = node
        self.parent = parent
        self.depth = depth
        self.version = 1
        self.routing = 0
        self.slot = -1
        """Row in the parent's block."""
        self.ids: list[NodeId] = []
        self._matrix: NDArray[np.float32] = np.empty((0, dimension), dtype=np.float32)

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Branch({self.id!r}, depth={self.depth}, children={len(self.ids)})"

    def cosines(self, vector: Vector) -> Cosines:
        """Cosine of a (d,) vector with each child: (k,) float32."""
        found: Cosines = self._matrix[: len(self.ids)].dot(vector)
        return found

    def cosines_of_all(self, vectors: NDArray[np.float32]) -> Cosines:
        """Cosines of (n, d) vectors with each child: (n, k) float32."""
        found: Cosines = vectors @ self.rows(0).T
        return found

    def row(self, slot: int) -> Vector:
        """The vector of one child: (d,) float32."""
        return np.array(self._matrix[slot])

    def rows(self, start: int) -> NDArray[np.float32]:
        """The vectors of the children from a slot on: (k - start, d) float32."""
        return self._matrix[start : len(self.ids)]

    def append(self, node: NodeId, vector: Vector | NDArray[np.float16]) -> int:
        """Add a child; returns its slot."""
        slot = len(self.ids)
        if slot == len(self._matrix):
            # An eighth of slack: appending stays linear, and memory is bounded by what the children need and 12 %.
            capacity = slot + max(1, slot >> 3)
            grown = np.empty((capacity, self._matrix.shape[1]), dtype=np.float32)
            grown[:slot] = self._matrix
            self._matrix = grown
        self._matrix[slot] = vector
        self.ids.append(node)
        return slot

    def fill(self, ids: list[NodeId], vectors: NDArray[np.float16]) -> None:
        """Set all children at once: k ids and (k, d) vectors."""
        self.ids = ids
        self._matrix = vectors.astype(np.float32)

    def replace(self, slot: int, vector: Vector) -> None:
        """Give a child another vector."""
        self._matrix[slot] = vector

    def remove(self, slot: int) -> Sequence[NodeId]:
        """
        Take a child out; returns the children that have another slot now, the first of them the removed one's.

        Up to `WIDE` children keep their order. Among more the last one takes the free slot: closing ranks would cost as much as
        routing does.
        """
        left = len(self.ids) - 1
        if left > WIDE and slot < left:
            self.ids[slot] = self.ids.pop()
            self._matrix[slot] = self._matrix[left]
            return self.ids[slot : slot + 1]
        del self.ids[slot]
        self._matrix[slot:left] = self._matrix[slot + 1 : left + 1]
        return self.ids[slot:]

    @property
    def bytes(self) -> int:
        """Bytes of the block, slack included."""
        return int(self._matrix.nbytes)


class View:
    """
    A tree's shape, versions and vectors as of commit `seq`.

    Changed only by applying steps, either of the change log or of a plan that is being made; a plan that was refused is undone.

    Args:
        dimension: of the tree's vectors.
    """

    def __init__(self, dimension: int) -> None:
        self.seq = 0
        self.dimension = dimension
        self.root = Branch(ROOT, None, 0, dimension)
        self.branches: dict[NodeId, Branch] = {ROOT: self.root}
        self.homes: dict[NodeId, Branch] = {}
        """Of each leaf, the branch it hangs under."""
        self.attributes: dict[NodeId, Attributes] = {}
        """Of the nodes that have any."""
        self.links: dict[NodeId, dict[NodeId, float]] = {}
        """The association graph: of each node that has edges, its neighbours and the edges' weights."""
        self._latest: float | None = -math.inf
        """None when the leaf that said it was removed, until it is asked for."""
        self.gone: list[NodeId] = []
        """Nodes that were removed, for whoever keeps something of them; emptied by who has looked."""
        self._raised: dict[NodeId, float] = {}
        """Of the last leaves that made `latest` later, what it was before."""

    @classmethod
    def load(cls, skeleton: Skeleton) -> View:
        """The view of a whole tree."""
        view = cls(skeleton.vectors.shape[1])
        view.seq = skeleton.seq
        dimension = view.dimension
        rows: dict[NodeId, list[int]] = {}
        for row, (node, parent, kind) in enumerate(zip(skeleton.ids, skeleton.parents, skeleton.kinds, strict=True)):
            if parent is not None:
                rows.setdefault(parent, []).append(row)
            if kind is not NodeKind.LEAF:
                branch = view.root if parent is None else Branch(node, None, int(skeleton.depths[row]), dimension)
                branch.version = int(skeleton.versions[row])
                branch.routing = int(skeleton.routings[row])
                view.branches[node] = branch
        for node, children in rows.items():
            branch = view.branches[node]
            branch.fill([skeleton.ids[row] for row in children], skeleton.vectors[children])
            for slot, child in enumerate(branch.ids):
                inner = view.branches.get(child)
                if inner is None:
                    view.homes[child] = branch
                else:
                    inner.parent, inner.slot = branch, slot
        view.attributes = dict(skeleton.attributes)
        view._latest = None
        for link in skeleton.links:
            view._link(link)
        return view

    @property
    def latest(self) -> float:
        """The latest `AT` of all leaves there are: the events' own clock; minus infinity where none says its time."""
        if self._latest is None:
            self._latest = max((_time(each) for each in self.attributes.values()), default=-math.inf)
        return self._latest

    def __contains__(self, node: NodeId) -> bool:
        return node in self.homes or node in self.branches

    def __len__(self) -> int:
        return len(self.homes) + len(self.branches)

    def parent(self, node: NodeId) -> Branch | None:
        """The branch a node hangs under; None for the root. Raises KeyError for an unknown node."""
        home = self.homes.get(node)
        return home if home is not None else self.branches[node].parent

    def ancestors(self, node: NodeId) -> Iterator[Branch]:
        """The branches above a node, from its parent up to the root."""
        branch = self.parent(node)
        while branch is not None:
            yield branch
            branch = branch.parent

    def slot(self, node: NodeId) -> int:
        """Row of a node in its parent's block."""
        home = self.homes.get(node)
        return self.branches[node].slot if home is None else home.ids.index(node)

    # ------------------------------------------------------------------------------------------------------------ changes

    def catch_up(self, entries: Iterable[LogEntry]) -> None:
        """Apply log entries that follow `seq` without a gap; earlier ones are skipped."""
        for entry in entries:
            if entry.seq <= self.seq:
                continue
            if entry.seq != self.seq + 1:
                raise ValueError(f"the change log goes from {self.seq} to {entry.seq}")
            for step in entry.steps:
                self.apply(step)
            self.seq = entry.seq

    def apply(self, step: Step) -> None:
        """
        Apply one step, bumping versions and routings as the store does (`memory.changes`).

        Raises:
            NodeThereError: it makes a node that is there.
        """
        match step:
            case Create():
                self._create(step)
            case Move():
                self._move(step.node, step.parent, step.depth, bump=1)
            case Rewrite():
                branch = self.branches[step.node]
                assert branch.parent is not None
                branch.parent.replace(branch.slot, step.vector)
                branch.version += 1
                branch.parent.routing += 1
            case Annotate():
                self.attributes[step.node] = {**self.attributes.get(step.node, {}), **step.attributes}
                if step.node in self.branches:
                    self.branches[step.node].version += 1
            case Link():
                self._link(step)
            case Remove():
                self._remove(step)
            case Grow() | Shrink() | Recall():
                pass  # routing does not look at counts

    def undo(self, steps: Iterable[Step]) -> None:
        """
        Take back the steps of a plan that was refused, given in the order they were applied.

        A plan creates, moves leaves, or summaries that keep their depth, grows, and links nodes that it created itself; nothing
        else can be taken back.
        """
        for step in reversed(list(steps)):
            match step:
                case Create():
                    branch = self.branches[step.parent]
                    self._take(branch, step.id)
                    self.homes.pop(step.id, None)
                    self.branches.pop(step.id, None)
                    self.attributes.pop(step.id, None)
                    self._latest = self._raised.pop(step.id, self._latest)
                    branch.routing -= 1
                case Move():
                    self._move(step.node, step.old_parent, step.depth, bump=-1)
                case Link():
                    for other in step.others:
                        for one, two in ((step.node, other), (other, step.node)):
                            edges = self.links[one]
                            del edges[two]
                            if not edges:
                                del self.links[one]
                case Grow():
                    pass
                case Rewrite() | Annotate() | Shrink() | Remove() | Recall():
                    raise ValueError("a rewrite or a removal is never part of a plan that is tried")

    def _create(self, step: Create) -> None:
        if step.id in self:
            raise NodeThereError(f"a step makes {step.id}, which is there")
        branch = self.branches[step.parent]
        self._add(branch, step.id, step.vector, leaf=step.kind is NodeKind.LEAF, depth=step.depth)
        branch.routing += 1
        if step.attributes:
            self._tick(step.id, step.attributes)
            self.attributes[step.id] = step.attributes

    def _tick(self, leaf: NodeId, attributes: Attributes) -> None:
        time, latest = _time(attributes), self.latest
        if time > latest:
            if len(self._raised) >= RAISED_MAX:
                del self._raised[next(iter(self._raised))]
            self._raised[leaf] = latest
            self._latest = time

    def _remove(self, step: Remove) -> None:
        self.gone.append(step.node)
        branch = self.branches[step.parent]
        self._take(branch, step.node)
        branch.routing += 1
        self.homes.pop(step.node, None)
        self.branches.pop(step.node, None)
        for other in self.links.pop(step.node, ()):
            edges = self.links[other]
            del edges[step.node]
            if not edges:
                del self.links[other]
        attributes = self.attributes.pop(step.node, None)
        self._raised.pop(step.node, None)
        if attributes is not None and self._latest is not None and _time(attributes) >= self._latest:
            # Found when it is asked for: many may go one after the other, and each looks at all that stay.
            self._latest = None

    def _link(self, step: Link) -> None:
        for other, weight in zip(step.others, step.weights or (1.0,) * len(step.others), strict=True):
            self.links.setdefault(step.node, {})[other] = weight
            self.links.setdefault(other, {})[step.node] = weight

    def _add(self, branch: Branch, node: NodeId, vector: Vector, *, leaf: bool, depth: int) -> None:
        slot = branch.append(node, vector)
        if leaf:
            self.homes[node] = branch
        else:
            inner = self.branches.get(node)
            if inner is None:
                inner = self.branches[node] = Branch(node, branch, depth, self.dimension)
            inner.parent, inner.slot, inner.depth = branch, slot, depth

    def _take(self, branch: Branch, node: NodeId) -> Vector:
        slot = self.slot(node)
        vector = branch.row(slot)
        for place, moved in enumerate(branch.remove(slot), slot):
            inner = self.branches.get(moved)
            if inner is not None:
                inner.slot = place
        return vector

    def _move(self, node: NodeId, parent: NodeId, depth: int, *, bump: int) -> None:
        old = self.parent(node)
        new = self.branches[parent]
        assert old is not None
        vector = self._take(old, node)
        self._add(new, node, vector, leaf=node in self.homes, depth=depth)
        old.routing += bump
        new.routing += bump

    @property
    def bytes(self) -> int:
        """
        Estimated memory, in bytes, blocks exactly and the rest by what CPython takes.

        Per node an id (64) and a dictionary entry (about 100 at a usual load) and a list slot; per branch its object, list and
        array headers (about 350); per node with attributes or edges a dictionary (about 400), per end of an edge about 100.
        """
        blocks = sum(branch.bytes for branch in self.branches.values())
        sparse = 400 * (len(self.attributes) + len(self.links)) + 100 * sum(map(len, self.links.values()))
        return blocks + 180 * len(self.homes) + 530 * len(self.branches) + sparse


def _time(attributes: Attributes) -> float:
    time = attributes.get(AT)
    return -math.inf if time is None or isinstance(time, str) else time
