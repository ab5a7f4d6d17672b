"""
The `descent` strategy (H-MEM, section 3.2): down the layers, the nearest few of each among the children of those chosen above.

M_k(l) = the k nearest of the children of M_k(l - 1). With a domains and some 300 children a node the paper puts the cost at
O((a + k · 300) · D), against O(n · D) for comparing with all n episodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from memory.errors import QueryError
from memory.model import NodeId, NodeKind, Vector
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.structures.hmem import LAYERS

if TYPE_CHECKING:
    from memory.retrieval.traversal import ViewReader
    from memory.tree.view import Branch, View

WIDTH = 10
"""Nodes chosen in each layer, where the paper does best."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What was chosen in one layer."""

    name: str
    compared: int
    """Similarities that were computed."""
    chosen: tuple[tuple[NodeId, float], ...]
    """The nearest and their cosines, nearest first; ties by node id."""


def descend(view: View, vector: Vector, *, width: int, episodes: int) -> tuple[Layer, ...]:
    """
    The nearest of each layer among the children of those chosen in the layer above.

    Args:
        view: a tree of H-MEM; not changed.
        vector: (d,) float32.
        width: nodes chosen in each of the upper layers, 1 or more.
        episodes: nodes chosen in the last one, 1 or more.
    """
    layers: list[Layer] = []
    beam: list[Branch] = [view.root]
    for name in (*LAYERS, "episode"):
        ids = [node for branch in beam for node in branch.ids]
        chosen: tuple[tuple[NodeId, float], ...] = ()
        if ids:
            cosines = np.concatenate([branch.cosines(vector) for branch in beam if branch.ids])
            chosen = _nearest(ids, cosines, episodes if name == "episode" else width)
        layers.append(Layer(name, len(ids), chosen))
        beam = [view.branches[node] for node, _ in chosen if node in view.branches]
    return tuple(layers)


class Descent(Strategy):
    """
    Episodes below the nearest traces of the nearest categories of the nearest domains, by cosine.

    Without a wish for kinds the answer is episodes; summaries are answered where they are asked for.

    Args:
        views: the trees.
        width: nodes chosen in each layer, 1 or more.
    """

    name = "descent"

    def __init__(self, views: ViewReader, *, width: int = WIDTH) -> None:
        self._views = views
        self._width = width

    async def rank(self, question: Question) -> Ranking:
        """
        See `Strategy.rank`.

        Raises:
            QueryError: a filter was given that only items can meet.
        """
        if question.scope.leaves_only:
            raise QueryError("descent cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed")
        async with self._views.hold(question.tree) as view:
            layers = descend(view, question.vector, width=self._width, episodes=question.k)
            seq, episodes = view.seq, len(view.homes)
        kinds = question.scope.kinds or {NodeKind.LEAF}
        wanted = [(node, cosine) for layer in layers[:-1] for node, cosine in layer.chosen if NodeKind.SUMMARY in kinds]
        wanted += layers[-1].chosen if NodeKind.LEAF in kinds else ()
        wanted.sort(key=lambda found: (-found[1], found[0]))
        ranked = tuple(
            Ranked(node=node, score=cosine, parts={"cosine": cosine} if question.explain else {})
            for node, cosine in wanted[: question.k]
        )
        return Ranking(ranked=ranked, seq=seq, trace=_told(layers, episodes) if question.explain else ())


def _nearest(
    ids: list[NodeId], cosines: np.ndarray[tuple[int, ...], np.dtype[np.float32]], k: int
) -> tuple[tuple[NodeId, float], ...]:
    slots = list(range(len(ids)))
    if k < len(ids):
        # All that are as near as the k-th, so that ties are broken by id.
        border = np.partition(cosines, -k)[-k]
        slots = np.flatnonzero(cosines >= border).tolist()
    found = sorted(((ids[slot], float(cosines[slot])) for slot in slots), key=lambda each: (-each[1], each[0]))
    return tuple(found[:k])


def _told(layers: tuple[Layer, ...], episodes: int) -> tuple[str, ...]:
    lines = []
    for layer in layers:
        best = f", best {layer.chosen[0][0]} ({layer.chosen[0][1]:.3f})" if layer.chosen else ""
        lines.append(f"{layer.name}: compared with {layer.compared}, chose {len(layer.chosen)}{best}")
    total = sum(layer.compared for layer in layers)
    return (*lines, f"{total} similarities computed; a flat search computes {episodes}")
