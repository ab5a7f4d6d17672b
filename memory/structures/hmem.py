"""
H-MEM: four layers, from domains over categories and memory traces down to episodes.

Source: "Hierarchical Memory for High-Efficiency Long-Term Reasoning in LLM Agents" (arXiv 2507.22925), sections 3.1 to 3.3. The
upper three layers are summaries, a progressively refined index; an episode is a leaf, with its text, time and speaker.

The paper gives every entry a vector, a position index of its own, and the indices of its children. Here the node's id is its own
index, and the view keeps of every node the ids and vectors of its children in one block: the descent reads the blocks of what it
chose and nothing else, which is what the indices are for.

In the paper a model says of each interaction which domain, category and trace it belongs to. Where labels were given (from the
general to the particular) they decide: an item goes below the node of its label, and where there is none begins it, unless a node
without a label is near enough. Without labels the vector decides alone: the item goes below the nearest domain while its calibrated
similarity reaches the domains' threshold, and else begins a domain; and so on in the two layers below (decision 0018).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memory.changes import Create, Expectation, Grow, LogEntry, Step
from memory.model import ATTRIBUTE_CHARACTERS_MAX, ROOT, Attributes, EmbeddingModel, Node, NodeId, NodeKind, Vector
from memory.results import Violation
from memory.structures.base import Structure
from memory.structures.parameters import HMemParameters
from memory.tree.check import Stored
from memory.tree.planning import Insertion, Placement, Plan, leaf_id
from memory.tree.routing import Decision
from memory.tree.similarity import TIE, best, calibrate, decalibrate
from memory.tree.view import AT, Branch, View

LAYERS = ("domain", "category", "trace")
"""Of the summaries, from the root down; the fourth layer are the episodes. Also the names of an episode's labels."""
LEAF_DEPTH = len(LAYERS) + 1
LABEL = "label"
"""Name of the attribute of a summary that a labelled item began; "", which is none, where all items of the label were forgotten."""


@dataclass(frozen=True, slots=True)
class _Route:
    """The nodes that an item enters, and why."""

    path: tuple[Branch, ...]
    """From the root down to the last one that is there; as long as `LEAF_DEPTH` when the item begins nothing."""
    decisions: tuple[tuple[NodeId | None, float], ...]
    """The nearest eligible child of each node that was compared, and its cosine."""


