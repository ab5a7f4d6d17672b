"""
The `descent` strategy (H-MEM, section 3.2): down the layers, the nearest few of each among the children of those chosen above.

M_k(l) = the k nearest of the children of M_k(l - 1). With a domains and some 300 children a node the paper puts the cost at
O((a + k · 300) · D), against O(n · D) for comparing with all n episodes. Where nodes have fewer children, k of them hold little: a
trace may have two episodes. So more are chosen, the nearest first, as long as their children are no more than `ROOM` together,
which is a third of the paper's k · 300 a layer: a descent computes a + 3 · `ROOM` similarities or a + 3 · k · children, whichever
is more.

Among the episodes their weights count too (section 3.3; the paper hands them to the model that answers, and leaves open what they
do before): score = cosine + `WEIGHT_SHARE` · (w - 1) / (w + 1), where w is the episode's weight at the time of the tree's latest
event. So a weight of 1 changes nothing, and none changes a cosine by more than the share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from memory.errors import QueryError
from memory.model import NodeId, NodeKind, Vector
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.structures.hmem import LAYERS
from memory.structures.parameters import HMemParameters
from memory.structures.weights import weight

if TYPE_CHECKING:
    from memory.retrieval.traversal import ViewReader
    from memory.tree.view import Branch, Cosines, View

WIDTH = 10
"""Nodes chosen in each layer at least, where the paper does best."""
ROOM = 1_000
"""Children up to which more nodes are chosen (decision 0018)."""
WEIGHT_SHARE = 0.05
"""What a weight can add to a cosine, or take from it, at most (decision 0018)."""


class Chosen(NamedTuple):
    """A node of a layer."""

    node: NodeId
    score: float
    """Its cosine, and of an episode also `part`."""
    part: float = 0.0
    """What its weight makes of the score."""


@dataclass(frozen=True, slots=True)
class Layer:
    """What was chosen in one layer."""

    name: str
    compared: int
    """Similarities that were computed."""
    chosen: tuple[Chosen, ...]
    """Best first; ties by node id."""


def descend(
    view: View,
    vector: Vector,
    *,
    width: int,
    episodes: int,
    room: int = 0,
    parameters: HMemParameters | None = None,
    share: float = WEIGHT_SHARE,
) -> tuple[Layer, ...]:
    """
    The nearest of each layer among the children of those chosen in the layer above.

    Args:
        view: a tree of H-MEM; not changed.
        vector: (d,) float32.
        width: nodes chosen in each of the upper layers at least, 1 or more.
        episodes: nodes chosen in the last one, 1 or more.
        room: more nodes are chosen while they have no more children than that together; 0 chooses `width`.
        parameters: the tree's; None for the defaults.
        share: of weights in the scores of episodes, 0 or more.
    """
    weighing = parameters or HMemParameters()
    layers: list[Layer] = []
    beam: list[Branch] = [view.root]
    for name in (*LAYERS, "episode"):
        ids = [node for branch in beam for node in branch.ids]
        chosen: tuple[Chosen, ...] = ()
        if ids:
            cosines = np.concatenate([branch.cosines(vector) for branch in beam if branch.ids])
            if name == "episode":
                chosen = _best(view, ids, cosines, episodes, weighing, share)
            else:
                count = _fitting(view, ids, cosines, width, room)
                chosen = _first([Chosen(ids[slot], float(cosines[slot])) for slot in _near(cosines, count)], count)
        layers.append(Layer(name, len(ids), chosen))
        beam = [view.branches[node] for node, *_ in chosen if node in view.branches]
    return tuple(layers)


class Descent(Strategy):
    """
    Episodes below the nearest traces of the nearest categories of the nearest domains, by cosine and weight.

    Without a wish for kinds the answer is episodes; summaries are answered where they are asked for.

    Args:
        views: the trees.
        width: nodes chosen in each layer at least, 1 or more.
        room: children up to which more nodes are chosen.
        share: of weights in scores, 0 or more; 0 leaves them out.
    """

    name = "descent"

    def __init__(self, views: ViewReader, *, width: int = WIDTH, room: int = ROOM, share: float = WEIGHT_SHARE) -> None:
        self._views = views
        self._width = width
        self._room = room
        self._share = share

    async def rank(self, question: Question) -> Ranking:
        """
        See `Strategy.rank`.

        Raises:
            QueryError: a filter was given that only items can meet.
        """
        if question.scope.leaves_only:
            raise QueryError(
                "descent cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed", field="filter"
            )
        parameters = HMemParameters.from_mapping(question.parameters)
        async with self._views.hold(question.tree) as view:
            layers = descend(
                view,
                question.vector,
                width=self._width,
                episodes=question.most,
                room=self._room,
                parameters=parameters,
                share=self._share,
            )
            seq, episodes, latest = view.seq, len(view.homes), view.latest
        kinds = question.scope.kinds or {NodeKind.LEAF}
        wanted = [found for layer in layers[:-1] for found in layer.chosen if NodeKind.SUMMARY in kinds]
        leaves = set(layers[-1].chosen) if NodeKind.LEAF in kinds else set()
        ranked = tuple(
            Ranked(node=found.node, score=found.score, parts=_parts(found, leaf=found in leaves) if question.explain else {})
            for found in _first([*wanted, *leaves], question.most)
        )
        trace = _told(layers, _weighed(latest, self._share), episodes) if question.explain else ()
        return Ranking(ranked=ranked, seq=seq, trace=trace)


def _fitting(view: View, ids: Sequence[NodeId], cosines: Cosines, width: int, room: int) -> int:
    """How many of the nearest nodes are chosen."""
    if room <= width or len(ids) <= width:
        return width
    # Each has a child at least.
    order = np.argsort(-cosines, kind="stable")[:room]
    children = np.cumsum([len(view.branches[ids[slot]]) for slot in order])
    return max(width, int(np.searchsorted(children, room, side="right")))


def _near(cosines: Cosines, k: int, slack: float = 0.0) -> list[int]:
    """Slots of all whose cosine is as high as the k-th highest less `slack`, so that ties are broken by id."""
    if k >= len(cosines):
        return list(range(len(cosines)))
    border = np.partition(cosines, -k)[-k] - np.float32(slack)
    slots: list[int] = np.flatnonzero(cosines >= border).tolist()
    return slots


def _best(
    view: View, ids: Sequence[NodeId], cosines: Cosines, k: int, parameters: HMemParameters, share: float
) -> tuple[Chosen, ...]:
    """The episodes with the best scores. One that is not within twice the share of the k-th cosine cannot be among them."""
    found = []
    for slot in _near(cosines, k, 2.0 * share):
        attributes = view.attributes.get(ids[slot])
        heavy = 1.0 if attributes is None or not share else weight(attributes, view.latest, parameters)
        part = share * (heavy - 1.0) / (heavy + 1.0)
        found.append(Chosen(ids[slot], float(cosines[slot]) + part, part))
    return _first(found, k)


def _first(found: Sequence[Chosen], k: int) -> tuple[Chosen, ...]:
    return tuple(sorted(found, key=lambda each: (-each.score, each.node))[:k])


def _parts(found: Chosen, *, leaf: bool) -> dict[str, float]:
    return {"cosine": found.score - found.part, "weight": found.part} if leaf else {"cosine": found.score}


def _weighed(latest: float, share: float) -> str:
    when = datetime.fromtimestamp(latest, UTC).isoformat(" ", "minutes") if math.isfinite(latest) else "no time: none is told"
    return f"weights as of {when}; a weight w adds {share:g} · (w - 1) / (w + 1)"


def _told(layers: tuple[Layer, ...], weighed: str, episodes: int) -> tuple[str, ...]:
    lines = []
    for layer in layers:
        best = f", best {layer.chosen[0].node} ({layer.chosen[0].score:.3f})" if layer.chosen else ""
        lines.append(f"{layer.name}: compared with {layer.compared}, chose {len(layer.chosen)}{best}")
    total = sum(layer.compared for layer in layers)
    return (*lines, weighed, f"{total} similarities computed; a flat search computes {episodes}")
