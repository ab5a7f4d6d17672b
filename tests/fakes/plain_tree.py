"""A tree as its contract describes it, in plain dictionaries: what stores are compared with."""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field, replace

import numpy as np

from memory.changes import Annotate, ChangeSet, Create, Grow, Link, LogEntry, Move, Recall, Remove, Rewrite, Shrink, Step
from memory.model import ROOT, EventId, Mark, Node, NodeId, NodeKind, mark
from memory.ports.store import NO_DIGEST, Applied, Receipt, Seen, Stale

Fields = tuple[object, ...]


@dataclass
class PlainTree:
    """Everything a store answers, obviously right and slow."""

    seq: int = 0
    nodes: dict[NodeId, Node] = field(
        default_factory=lambda: {ROOT: Node(id=ROOT, parent=None, kind=NodeKind.ROOT, depth=0, mark=Mark(0))}
    )
    waiting: dict[NodeId, list[tuple[Mark, NodeId]]] = field(default_factory=dict)
    receipts: dict[EventId, Receipt] = field(default_factory=dict)
    links: list[Link] = field(default_factory=list)
    rewrites: int = 0
    calls: int = 0
    floor: int = 0

    def apply(self, changes: ChangeSet) -> Applied | Seen | Stale:
        seen = {event.id: self.receipts[event.id] for event in changes.events if event.id in self.receipts}
        buried = (self.receipts[event] for event in changes.forgets if event in self.receipts)
        seen |= {receipt.event_id: receipt for receipt in buried if receipt.forgotten}
        if seen:
            return Seen(receipts=seen)
        stale = [
            expected.node for expected in changes.expects if not self._meets(expected.node, expected.version, expected.routing)
        ]
        trial = deepcopy(self)
        trial.seq += 1
        for position, step in enumerate(changes.steps):
            if not stale:
                stale += trial._misfits(step)
            if not stale:
                trial.step(step, mark(trial.seq, position))
        forgotten = [self.receipts[event] for event in changes.forgets if event in self.receipts]
        if not stale:
            stale += [leaf for receipt in forgotten for leaf in receipt.leaves if leaf in trial.nodes]
        if stale:
            return Stale(nodes=tuple(stale), seq=self.seq)
        trial.bury(changes.forgets)
        for event in changes.events:
            trial.receipts[event.id] = Receipt(event_id=event.id, seq=trial.seq, digest=event.digest, leaves=event.leaves)
        self.__dict__.update(trial.__dict__)
        return Applied(seq=self.seq)

    def replay(self, entries: Iterable[LogEntry]) -> PlainTree:
        for entry in entries:
            assert entry.seq == self.seq + 1
            self.seq = entry.seq
            for position, step in enumerate(entry.steps):
                self.step(step, mark(entry.seq, position))
            self.bury(entry.forgets)
        return self

    def bury(self, events: Iterable[EventId]) -> None:
        for event in events:
            self.receipts[event] = Receipt(event_id=event, seq=self.seq, digest=NO_DIGEST, leaves=(), forgotten=True)

    def _meets(self, node: NodeId, version: int | None, routing: int | None) -> bool:
        found = self.nodes.get(node)
        return found is not None and version in {None, found.version} and routing in {None, found.routing}

    def _misfits(self, step: Step) -> list[NodeId]:  # noqa: PLR0911  # one a kind of step
        match step:
            case Create():
                return [step.id] * (step.id in self.nodes) + self._missing(step.parent, *([step.above] if step.above else []))
            case Move():
                missing = self._missing(step.node, step.old_parent, step.parent)
                return missing or [step.node] * (self.nodes[step.node].parent != step.old_parent)
            case Grow() | Shrink() | Recall():
                return self._missing(step.leaf, *step.nodes)
            case Remove():
                missing = self._missing(step.node, step.parent)
                hangs = missing or self.nodes[step.node].parent == step.parent
                return missing or [step.node] * (not hangs or any(each.parent == step.node for each in self.nodes.values()))
            case Rewrite():
                missing = self._missing(step.node, step.parent)
                return missing or [step.node] * (self.nodes[step.node].parent != step.parent)
            case Annotate():
                return self._missing(step.node)
            case Link():
                return self._missing(step.node, *step.others)

    def _missing(self, *names: NodeId) -> list[NodeId]:
        return [name for name in names if name not in self.nodes]

    def _change(self, name: NodeId, **fields: object) -> None:
        self.nodes[name] = replace(self.nodes[name], **fields)  # type: ignore[arg-type]

    def _bump(self, name: NodeId) -> None:
        self._change(name, routing=self.nodes[name].routing + 1)

    def step(self, step: Step, at: Mark) -> None:
        match step:
            case Create():
                self._create(step, at)
            case Move():
                self._change(step.node, parent=step.parent, depth=step.depth)
                self._bump(step.old_parent)
                self._bump(step.parent)
            case Grow():
                for name in step.nodes:
                    grown = self.nodes[name]
                    self._change(name, descendants=grown.descendants + 1, pending=grown.pending + 1)
                    self.waiting.setdefault(name, []).append((at, step.leaf))
            case Rewrite():
                self._rewrite(step)
            case Annotate():
                old = self.nodes[step.node]
                self._change(step.node, attributes={**old.attributes, **step.attributes}, version=old.version + 1)
            case Link():
                if step.others:
                    self.links.append(step)
            case Shrink() | Recall() | Remove():
                self._take_out(step, at)

    def _take_out(self, step: Shrink | Recall | Remove, at: Mark) -> None:
        match step:
            case Shrink():
                for name in step.nodes:
                    left = [one for one in self.waiting.pop(name, []) if one[1] != step.leaf]
                    self._change(name, descendants=self.nodes[name].descendants - 1, pending=len(left))
                    if left:
                        self.waiting[name] = left
            case Recall():
                for name in step.nodes:
                    if name not in self.waiting:
                        self.waiting[name] = [(at, step.leaf)]
                        self._change(name, pending=1)
            case Remove():
                self._remove(step)

    def _remove(self, step: Remove) -> None:
        gone = self.nodes.pop(step.node)
        self.waiting.pop(step.node, None)
        self._bump(step.parent)
        if gone.kind is NodeKind.LEAF:
            self._change(ROOT, descendants=self.nodes[ROOT].descendants - 1)
        kept = [link for link in self.links if link.node != step.node]
        self.links = [left for link in kept if (left := _without(link, step.node)).others]
        self.floor = self.seq

    def _create(self, step: Create, at: Mark) -> None:
        self.nodes[step.id] = Node(
            id=step.id,
            parent=step.parent,
            kind=step.kind,
            depth=step.depth,
            mark=at,
            text=step.text,
            vector=step.vector,
            cohesion=step.cohesion,
            provisional=step.provisional,
            item=step.item,
            attributes=dict(step.attributes),
        )
        self._bump(step.parent)
        if step.above is not None:
            below = self.nodes[step.above]
            self._change(step.id, descendants=below.descendants, pending=below.pending)
            if waiting := self.waiting.get(step.above):
                self.waiting[step.id] = list(waiting)
        if step.kind is NodeKind.LEAF:
            self._change(ROOT, descendants=self.nodes[ROOT].descendants + 1)

    def _rewrite(self, step: Rewrite) -> None:
        left = [one for one in self.waiting.pop(step.node, []) if one[0] > step.through]
        if left:
            self.waiting[step.node] = left
        self._change(
            step.node,
            text=step.text,
            vector=step.vector,
            cohesion=step.cohesion,
            provisional=step.provisional,
            version=self.nodes[step.node].version + 1,
            pending=len(left),
        )
        self._bump(step.parent)
        self.rewrites += 1
        self.calls += step.cost.calls

    @property
    def by_mark(self) -> list[Node]:
        return sorted(self.nodes.values(), key=lambda node: node.mark)

    @property
    def dirty(self) -> list[tuple[NodeId, int, int, Mark]]:
        found = [(name, self.nodes[name].depth, len(left), left[0][0]) for name, left in self.waiting.items()]
        return sorted(found, key=lambda one: (-one[1], one[3], self.nodes[one[0]].mark))


def _without(link: Link, node: NodeId) -> Link:
    places = [place for place, other in enumerate(link.others) if other != node]
    weights = tuple(link.weights[place] for place in places) if link.weights else ()
    return replace(link, others=tuple(link.others[place] for place in places), weights=weights)


def fields_of(node: Node, *, text: bool = True) -> Fields:
    """A node's fields in a form that can be compared."""
    packed = b"" if node.vector is None else node.vector.astype(np.float32).tobytes()
    return (
        node.id,
        node.parent,
        node.kind,
        node.depth,
        node.mark,
        node.version,
        node.routing,
        node.descendants,
        node.pending,
        node.cohesion,
        node.provisional,
        packed,
        dict(node.attributes),
        *((node.text, node.item) if text else ()),
    )
