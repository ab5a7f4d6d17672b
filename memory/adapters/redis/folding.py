"""
What a change set asks of the script: pure, before anything is sent.

The steps of a set are folded to one demand a node, so that the script, which everybody's commits wait for, looks at each node once:
what must be so before (there, new, below which parent, a summary), what is added to its counters, where it goes, what is written.
"""

from __future__ import annotations

from dataclasses import dataclass

from memory.adapters.codec import encode_vectors
from memory.adapters.redis.codec import MARK_MAX, encode
from memory.adapters.redis.keys import TreeKeys
from memory.adapters.redis.log_codec import encode_commit
from memory.adapters.redis.request import Demand, Demands, KeyList, request_of
from memory.changes import check_attributes, check_forgets, check_link
from memory.model import MARK_BITS, ROOT, NodeId, NodeKind
from memory.ports.store import Annotate, ChangeSet, Create, Grow, Link, Move, Recall, Remove, Rewrite, Shrink, Step

DEPTH_MAX = (1 << 16) - 1
GONE, COVERED, ADDED, ALONE = range(4)
"""What happens to the contributions of a node (`Request.waiting`)."""


@dataclass(frozen=True, slots=True)
class Folded:
    """Arguments of the script."""

    request: bytes
    names: bytes
    body: bytes
    keys: list[str]
    """Of children and contributions."""


def fold(changes: ChangeSet, keys: TreeKeys) -> Folded:
    """
    The script's arguments.

    Raises:
        ValueError: the set contradicts its own contract.
    """
    return _Folding(changes, keys).folded()


