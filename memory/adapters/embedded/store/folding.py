"""
What a change set makes of the rows it names: pure, before anything is written.

All steps of a set are folded over working copies of the rows, so that a node that is made, moved and grown in one commit is
written once, and a set that does not fit is found out before the first write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from memory.adapters.codec import KIND_NUMBER
from memory.adapters.embedded.store.codec import CONTRIBUTION, Tally, pack_contributions, unpack_contributions
from memory.adapters.embedded.store.rows import LEAF, SUMMARY, Row
from memory.adapters.embedded.store.taking import Taking
from memory.changes import check_attributes, check_forgets, check_link
from memory.model import MARK_BITS, ROOT, Mark, NodeId, NodeKind, mark
from memory.ports.store import Annotate, ChangeSet, Create, Grow, Link, Move, Recall, Remove, Rewrite, Shrink, Step


@dataclass(slots=True)
class Folded:
    """What is to be written."""

    rows: list[Row]
    seq: int
    numbers: int
    first: int
    """Key of the first node made."""
    tally: Tally
    named: list[Row]
    """All rows that the set named, written or not."""
    links: list[tuple[Mark, Link]]


class Misfit(Exception):  # noqa: N818  # no error: an answer on its way
    """The change set does not fit the tree: `nodes` are not as it expects."""

    def __init__(self, nodes: Iterable[NodeId]) -> None:
        super().__init__()
        self.nodes = tuple(dict.fromkeys(nodes))


def named(changes: ChangeSet) -> list[NodeId]:
    """Every node that the set names, once."""
    names: dict[NodeId, None] = {expectation.node: None for expectation in changes.expects}
    for step in changes.steps:
        match step:
            case Create():
                names[step.id] = names[step.parent] = None
                names.update({} if step.above is None else {step.above: None})
            case Move():
                names[step.node] = names[step.old_parent] = names[step.parent] = None
            case Grow() | Shrink() | Recall():
                names[step.leaf] = None
                names.update(dict.fromkeys(step.nodes))
            case Rewrite() | Remove():
                names[step.node] = names[step.parent] = None
            case Annotate():
                names[step.node] = None
            case Link():
                names[step.node] = None
                names.update(dict.fromkeys(step.others))
    return list(names)


def misfits(changes: ChangeSet, rows: Mapping[NodeId, Row]) -> list[NodeId]:
    """Nodes that do not meet the set's expectations."""
    return [
        expectation.node
        for expectation in changes.expects
        if (row := rows.get(expectation.node)) is None
        or (expectation.version is not None and expectation.version != row.version)
        or (expectation.routing is not None and expectation.routing != row.routing)
    ]