class HMem(Structure):
    """
    H-MEM's placement.

    Args:
        model: of the tree's vectors; gives the zero of the calibrated cosine.
        parameters: the threshold of each layer.
    """

    name = "hmem"
    asks_labels = True
    keeps_weights = True
    invariants: ClassVar[Mapping[str, str]] = {
        "four-layers": "From the root down come a domain, a category, a memory trace and episodes.",
        "one-label": "No two children of a node have the same label.",
        "own-label": "An episode with labels lies below nodes of these labels, or of none.",
    }

    def __init__(self, model: EmbeddingModel, parameters: HMemParameters | None = None) -> None:
        self._parameters = parameters or HMemParameters()
        self._zero = model.unrelated_cosine
        chosen = self._parameters
        self._cuts = [decalibrate(each, self._zero) for each in (chosen.domain, chosen.category, chosen.trace)]

    def parameters(self) -> Mapping[str, float]:
        """The thresholds, and how weights change."""
        return self._parameters.as_mapping()

    def plan(self, view: View, insertions: Sequence[Insertion]) -> Plan:
        """See `Structure.plan`. The children of a trace are not looked at: who adds to one disturbs nobody."""
        steps: list[Step] = []
        reads: dict[NodeId, int] = {}
        made: set[NodeId] = set()
        placements: list[Placement] = []
        for insertion in insertions:
            labels = _named(insertion.labels)
            route = self._route(view, insertion.vector, labels)
            for branch in route.path[: len(LAYERS)]:
                if branch.id not in made:
                    reads.setdefault(branch.id, branch.routing)
            item, leaf = insertion.item, leaf_id(insertion.item.event_id, insertion.item.chunk)
            begun = _begun(route.path, leaf, insertion.vector, labels)
            above = [*(branch.id for branch in route.path[1:]), *(step.id for step in begun)]
            fresh: list[Step] = [
                *begun,
                Create(
                    id=leaf,
                    parent=above[-1],
                    kind=NodeKind.LEAF,
                    depth=LEAF_DEPTH,
                    vector=insertion.vector,
                    text=item.text,
                    item=item,
                    attributes=labels if item.at is None else {**labels, AT: item.at.timestamp()},
                ),
                Grow(leaf=leaf, nodes=tuple(reversed(above))),
            ]
            for step in fresh:
                view.apply(step)
            made.update(step.id for step in begun)
            steps.extend(fresh)
            placements.append(Placement(leaf=leaf, parent=above[-1], depth=LEAF_DEPTH, expands=None))
        expects = tuple(Expectation(node=node, routing=routing) for node, routing in reads.items())
        return Plan(steps=tuple(steps), expects=expects, placements=tuple(placements))

    def route(self, view: View, vector: Vector) -> tuple[Decision, ...]:
        """See `Structure.route`: of an item without labels, layer by layer."""
        route = self._route(view, vector, {})
        return tuple(
            self._decision(branch, node, cosine) for branch, (node, cosine) in zip(route.path, route.decisions, strict=False)
        )

    def replay(self, view: View, entry: LogEntry) -> tuple[int, list[Violation]]:
        """See `Structure.replay`. What was begun just before an episode is judged with it; its labels are its attributes."""
        checked = 0
        found: list[Violation] = []
        held: list[Create] = []
        for step in entry.steps:
            if isinstance(step, Create) and step.kind is NodeKind.SUMMARY:
                held.append(step)
                continue
            if isinstance(step, Create):
                checked += 1
                wrong = self._judge(view, step, held)
                if wrong:
                    found.append(Violation(invariant="serial-replay", node=step.id, detail=f"seq {entry.seq}: {wrong}"))
                for before in held:
                    view.apply(before)
                held = []
            view.apply(step)
        for left in held:
            found.append(Violation(invariant="serial-replay", node=left.id, detail=f"seq {entry.seq}: begun without an episode"))
            view.apply(left)
        view.seq = entry.seq
        return checked, found

    def attributes_left(self, view: View, node: NodeId, gone: Collection[NodeId]) -> Attributes:
        """See `Structure.attributes_left`: a label goes with the last item that has it, for a model took it from such items."""
        attributes = view.attributes.get(node, {})
        branch = view.branches[node]
        if not attributes.get(LABEL) or not 0 < branch.depth < LEAF_DEPTH:
            return attributes
        layer, label = LAYERS[branch.depth - 1], normalized(str(attributes[LABEL]))
        below = (view.attributes.get(leaf, {}).get(layer) for leaf in _leaves_below(view, branch) if leaf not in gone)
        stays = any(other is not None and normalized(str(other)) == label for other in below)
        return attributes if stays else {**attributes, LABEL: ""}

    def check(self, stored: Stored) -> list[Violation]:
        """See `Structure.check`."""
        found = (*_layers(stored), *_twins(stored), *_mislabelled(stored))
        return [Violation(invariant=name, node=node, detail=detail) for name, node, detail in found]

    def _route(self, view: View, vector: Vector, labels: Attributes) -> _Route:
        path = [view.root]
        decisions: list[tuple[NodeId | None, float]] = []
        for layer, cut in zip(LAYERS, self._cuts, strict=True):
            branch = path[-1]
            slots, named = _eligible(view, branch, labels.get(layer))
            if not slots:
                decisions.append((None, 0.0))
                break
            slot, cosine = _nearest(branch.cosines(vector), branch.ids, slots)
            decisions.append((branch.ids[slot], cosine))
            if not named and cosine < cut:
                break
            path.append(view.branches[branch.ids[slot]])
        return _Route(tuple(path), tuple(decisions))

    def _judge(self, view: View, leaf: Create, held: Sequence[Create]) -> str:
        """Why an episode does not belong where it was put, when similarities within `TIE` count as equal; empty when it does."""
        labels = {name: str(value) for name, value in leaf.attributes.items() if name in LAYERS}
        entered = held[0].parent if held else leaf.parent
        if entered not in view.branches:
            return f"was put below {entered}, which was not there"
        path = [view.branches[entered], *(view.ancestors(entered) if entered != ROOT else ())][::-1]
        if len(path) > LEAF_DEPTH:
            return f"was put at depth {leaf.depth}"
        for layer, cut, branch, chosen in zip(LAYERS, self._cuts, path, [*path[1:], None], strict=False):
            slots, named = _eligible(view, branch, labels.get(layer))
            cosines = branch.cosines(leaf.vector)
            slot, top = _nearest(cosines, branch.ids, slots) if slots else (-1, -1.0)
            if chosen is None:
                agrees = not slots or (not named and top < cut + TIE)
            else:
                own = float(cosines[chosen.slot])
                agrees = chosen.slot in slots and own >= top - TIE and (named or own >= cut - TIE)
            if not agrees:
                went = "began a new node" if chosen is None else f"went below {chosen.id}"
                nearest = f"the nearest is {branch.ids[slot]} with cosine {top:.5f}" if slots else "nothing there is eligible"
                return f"{went} at {branch.id}, where {nearest} against {cut:.5f}"
        begun = _begun(path, leaf.id, leaf.vector, labels)
        below = begun[-1].id if begun else path[-1].id
        if list(map(_outline, held)) != list(map(_outline, begun)) or (leaf.parent, leaf.depth) != (below, LEAF_DEPTH):
            return f"was put below {leaf.parent} with {len(held)} new nodes above it, in turn there would be {len(begun)}"
        return ""

    def _decision(self, branch: Branch, node: NodeId | None, cosine: float) -> Decision:
        similarity = 0.0 if node is None else calibrate(cosine, self._zero)
        return Decision(branch.id, branch.depth, node, similarity, self._parameters.of_layer(branch.depth))


