"""
Retrieval by walking through a HAT.

An agent starts at the root and goes where it expects the answer, until it has enough, gives up, or has no moves left (HAT, slides
"HAT for Conversations", "Stratergy" and "Prompt Used").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from memory.errors import NavigatorError, QueryError
from memory.model import Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Candidate, Candidates, IndexQuery
from memory.ports.navigator import Action, Choice, Navigator, Situation, WalkStep, Way
from memory.retrieval.agent_map import Layers, Place
from memory.retrieval.agent_policy import BestFirst
from memory.retrieval.fusion import scaled_dense, scaled_lexical, weighted
from memory.retrieval.ranking import Recipe
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.text import attributed_text, plain
from memory.retrieval.traversal import ViewReader

MOVES_MAX = 8
"""Actions of one walk, those that were refused included ("7-8 traversals" in the paper's prompt)."""
LEAVES_MAX = 64
"""Leaves that a summary is taken to stand for: with so many below a node, or fewer, all are in sight from it."""
REASON_CHARACTERS_MAX = 300


class NodeReader(Protocol):
    """Gives nodes by id; the store does."""

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> Mapping[NodeId, Node]:
        """Those of the nodes that exist."""


class Scorer(Protocol):
    """Gives both scores of nodes by id; the index does."""

    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Sequence[Candidate]:
        """Those of the nodes that are indexed."""


@dataclass(slots=True)
class _Walk:
    """One walk as it goes on."""

    vector: Vector
    steps: list[WalkStep] = field(default_factory=list)
    visited: dict[NodeId, int] = field(default_factory=dict)
    """Nodes that were stood on, and at which step first."""
    sight: dict[NodeId, float] = field(default_factory=dict)
    """Cosines of all nodes that were looked at."""
    below: dict[NodeId, frozenset[NodeId]] = field(default_factory=dict)
    """Of nodes that were stood on, all leaves below them, where these are few."""
    tried: set[tuple[NodeId, Action, NodeId]] = field(default_factory=set)
    """Ways that were gone: going one again would be a loop."""
    enough: NodeId | None = None
    seq: int = 0

    def see(self, node: NodeId, similarity: float) -> None:
        self.sight[node] = similarity

    def suffices(self, node: NodeId) -> bool:
        """Whether the walk ended on a node, or on one whose summary it belongs to."""
        return self.enough is not None and (node == self.enough or node in self.below.get(self.enough, ()))


class Agent(Strategy):
    """
    A walk of at most `moves_max` actions, and the k nodes that fit the question best among all that it had in sight.

    In sight are the nodes it stood on, their children, their neighbours in time, and, where a node has at most `LEAVES_MAX` leaves
    below it, all of these: they are what its summary was made of. So a walk has as many answers as it came by, and the texts
    of at most `moves_max` · `LEAVES_MAX` leaves are compared, however long the memory is. They are ranked as candidates of `hybrid`
    are, by cosine and by words. Where it found enough, that node comes first, then the leaves below it.

    An action that is not possible, or that would go round in a circle, is refused: the navigator is told, and has one move less.
    Down leads to the child nearest to the question that was not visited yet; the paper does not say which child.

    Args:
        views: the trees.
        reader: gives the texts.
        index: tells how well words fit; None ranks by cosine alone.
        navigator: who chooses; None goes by similarity alone. Where it is away, so is the rest of the way, and the trace says it.
        moves_max: limit of actions, 1 or more.
    """

    name = "agent"

    def __init__(
        self,
        views: ViewReader,
        reader: NodeReader,
        *,
        index: Scorer | None = None,
        navigator: Navigator | None = None,
        moves_max: int = MOVES_MAX,
    ) -> None:
        self._views = views
        self._reader = reader
        self._index = index
        self._navigator = navigator or BestFirst()
        self._moves_max = moves_max

    async def rank(self, question: Question) -> Ranking:
        """See `Strategy.rank`."""
        if question.scope.leaves_only:
            raise QueryError(
                "agent cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed", field="filter"
            )
        walk = await self.walk(question)
        kinds = question.scope.kinds
        async with self._views.hold(question.tree) as view:
            kind = {node: NodeKind.SUMMARY if node in view.branches else NodeKind.LEAF for node in walk.sight if node in view}
        nodes = [node for node, each in kind.items() if kinds is None or each in kinds]
        words = await self._words(question, nodes)
        leaf = np.array([kind[node] is NodeKind.LEAF for node in nodes])
        scores = _scores(np.array([walk.sight[node] for node in nodes]), words, leaf)
        wanted = sorted(
            (-float(score) - walk.suffices(node) - (node == walk.enough), place, node)
            for place, (score, node) in enumerate(zip(scores, nodes, strict=True))
        )
        ranked = tuple(
            Ranked(node=node, score=-negated, parts=_parts(walk, node, words, place) if question.explain else {})
            for negated, place, node in wanted[: question.most]
        )
        trace = tuple(_drawn(walk.steps)) if question.explain else ()
        return Ranking(ranked=ranked, seq=walk.seq, trace=trace)

    async def _words(self, question: Question, nodes: Sequence[NodeId]) -> NDArray[np.float64] | None:
        """BM25 of each node; None without an index."""
        if self._index is None or not nodes:
            return None
        query = IndexQuery(vector=question.vector, terms=plain(question.text), dense_k=0, lexical_k=0)
        found = Candidates.of(await self._index.score(question.tree, query, nodes))
        scored = dict(zip(found.nodes, found.lexical.tolist(), strict=True))
        return np.array([scored.get(node, 0.0) for node in nodes])

    async def walk(self, question: Question) -> _Walk:
        """The walk itself, with its reasons."""
        walk = _Walk(vector=question.vector)
        navigator = self._navigator
        at: NodeId | None = None
        while len(walk.steps) < self._moves_max:
            found = await self._look(question.tree, walk, at)
            if found is None:
                break
            place, situation = found
            at = place.node
            texts = await self._reader.nodes(question.tree, [at])
            node = texts.get(at)
            text = "" if node is None else attributed_text(node.item) if node.item is not None else node.text
            situation = replace(
                situation, question=question.text, text=text, moves_left=self._moves_max - len(walk.steps), walk=tuple(walk.steps)
            )
            try:
                choice = await navigator.choose(situation)
            except NavigatorError as error:
                navigator = BestFirst()
                choice = await navigator.choose(situation)
                choice = replace(choice, reason=f"{choice.reason} (by similarity: {error})")
            at = self._act(walk, place, situation, choice)
            if at is None:
                break
        return walk

    async def _look(self, tree: TreeId, walk: _Walk, at: NodeId | None) -> tuple[Place, Situation] | None:
        """What is to be seen from a node, or from the root; None in an empty tree. The view is held no longer than that."""
        async with self._views.hold(tree) as view:
            walk.seq = view.seq
            if not view.root.ids:
                return None
            layers = Layers(view)
            place = (layers.find(at) if at is not None else None) or layers.root()
            here = place.node
            walk.visited.setdefault(here, len(walk.steps))
            walk.see(here, layers.similarity(here, walk.vector))
            ways: dict[Action, Way] = {}

            def way(action: Action, node: NodeId | None) -> None:
                if node is None:
                    return
                similarity = layers.similarity(node, walk.vector)
                walk.see(node, similarity)
                back = action in (Action.LEFT, Action.RIGHT) and node in walk.visited
                if not back and (here, action, node) not in walk.tried:
                    ways[action] = Way(node=node, similarity=similarity, visited=node in walk.visited)

            children = layers.children(here, walk.vector)
            for similarity, child in children:
                walk.see(child, similarity)
            leaves = layers.leaves(here, walk.vector, limit=LEAVES_MAX)
            if leaves:
                walk.below[here] = frozenset(leaf for _, leaf in leaves)
                walk.sight.update((leaf, similarity) for similarity, leaf in leaves)
            way(Action.DOWN, next((child for _, child in children if child not in walk.visited), None))
            way(Action.LEFT, layers.beside(place, Action.LEFT))
            way(Action.RIGHT, layers.beside(place, Action.RIGHT))
            way(Action.UP, layers.above(place))
            way(Action.RESET, layers.root().node if place.layer else None)
            situation = Situation(
                question="",
                layer=place.layer,
                node=place.number,
                layers=layers.count,
                nodes=len(layers.layer(place.layer)),
                text="",
                similarity=walk.sight[here],
                walk=(),
                moves_left=1,
                ways=ways,
                read=leaves is not None,
            )
            return place, situation

    def _act(self, walk: _Walk, place: Place, situation: Situation, choice: Choice) -> NodeId | None:
        """Carry an action out; returns where the walk stands then, None where it has ended."""
        action, error = choice.action, ""
        to: NodeId | None = place.node
        if action is None:
            error = "that was no action; answer with one of U, D, L, R, S, O, I"
        elif action in (Action.SUFFICIENT, Action.INSUFFICIENT):
            walk.enough = place.node if action is Action.SUFFICIENT else None
            to = None
        elif action in situation.ways:
            to = situation.ways[action].node
            walk.tried.add((place.node, action, to))
        else:
            error = _refusal(action, place, situation)
        reason = " ".join(choice.reason.split())[:REASON_CHARACTERS_MAX]
        walk.steps.append(WalkStep(layer=place.layer, node=place.number, action=action, reason=reason, error=error))
        return to


def _scores(cosines: NDArray[np.float64], words: NDArray[np.float64] | None, leaf: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(n,) by both, with the weights that `hybrid` has; by cosine where words are not known."""
    if words is None:
        return cosines
    recipe = Recipe()
    dense = scaled_dense(cosines, floor_rank=recipe.candidates)
    fused = weighted(dense, scaled_lexical(words), dense_weight=recipe.dense_weight)
    return np.where(leaf, fused, recipe.summary_factor * fused)


def _parts(walk: _Walk, node: NodeId, words: NDArray[np.float64] | None, place: int) -> dict[str, float]:
    parts = {"dense": walk.sight[node]}
    if words is not None:
        parts["bm25"] = float(words[place])
    if node in walk.visited:
        parts["visited at step"] = float(walk.visited[node] + 1)
    if walk.suffices(node):
        parts["sufficient"] = 1.0
    return parts


def _refusal(action: Action, place: Place, situation: Situation) -> str:
    """Why an action is not possible."""
    edges = {
        Action.UP: place.layer == 0,
        Action.RESET: place.layer == 0,
        Action.DOWN: place.layer >= situation.layers - 1,
        Action.LEFT: place.number == 0,
        Action.RIGHT: place.number >= situation.nodes - 1,
    }
    where = {
        Action.UP: "this is the root",
        Action.RESET: "this is the root",
        Action.DOWN: "this is the lowest layer",
        Action.LEFT: "this is the first node of the layer",
        Action.RIGHT: "this is the last node of the layer",
    }
    if edges[action]:
        return f"{action} is not possible: {where[action]}"
    return f"{action} would go round in a circle: that way was gone before"


def _drawn(steps: Sequence[WalkStep]) -> list[str]:
    """The walk, a line a step, with one bar for each layer below the root."""
    lines = []
    for number, step in enumerate(steps, 1):
        action = step.action.name.lower() if step.action is not None else "?"
        refused = f" ✘ {step.error}" if step.error else ""
        lines.append(f"{number}. {'│ ' * step.layer}layer {step.layer}, node {step.node} → {action}{refused} · {step.reason}")
    return lines
