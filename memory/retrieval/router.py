"""
The `router` strategy (MemGAS, sections 2.3 and 2.4): weights by granularity, and a walk over the association graph.

Beside the measure of entropies (`memory.retrieval.entropy`) three things differ from the paper as they find more (decision 0014).
A walk starts at seeds in proportion to weight · exp(similarity / sharpness) instead of weight · similarity: the similarities of the
best units lie within a few hundredths of one another, so that it would start anywhere among them. There are more seeds, and the
walk is shorter. And a unit gains from what its session got as a whole: the paper retrieves sessions, here turns are found too.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from memory.errors import QueryError
from memory.model import NodeKind, TreeId
from memory.retrieval import entropy
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.units import LEVELS, TURN, Units

if TYPE_CHECKING:
    from memory.retrieval.traversal import ViewReader

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
    damping: float = 0.1
    """Chance of going on along an edge instead of starting again. What other sets than LoCoMo choose (docs/evaluation.md): with 0.3
    associations lead away from facts that stand alone, with 0, no walk at all, HotpotQA is 6 points worse."""
    tolerance: float = 1e-6
    """Change of all ranks together at which a walk ends: of 60 questions to 10,000 units the first hundred are those of 1e-12."""
    session_power: float = 0.5
    """Power of what all units of a session got together that each of them is multiplied by: a turn gains where others of its
    session, or its summary and keywords, fit too. 0 is the paper's. 1 finds up to half a point more, and in a memory
    of few sessions puts what does not fit before what does, for its session alone (decision 0014)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """What a question's walk made of a tree's units."""

    weights: NDArray[np.float64]
    """(4,) of the granularities, in the order of `LEVELS`."""
    start: NDArray[np.float64]
    """(n,) how much of the walk starts at each unit; 0 for most."""
    together: NDArray[np.float64]
    """(n,) by the place of a session unit: what all units of the session got."""
    ranks: NDArray[np.float64]
    """(n,) by which units are ranked."""


def walked(units: Units, cosines: NDArray[np.floating], recipe: RouterRecipe) -> Walk:
    """
    Weights of the granularities, seeds and Personalized PageRank (equations 3 to 5, as the module's docstring says).

    start_i = w_g(i) · exp((s_i - max s) / sharpness) for the `seeds` units with most of it (equation 5 has w_g(i) · s_i), and 0
    for the others; r is `Graph.rank` of these; ranks_i = r_i · (Σ r_j over the units j of i's session) ^ session_power.

    Args:
        units: of the tree, at least one.
        cosines: (n,) of the question with each.
        recipe: the parameters.
    """
    shares = entropy.weights({level: cosines[units.levels == level] for level in range(len(LEVELS))}, recipe.degree)
    weights = np.array(list(shares.values()))
    starts = weights[units.levels] * np.exp((cosines.astype(np.float64) - float(cosines.max())) / recipe.sharpness)
    seeds = np.argpartition(-starts, min(recipe.seeds, len(starts)) - 1)[: recipe.seeds]
    start = np.zeros(len(starts))
    start[seeds] = starts[seeds]
    ranks = units.graph.rank(start, damping=recipe.damping, tolerance=recipe.tolerance)
    together = np.asarray(np.bincount(units.sessions, weights=ranks), np.float64)
    return Walk(weights=weights, start=start, together=together, ranks=ranks * together[units.sessions] ** recipe.session_power)


def foremost(ranks: NDArray[np.floating], k: int) -> NDArray[np.intp]:
    """
    Places of the k largest, the largest first, of equals the earlier: as a stable sort of all, without sorting all.

    Args:
        ranks: (n,)
        k: most of them, 1 or more.
    """
    if k >= len(ranks):
        return np.argsort(-ranks, kind="stable")
    least = np.partition(ranks, len(ranks) - k)[len(ranks) - k]
    among = np.flatnonzero(ranks >= least)
    return np.asarray(among[np.argsort(-ranks[among], kind="stable")][:k])


class GranularityRouter(Strategy):
    """
    Units of all granularities, by Personalized PageRank from those that the question is nearest to.

    The graph's edges are the associations, and those between a session's own units and turns. A tree's units are kept in columns
    that follow it.

    Args:
        views: the trees.
        recipe: the parameters.
    """

    name = "router"

    def __init__(self, views: ViewReader, *, recipe: RouterRecipe | None = None) -> None:
        self._views = views
        self._recipe = recipe or RouterRecipe()
        self._kept: OrderedDict[TreeId, Units] = OrderedDict()

    async def rank(self, question: Question) -> Ranking:
        """
        See `Strategy.rank`.

        Raises:
            QueryError: a filter was given that only items can meet, or the extra `memgas` is not installed.
        """
        if question.scope.leaves_only:
            raise QueryError(
                "router cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed", field="filter"
            )
        units = await self.units(question.tree)
        if not units.ids:
            return Ranking(ranked=(), seq=units.seq)
        recipe = self._recipe
        cosines = units.vectors @ question.vector
        walk = walked(units, cosines, recipe)
        weights, start, together, ranks = walk.weights, walk.start, walk.together, walk.ranks
        kinds = question.scope.kinds
        if kinds is not None:
            leaf = units.levels == LEVELS.index(TURN)
            ranks = np.where(leaf if NodeKind.SUMMARY not in kinds else ~leaf if NodeKind.LEAF not in kinds else True, ranks, -1.0)
        best = [place for place in foremost(ranks, question.most).tolist() if ranks[place] > 0]
        ranked = tuple(
            Ranked(
                node=units.ids[place],
                score=float(ranks[place]),
                parts={
                    "cosine": float(cosines[place]),
                    "granularity": float(weights[units.levels[place]]),
                    "seed": float(start[place]),
                    "session": float(together[units.sessions[place]]),
                }
                if question.explain
                else {},
            )
            for place in best
        )
        named = ", ".join(f"{level} {weight:.3f}" for level, weight in zip(LEVELS, weights, strict=True))
        trace = (f"weights: {named}", f"walks from {np.count_nonzero(start)} of {len(start)} units") if question.explain else ()
        return Ranking(ranked=ranked, seq=units.seq, trace=trace)

    async def units(self, tree: TreeId) -> Units:
        """The units of a tree as it is now; valid until the next call."""
        async with self._views.hold(tree) as view:
            units = self._kept.get(tree)
            if units is None or not units.follow(view):
                units = Units(view)
            self._kept[tree] = units
            self._kept.move_to_end(tree)
        while sum(each.bytes for each in self._kept.values()) > KEPT_BYTES_MAX and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return units