def normalized(label: str) -> str:
    """What makes two labels the same: case and spaces do not count."""
    return " ".join(label.casefold().split())


def _named(labels: Sequence[str]) -> dict[str, str]:
    """An item's labels by layer, as kept of it; empty ones are none."""
    shown = ((layer, " ".join(label.split())[:ATTRIBUTE_CHARACTERS_MAX]) for layer, label in zip(LAYERS, labels, strict=False))
    return {layer: label for layer, label in shown if label}


def _eligible(view: View, branch: Branch, label: str | float | None) -> tuple[Sequence[int], bool]:
    """
    The children that an item with this label may go below, as slots, and whether they have its label.

    Those of its label; where there is none, those without a label. For an item without one, all.
    """
    if label is None:
        return range(len(branch)), False
    wanted = normalized(str(label))
    free: list[int] = []
    same: list[int] = []
    for slot, child in enumerate(branch.ids):
        other = view.attributes.get(child, {}).get(LABEL)
        if not other:
            free.append(slot)
        elif normalized(str(other)) == wanted:
            same.append(slot)
    return (same, True) if same else (free, False)


def _nearest(cosines: NDArray[np.float32], ids: Sequence[NodeId], slots: Sequence[int]) -> tuple[int, float]:
    """Slot and cosine of the nearest of some children; ties go to the least id."""
    if len(slots) == len(ids):
        return best(cosines, ids)
    place, cosine = best(cosines[np.array(slots)], [ids[slot] for slot in slots])
    return slots[place], cosine


def _begun(path: Sequence[Branch], leaf: NodeId, vector: Vector, labels: Attributes) -> list[Create]:
    """The nodes that a leaf begins below the last one of its path, from the top down."""
    steps: list[Create] = []
    parent = path[-1].id
    for depth in range(len(path), LEAF_DEPTH):
        layer = LAYERS[depth - 1]
        node = NodeId("s" + hashlib.blake2b(f"{layer}\x00{leaf}".encode(), digest_size=9).hexdigest())
        attributes = {LABEL: labels[layer]} if layer in labels else {}
        steps.append(
            Create(
                id=node,
                parent=parent,
                kind=NodeKind.SUMMARY,
                depth=depth,
                vector=vector,
                provisional=True,
                attributes=attributes,
            )
        )
        parent = node
    return steps


def _leaves_below(view: View, branch: Branch) -> Iterator[NodeId]:
    for child in branch.ids:
        inner = view.branches.get(child)
        if inner is None:
            yield child
        else:
            yield from _leaves_below(view, inner)


def _outline(step: Create) -> tuple[NodeId, NodeId, int, Attributes]:
    return step.id, step.parent, step.depth, dict(step.attributes)


_Found = Iterator[tuple[str, NodeId, str]]


def _layers(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        fits = node.depth == LEAF_DEPTH if node.kind is NodeKind.LEAF else 1 <= node.depth < LEAF_DEPTH
        above = stored.nodes.get(node.parent) if node.parent is not None else None
        if node.kind is not NodeKind.ROOT and (not fits or above is None or above.depth != node.depth - 1):
            yield "four-layers", node.id, f"is a {node.kind} at depth {node.depth} below {node.parent}"


def _twins(stored: Stored) -> _Found:
    seen: dict[tuple[NodeId | None, str], NodeId] = {}
    for node in stored.nodes.values():
        label = node.attributes.get(LABEL)
        if label:
            first = seen.setdefault((node.parent, normalized(str(label))), node.id)
            if first != node.id:
                yield "one-label", node.id, f"has the label {label!r}, and so has {first} beside it"


def _mislabelled(stored: Stored) -> _Found:
    for node in stored.nodes.values():
        if node.kind is not NodeKind.LEAF or not node.attributes:
            continue
        at: Node | None = node
        for layer in reversed(LAYERS):
            at = stored.nodes.get(at.parent) if at is not None and at.parent is not None else None
            own, other = node.attributes.get(layer), at.attributes.get(LABEL) if at is not None else None
            if own is not None and other and normalized(str(own)) != normalized(str(other)):
                yield "own-label", node.id, f"belongs to the {layer} {own!r} and lies below {other!r}"