class Folding:
    """
    Folds the steps of one set.

    Args:
        changes: the set.
        rows: rows of the named nodes that exist; edited.
        number: the tree's number in row keys, already shifted.
        seq: the commit's.
        numbers: node numbers given out before.
        tally: the tree's counters; edited.
        waiting: how many contributions outside the row of a key have a mark above the given one, and the oldest of those.
        outside: those contributions themselves, oldest first.
        children: keys of the children of a key, as stored.
    """

    def __init__(
        self,
        changes: ChangeSet,
        rows: dict[NodeId, Row],
        *,
        tree: int,
        base: int,
        seq: int,
        numbers: int,
        tally: Tally,
        waiting: Callable[[int, int], tuple[int, int | None]],
        outside: Callable[[int], list[tuple[int, int]]],
        children: Callable[[int], set[int]],
    ) -> None:
        self._changes = changes
        self._rows = rows
        self._tree = tree
        self._base = base
        self._seq = seq
        self._first = numbers
        self._numbers = numbers
        self._tally = tally
        self._waiting = waiting
        self._taking = Taking(tally, base=base, seq=seq, outside=outside, children=children)
        self._vectors = 0
        self._moved = False
        self._misfits: list[NodeId] = []
        self._links: list[tuple[Mark, Link]] = []

    def fold(self) -> Folded:
        """
        The rows to write.

        Raises:
            Misfit: expectations do not hold, nodes are missing, there already, or elsewhere; nothing may be written.
            ValueError: the set contradicts its own contract.
        """
        changes, tally = self._changes, self._tally
        if len(changes.steps) >= 1 << MARK_BITS:
            raise ValueError(f"a change set has at most {(1 << MARK_BITS) - 1} steps, got {len(changes.steps)}")
        if len({event.id for event in changes.events}) != len(changes.events):
            raise ValueError("a change set names each event once")
        check_forgets(changes)
        self._misfits.extend(misfits(changes, self._rows))
        for position, step in enumerate(changes.steps):
            self._fold(step, mark(self._seq, position))
        if self._taking.used and (self._moved or self._numbers > self._first):
            raise ValueError("a change set that takes leaves out creates and moves nothing")
        if self._misfits:
            raise Misfit(self._misfits)
        tally.events += len(changes.events)
        rows = [row for row in self._rows.values() if row.new or row.counted or row.placed or row.gone]
        for row in rows:
            row.overflow()
        return Folded(
            rows=rows,
            seq=self._seq,
            numbers=self._numbers,
            first=self._base + self._first,
            tally=tally,
            named=[row for row in self._rows.values() if not row.gone],
            links=self._links,
        )

    def require_gone(self, leaves: Iterable[NodeId]) -> None:
        """
        Make sure that the folded set removes these leaves.

        Raises:
            Misfit: it leaves some of them.
        """
        left = [leaf for leaf in leaves if (row := self._rows.get(leaf)) is None or not row.gone]
        if left:
            raise Misfit(left)

    def _fold(self, step: Step, at: Mark) -> None:
        match step:
            case Create():
                self._create(step, at)
            case Move():
                self._move(step)
            case Grow():
                self._grow(step, at)
            case Rewrite():
                self._rewrite(step)
            case Annotate():
                self._annotate(step)
            case Link():
                self._link(step, at)
            case Shrink():
                self._shrink(step)
            case Recall():
                self._recall(step, at)
            case Remove():
                self._remove(step)

    def _known(self, *names: NodeId) -> list[Row] | None:
        """Rows of the nodes; None, and a misfit, when one is missing."""
        rows = self._rows
        try:
            known = [rows[name] for name in names]
        except KeyError:
            self._misfits.extend(name for name in names if name not in rows)
            return None
        if self._taking.gone and (gone := [row.id for row in known if row.gone]):
            self._misfits.extend(gone)
            return None
        return known

    def _create(self, step: Create, at: Mark) -> None:
        vector = self._vectors
        self._vectors += 1
        if step.kind is NodeKind.ROOT or (step.kind is NodeKind.LEAF) != (step.item is not None):
            raise ValueError(f"node {step.id}: a leaf has an item, a summary has none, and the root is not made by a step")
        if step.above is not None and step.kind is not NodeKind.SUMMARY:
            raise ValueError(f"node {step.id}: only a summary is put above another")
        check_attributes(step.attributes)
        if step.id in self._rows:
            self._misfits.append(step.id)
            return
        known = self._known(step.parent, *(() if step.above is None else (step.above,)))
        if known is None:
            return
        parent, below = known[0], known[1] if len(known) > 1 else None
        parent.routing += 1
        parent.counted = True
        kind = KIND_NUMBER[step.kind]
        self._rows[step.id] = Row(
            key=self._base + self._numbers,
            tree=self._tree,
            id=step.id,
            parent=parent.key,
            kind=kind,
            depth=step.depth,
            mark=at,
            version=1,
            routing=0,
            descendants=0,
            pending=0,
            oldest=None,
            cohesion=step.cohesion,
            provisional=step.provisional,
            tail=b"",
            new=True,
            text=step.text,
            vector=vector,
            item=step.item,
            attributes=step.attributes or None,
        )
        if below is not None:
            self._take_over(self._rows[step.id], below)
        self._numbers += 1
        self._tally.count(kind, step.depth, 1)
        if kind == LEAF:
            self._tally.leaves += 1
        else:
            self._tally.summaries += 1

    def _take_over(self, row: Row, below: Row) -> None:
        """What the other node covers and what waits there, as the steps so far have left it."""
        if below.kind != SUMMARY:
            raise ValueError(f"node {row.id}: {below.id} is no summary to be put above of")
        row.descendants, row.pending, row.oldest = below.descendants, below.pending, below.oldest
        row.tail, row.through = below.tail, below.through
        row.over = below.over if below.new else below.key
        self._tally.pending += row.pending
        self._tally.dirty += row.oldest is not None

    def _annotate(self, step: Annotate) -> None:
        check_attributes(step.attributes)
        if step.node == ROOT:
            raise ValueError("the root has no attributes")
        known = self._known(step.node)
        if known is not None:
            [row] = known
            row.version += 1
            row.attributes = {**(row.attributes or {}), **step.attributes} or None
            row.counted = True

    def _link(self, step: Link, at: Mark) -> None:
        check_link(step)
        if self._known(step.node, *step.others) is not None and step.others:
            self._links.append((at, step))

    def _move(self, step: Move) -> None:
        self._moved = True
        known = self._known(step.node, step.old_parent, step.parent)
        if known is None:
            return
        row, old, new = known
        if row.parent != old.key:
            self._misfits.append(step.node)
            return
        for parent in (old, new):
            parent.routing += 1
            parent.counted = True
        self._tally.count(row.kind, row.depth, -1)
        self._tally.count(row.kind, step.depth, 1)
        row.parent, row.depth, row.placed = new.key, step.depth, True

    def _grow(self, step: Grow, at: Mark) -> None:
        known = self._known(step.leaf, *step.nodes)
        if known is None:
            return
        leaf, *ancestors = known
        contribution = CONTRIBUTION.pack(at, leaf.key - self._base)
        if len(set(step.nodes)) != len(step.nodes):
            raise ValueError(f"growth by {step.leaf}: a node is named more than once")
        for row in ancestors:
            if row.kind != SUMMARY:
                raise ValueError(f"growth by {step.leaf}: {row.id} is no summary")
            row.descendants += 1
            row.pending += 1
            row.tail += contribution
            if row.oldest is None:
                row.oldest, row.placed = at, True
                self._tally.dirty += 1
            row.counted = True
        self._tally.pending += len(ancestors)

    def _rewrite(self, step: Rewrite) -> None:
        vector = self._vectors
        self._vectors += 1
        known = self._known(step.node, step.parent)
        if known is None:
            return
        row, parent = known
        if row.kind != SUMMARY:
            raise ValueError(f"node {step.node}: only a summary is rewritten")
        if row.parent != parent.key:
            self._misfits.append(step.node)
            return
        parent.routing += 1
        parent.counted = True
        row.version += 1
        row.text, row.vector = step.text, vector
        row.cohesion, row.provisional, row.placed = step.cohesion, step.provisional, True
        if step.through > row.through and row.oldest is not None:
            self._trim(row, step.through)
        tally, cost = self._tally, step.cost
        tally.rewrites += 1
        tally.calls += cost.calls
        tally.tokens_in += cost.tokens_in
        tally.tokens_out += cost.tokens_out

    def _trim(self, row: Row, through: Mark) -> None:
        before = row.pending
        held = row.over if row.new else row.key
        waiting, oldest = (0, None) if held is None else self._waiting(held, through)
        if row.runs is not None:
            row.runs = [(at, leaf) for at, leaf in row.runs if at > through]
            waiting, oldest = len(row.runs), row.runs[0][0] if row.runs else None
        tail = [(at, leaf) for at, leaf in unpack_contributions(row.tail) if at > through]
        row.tail = pack_contributions(tail)
        row.pending = waiting + len(tail)
        oldest = next((at for at, _ in tail), None) if oldest is None else oldest
        row.oldest = None if oldest is None else Mark(oldest)
        row.through = through
        self._tally.pending -= before - row.pending
        if row.oldest is None:
            self._tally.dirty -= 1

    def _leaf_and_above(self, step: Shrink | Recall) -> tuple[Row, list[Row]] | None:
        """The step's leaf and the summaries above it; None, and a misfit, when one is missing."""
        known = self._known(step.leaf, *step.nodes)
        if known is None:
            return None
        leaf, *above = known
        if leaf.kind != LEAF or any(row.kind != SUMMARY for row in above) or len(set(step.nodes)) != len(step.nodes):
            raise ValueError(
                f"{type(step).__name__} of {step.leaf}: it is no leaf, or the nodes are not summaries, each named once"
            )
        return leaf, above

    def _shrink(self, step: Shrink) -> None:
        found = self._leaf_and_above(step)
        if found is not None:
            self._taking.shrink(*found)

    def _recall(self, step: Recall, at: Mark) -> None:
        found = self._leaf_and_above(step)
        if found is not None:
            self._taking.recall(*found, at)

    def _remove(self, step: Remove) -> None:
        known = self._known(step.node, step.parent)
        if known is not None and not self._taking.remove(*known):
            self._misfits.append(step.node)
