"""What is left when leaves go, as steps: summaries above them made of what stays, provisionally, and marked to be made properly."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from memory.changes import Annotate, Expectation, Recall, Remove, Rewrite, Shrink, Step
from memory.model import ROOT, Mark, NodeId, TreeId, Vector
from memory.ports.store import TreeStore
from memory.structures.base import Removal, Structure
from memory.tree.provisional import provisional_text
from memory.tree.similarity import NORM_MIN, merge_means
from memory.tree.view import Branch, View

TEXTS_MAX = 8
"""Children whose texts a provisional text is made of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRemoval:
    """What taking leaves out of a tree does, ready to be compared and applied."""

    leaves: tuple[NodeId, ...]
    removal: Removal
    steps: tuple[Step, ...]
    expects: tuple[Expectation, ...]


@dataclass(frozen=True, slots=True)
class _Made:
    """A summary as it is made of what is left below it."""

    text: str
    vector: Vector
    cohesion: float
    descendants: int


class Remnants:
    """
    Plans removals.

    Args:
        store: of the trees; asked for what a view does not have, texts and counts.
    """

    def __init__(self, store: TreeStore) -> None:
        self._store = store

    async def plan(self, tree: TreeId, structure: Structure, view: View, leaves: Sequence[NodeId]) -> PlannedRemoval:
        """
        Take leaves out of a tree.

        Nothing of a plan is made of what goes: texts, vectors and attributes of the summaries that stay are those of what stays.

        Args:
            tree: which.
            structure: the tree's.
            view: the tree as it stands; not changed.
            leaves: those that the view does not have are passed over.
        """
        removal = structure.removal(view, leaves)
        gone = frozenset(removal.nodes)
        going = [node for node in removal.nodes if node in view.homes]
        steps: list[Step] = [
            Shrink(leaf=leaf, nodes=tuple(above.id for above in view.ancestors(leaf) if above.id != ROOT)) for leaf in going
        ]
        steps += [Remove(node=node, parent=_parent(view, node)) for node in removal.nodes]
        made = await self._made(tree, view, removal, gone)
        steps += [
            Rewrite(
                node=node,
                parent=_parent(view, node),
                vector=made[node].vector,
                cohesion=made[node].cohesion,
                through=Mark(0),
                provisional=True,
                text=made[node].text,
            )
            for node in removal.rewritten
        ]
        # Said again even where they stay the same: the log is going to forget what it said of them before.
        attributes = ((node, structure.attributes_left(view, node, gone)) for node in removal.rewritten)
        steps += [Annotate(node=node, attributes=left) for node, left in attributes if left]
        steps += _recalls(view, removal, gone)
        return PlannedRemoval(
            leaves=tuple(going),
            removal=removal,
            steps=tuple(steps),
            expects=tuple(Expectation(node=node, version=view.branches[node].version) for node in removal.rewritten),
        )

    async def _made(self, tree: TreeId, view: View, removal: Removal, gone: Collection[NodeId]) -> dict[NodeId, _Made]:
        left = {node: [child for child in view.branches[node].ids if child not in gone] for node in removal.rewritten}
        wanted: dict[NodeId, None] = {}
        for children in left.values():
            wanted.update(dict.fromkeys(child for child in children if child in view.branches and child not in left))
            wanted.update(dict.fromkeys([child for child in children if child in view.homes][:TEXTS_MAX]))
        found = await self._store.nodes(tree, list(wanted))
        made: dict[NodeId, _Made] = {
            node: _Made("", np.empty(0, np.float32), read.cohesion, read.descendants) for node, read in found.items()
        }
        texts = {node: read.text for node, read in found.items()}
        for node in removal.rewritten:
            branch = view.branches[node]
            vector, cohesion, descendants = _mean(view, branch, gone, made)
            # The fullest children say most; leaves, which are equal, in the order in which they stand.
            telling = sorted(left[node], key=lambda child: -made[child].descendants if child in made else 0)[:TEXTS_MAX]
            text = provisional_text([texts.get(child, "") for child in left[node] if child in telling])
            made[node] = _Made(text, vector, cohesion, descendants)
            texts[node] = text
        return made


def _mean(view: View, branch: Branch, gone: Collection[NodeId], made: dict[NodeId, _Made]) -> tuple[Vector, float, int]:
    """Direction and length of the mean of all leaves that are left below a branch, and their number."""
    rows = branch.rows(0)
    parts: list[tuple[Vector, float, int]] = []
    leaves: list[int] = []
    for slot, child in enumerate(branch.ids):
        if child in gone:
            continue
        if child in view.homes:
            leaves.append(slot)
        else:
            known = made.get(child)
            vector = known.vector if known is not None and known.vector.size else rows[slot]
            parts.append((vector, known.cohesion if known else 1.0, max(1, known.descendants if known else 1)))
    if leaves:
        total = rows[leaves].sum(axis=0) / np.float32(len(leaves))
        length = float(np.sqrt(total @ total))
        direction = rows[leaves[0]] if length < NORM_MIN else total / np.float32(length)
        parts.append((direction, max(length, NORM_MIN), len(leaves)))
    vector, cohesion = merge_means(parts)
    return vector, cohesion, sum(count for _, _, count in parts)


def _recalls(view: View, removal: Removal, gone: Collection[NodeId]) -> list[Recall]:
    """A leaf that waits for each summary that is to be made anew: as few leaves as will do."""
    left = dict.fromkeys(removal.rewritten)
    steps: list[Recall] = []
    while left:
        leaf = _some_leaf(view, next(iter(left)), gone)
        nodes = tuple(above.id for above in view.ancestors(leaf) if above.id in left)
        steps.append(Recall(leaf=leaf, nodes=nodes))
        for node in nodes:
            del left[node]
    return steps


def _some_leaf(view: View, node: NodeId, gone: Collection[NodeId]) -> NodeId:
    while node in view.branches:
        node = next(child for child in view.branches[node].ids if child not in gone)
    return node


def _parent(view: View, node: NodeId) -> NodeId:
    parent = view.parent(node)
    assert parent is not None
    return parent.id
