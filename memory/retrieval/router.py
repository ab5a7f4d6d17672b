"""
The `router` strategy (MemGAS, sections 2.3 and 2.4): weights by granularity, and a walk over the association graph.

Beside the measure of entropies (`memory.retrieval.entropy`) two things differ from the paper as they find more (decision 0014).
A walk starts at seeds in proportion to weight · exp(similarity / sharpness) instead of weight · similarity: the similarities of the
best units lie within a few hundredths of one another, so that it would start anywhere among them. And there are more seeds, and the
walk is shorter.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memory.errors import QueryError
from memory.model import NodeId, NodeKind, TreeId
from memory.retrieval import entropy
from memory.retrieval.pagerank import Graph
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.structures.memgas import GRANULARITIES

if TYPE_CHECKING:
    from memory.retrieval.traversal import ViewReader
    from memory.tree.view import View

TURN = "turn"
LEVELS = (*GRANULARITIES, TURN)
KEPT_BYTES_MAX = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterRecipe:
    """The parameters."""

    degree: float = 0.2
    """λ of the entropy (appendix F: best near 0.2)."""
    sharpness: float = 0.05
    """Difference of cosine at which a seed counts e times as much."""
    seeds: int = 100
    """α: units where walks start."""
    damping: float = 0.3
    """Chance of going on along an edge instead of starting again."""


@dataclass(frozen=True, slots=True)
class _Units:
    """A tree's units, in columns."""

    seq: int
    ids: list[NodeId]
    levels: NDArray[np.int8]
    """(n,) index into `LEVELS`."""
    vectors: NDArray[np.float32]
    """(n, d)"""
    graph: Graph

    @property
    def bytes(self) -> int:
        return self.vectors.nbytes + 200 * len(self.ids)


class GranularityRouter(Strategy):
    """
    Units of all granularities, by Personalized PageRank from those that the question is nearest to.

    The graph's edges are the associations, and those between a session's own units and turns. A tree's units are kept in columns
    until it changes.

    Args:
        views: the trees.
        recipe: the parameters.
    """

    name = "router"

    def __init__(self, views: ViewReader, *, recipe: RouterRecipe | None = None) -> None:
        self._views = views
        self._recipe = recipe or RouterRecipe()
        self._kept: OrderedDict[TreeId, _Units] = OrderedDict()

    async def rank(self, question: Question) -> Ranking:
        """
        See `Strategy.rank`.

        Raises:
            QueryError: a filter was given that only items can meet, or the extra `memgas` is not installed.
        """
        if question.scope.leaves_only:
            raise QueryError("router cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed")
        units = await self._units(question.tree)
        if not units.ids:
            return Ranking(ranked=(), seq=units.seq)
        recipe = self._recipe
        cosines = units.vectors @ question.vector
        shares = entropy.weights({level: cosines[units.levels == level] for level in range(len(LEVELS))}, recipe.degree)
        weights = np.array(list(shares.values()))
        starts = weights[units.levels] * np.exp((cosines.astype(np.float64) - float(cosines.max())) / recipe.sharpness)
        seeds = np.argpartition(-starts, min(recipe.seeds, len(starts)) - 1)[: recipe.seeds]
        start = np.zeros(len(starts))
        start[seeds] = starts[seeds]
        ranks = units.graph.rank(start, damping=recipe.damping)
        kinds = question.scope.kinds
        if kinds is not None:
            leaf = units.levels == LEVELS.index(TURN)
            ranks = np.where(leaf if NodeKind.SUMMARY not in kinds else ~leaf if NodeKind.LEAF not in kinds else True, ranks, -1.0)
        best = [place for place in np.argsort(-ranks, kind="stable")[: question.k].tolist() if ranks[place] > 0]
        ranked = tuple(
            Ranked(
                node=units.ids[place],
                score=float(ranks[place]),
                parts={
                    "cosine": float(cosines[place]),
                    "granularity": float(weights[units.levels[place]]),
                    "seed": float(start[place]),
                }
                if question.explain
                else {},
            )
            for place in best
        )
        named = ", ".join(f"{level} {weight:.3f}" for level, weight in zip(LEVELS, weights, strict=True))
        trace = (f"weights: {named}", f"walks from {len(seeds)} of {len(starts)} units") if question.explain else ()
        return Ranking(ranked=ranked, seq=units.seq, trace=trace)

    async def _units(self, tree: TreeId) -> _Units:
        kept = self._kept.pop(tree, None)
        async with self._views.hold(tree) as view:
            units = kept if kept is not None and kept.seq == view.seq else _columns(view)
        self._kept[tree] = units
        while sum(each.bytes for each in self._kept.values()) > KEPT_BYTES_MAX and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return units


def _columns(view: View) -> _Units:
    ids: list[NodeId] = []
    levels: list[int] = []
    blocks: list[NDArray[np.float32]] = []
    ends: list[NDArray[np.int64]] = []
    first: dict[NodeId, int] = {}
    for branch in view.branches.values():
        if branch.ids:
            first[branch.id] = len(ids)
            ids.extend(branch.ids)
            levels.extend([min(branch.depth, len(LEVELS) - 1)] * len(branch))
            blocks.append(branch.rows(0))
    places = {node: place for place, node in enumerate(ids)}
    for node, start in first.items():
        if node in places:  # the root is no unit
            below = np.arange(start, start + len(view.branches[node]))
            ends.append(np.stack([np.full(len(below), places[node]), below], axis=1))
    one = np.fromiter(chain.from_iterable([places[node]] * len(others) for node, others in view.links.items()), np.int64)
    two = np.fromiter(map(places.__getitem__, chain.from_iterable(view.links.values())), np.int64)
    ends.append(np.stack([one, two], axis=1)[one < two])  # a view has each edge at both of its ends
    try:
        graph = Graph(len(ids), np.concatenate(ends))
    except ImportError as error:
        raise QueryError("the strategy router needs the library scipy: `pip install 'banyan-memory[memgas]'`") from error
    vectors = np.concatenate(blocks) if blocks else np.zeros((0, view.dimension), np.float32)
    return _Units(view.seq, ids, np.array(levels, np.int8), vectors, graph)