class _Folding:
    def __init__(self, changes: ChangeSet, keys: TreeKeys) -> None:
        self._changes = changes
        self._keys = keys
        self._demands = Demands()
        self._vectors = 0
        self._taking = any(isinstance(step, Shrink | Remove | Recall) for step in changes.steps)

    def folded(self) -> Folded:
        changes = self._changes
        if len(changes.steps) >= 1 << MARK_BITS:
            raise ValueError(f"a change set has at most {(1 << MARK_BITS) - 1} steps, got {len(changes.steps)}")
        if len({event.id for event in changes.events}) != len(changes.events):
            raise ValueError("a change set names each event once")
        check_forgets(changes)
        if self._taking and any(isinstance(step, Create | Move) for step in changes.steps):
            raise ValueError("a change set that takes leaves out creates and moves nothing")
        leaves = [step.id for step in changes.steps if isinstance(step, Create) and step.kind is NodeKind.LEAF]
        for leaf in leaves:
            self._demands.of(leaf)
        first_leaves = len(self._demands.nodes)
        for position, step in enumerate(changes.steps):
            self._fold(step, position)
        if leaves:
            self._there(ROOT).descendants += len(leaves)
        expects = [
            number
            for expected in changes.expects
            for number in (
                self._demands.of(expected.node).number,
                expected.version is not None and expected.version,
                expected.routing is not None and expected.routing,
            )
        ]
        given = [step.vector for step in changes.steps if isinstance(step, Create | Rewrite)]
        vectors = encode_vectors(given, len(given[0])) if given else []
        numbers = {name: demand.number for name, demand in self._demands.nodes.items()}
        keys = KeyList()
        request = request_of(
            self._demands,
            tree=self._keys,
            keys=keys,
            vectors=vectors,
            dimension=len(given[0]) if given else 0,
            leaves=first_leaves,
            expects=expects,
            events=changes.events,
            forgets=changes.forgets,
        )
        return Folded(
            request=encode(request),
            names=encode(list(numbers)),
            body=encode_commit(changes, vectors, numbers),
            keys=keys.all(),
        )

    # ------------------------------------------------------------------------------------------------------------- steps

    def _fold(self, step: Step, position: int) -> None:
        match step:
            case Create():
                self._create(step, position)
            case Move():
                self._move(step)
            case Grow():
                self._grow(step, position)
            case Rewrite():
                self._rewrite(step)
            case Annotate():
                self._annotate(step)
            case Link():
                self._link(step, position)
            case Shrink():
                self._shrink(step)
            case Remove():
                self._remove(step)
            case Recall():
                self._recall(step, position)

    def _there(self, name: NodeId) -> Demand:
        """A node that must exist at this step."""
        demand = self._demands.of(name)
        if demand.created is None:
            demand.present = True
        if demand.removed:
            self._demands.contradictions.append(demand.number)
        return demand

    def _create(self, step: Create, position: int) -> None:
        vector = self._vectors
        self._vectors += 1
        if step.kind is NodeKind.ROOT or (step.kind is NodeKind.LEAF) != (step.item is not None):
            raise ValueError(f"node {step.id}: a leaf has an item, a summary has none, and the root is not made by a step")
        _check_depth(step.id, step.depth)
        check_attributes(step.attributes)
        if step.above is not None and step.kind is not NodeKind.SUMMARY:
            raise ValueError(f"node {step.id}: only a summary is put above another")
        if "\0" in step.parent:
            raise ValueError(f"node {step.id}: the parent's id has a zero byte")
        demand = self._demands.of(step.id)
        if demand.created is not None or demand.present:
            self._demands.contradictions.append(demand.number)
            return
        parent = self._there(step.parent)
        parent.routing += 1
        self._demands.guarded.add(parent.number)
        demand.created, demand.position, demand.parent, demand.vector = step, position, parent.number, vector
        demand.version, demand.depth = 1, step.depth
        demand.cohesion, demand.provisional, demand.text = step.cohesion, step.provisional, step.text
        if step.above is not None:
            below = self._summary(step.above)
            demand.over = below.over if below.created is not None else below
            demand.descendants, demand.grows, demand.through = below.descendants, list(below.grows), below.through
        self._demands.count(f"{_letter(step)}{step.depth}", 1)
        self._demands.count("leaves" if step.kind is NodeKind.LEAF else "summaries", 1)

    def _move(self, step: Move) -> None:
        _check_depth(step.node, step.depth)
        demand, old, new = self._there(step.node), self._there(step.old_parent), self._there(step.parent)
        if not self._lies_below(demand, old):
            return
        if demand.created is None:
            self._demands.moved.setdefault(demand.number, old.number)
        else:
            self._demands.count(f"{_letter(demand.created)}{demand.depth}", -1)
            self._demands.count(f"{_letter(demand.created)}{step.depth}", 1)
        for parent in (old, new):
            parent.routing += 1
            self._demands.guarded.add(parent.number)
        demand.parent, demand.depth = new.number, step.depth

    def _grow(self, step: Grow, position: int) -> None:
        if len(set(step.nodes)) != len(step.nodes):
            raise ValueError(f"growth by {step.leaf}: the nodes must be summaries, each named once")
        self._demands.grows.append((position, self._there(step.leaf).number))
        for node in step.nodes:
            demand = self._summary(node)
            demand.descendants += 1
            if self._taking:
                demand.waiting += [ADDED, len(self._demands.grows)]
            else:
                demand.grows += [len(self._demands.grows), 0]

    def _rewrite(self, step: Rewrite) -> None:
        vector = self._vectors
        self._vectors += 1
        demand, parent = self._summary(step.node), self._there(step.parent)
        if not self._lies_below(demand, parent):
            return
        parent.routing += 1
        demand.version += 1
        demand.vector, demand.text = vector, step.text
        demand.cohesion, demand.provisional = step.cohesion, step.provisional
        through = min(step.through, MARK_MAX)
        if self._taking:
            demand.waiting += [COVERED, through]
            through = 0
        demand.through = max(demand.through, through)
        for index in range(1, len(demand.grows), 2):
            demand.grows[index] = max(demand.grows[index], through)
        for field_, change in (
            ("rewrites", 1),
            ("calls", step.cost.calls),
            ("tokens_in", step.cost.tokens_in),
            ("tokens_out", step.cost.tokens_out),
        ):
            self._demands.count(field_, change)

    def _annotate(self, step: Annotate) -> None:
        check_attributes(step.attributes)
        if step.node == ROOT:
            raise ValueError("the root has no attributes")
        demand = self._there(step.node)
        demand.version += 1
        if step.attributes:
            self._demands.annotated.append((demand.number, step.attributes))

    def _link(self, step: Link, position: int) -> None:
        check_link(step)
        for node in (step.node, *step.others):
            self._there(node)
        if step.others:
            self._demands.links.append((position, step))

    def _leaf(self, step: Shrink | Recall) -> int:
        if len(set(step.nodes)) != len(step.nodes):
            raise ValueError(f"{type(step).__name__} of {step.leaf}: a node is named more than once")
        number = self._there(step.leaf).number
        self._demands.taken.append(number)
        return number

    def _shrink(self, step: Shrink) -> None:
        leaf = self._leaf(step)
        for node in step.nodes:
            demand = self._summary(node)
            demand.descendants -= 1
            demand.waiting += [GONE, leaf]

    def _recall(self, step: Recall, position: int) -> None:
        self._demands.grows.append((position, self._leaf(step)))
        for node in step.nodes:
            self._summary(node).waiting += [ALONE, len(self._demands.grows)]

    def _remove(self, step: Remove) -> None:
        if step.node == ROOT:
            raise ValueError("the root is never removed")
        demand, parent = self._there(step.node), self._there(step.parent)
        self._there(ROOT)  # whose leaves are counted
        if demand.removed or not self._lies_below(demand, parent):
            return
        parent.routing += 1
        self._demands.guarded.add(parent.number)
        self._demands.removes.append((demand, demand.children_gone))
        parent.children_gone += 1
        demand.removed = True

    def _summary(self, name: NodeId) -> Demand:
        demand = self._there(name)
        if name == ROOT or (demand.created is not None and demand.created.kind is not NodeKind.SUMMARY):
            raise ValueError(f"node {name}: only summaries grow, shrink and are rewritten")
        demand.summary = True
        return demand

    def _lies_below(self, demand: Demand, parent: Demand) -> bool:
        if demand.parent is None:
            demand.parent = demand.required = parent.number
        if demand.parent != parent.number:
            self._demands.contradictions.append(demand.number)
            return False
        return True


def _letter(made: Create) -> str:
    return "l" if made.kind is NodeKind.LEAF else "s"


def _check_depth(node: NodeId, depth: int) -> None:
    if not 0 < depth <= DEPTH_MAX:
        raise ValueError(f"node {node}: the depth is 1 to {DEPTH_MAX}, got {depth}")
