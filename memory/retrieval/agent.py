"""
Retrieval by walking through a HAT.

An agent starts at the root and goes where it expects the answer, until it has enough, gives up, or has no moves left (HAT, slides
"HAT for Conversations", "Stratergy" and "Prompt Used").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from memory.errors import NavigatorError, QueryError
from memory.model import Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.navigator import Action, Choice, Navigator, Situation, WalkStep, Way
from memory.retrieval.agent_map import Layers, Place
from memory.retrieval.agent_policy import BestFirst
from memory.retrieval.strategy import Question, Ranked, Ranking, Strategy
from memory.retrieval.text import attributed_text
from memory.retrieval.traversal import ViewReader

MOVES_MAX = 8
"""Actions of one walk, those that were refused included ("7-8 traversals" in the paper's prompt)."""
REASON_CHARACTERS_MAX = 300


class NodeReader(Protocol):
    """Gives nodes by id; the store does."""

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> Mapping[NodeId, Node]:
        """Those of the nodes that exist."""


@dataclass(slots=True)
class _Walk:
    """One walk as it goes on."""

    vector: Vector
    steps: list[WalkStep] = field(default_factory=list)
    visited: dict[NodeId, int] = field(default_factory=dict)
    """Nodes that were stood on, and at which step first."""
    sight: dict[NodeId, float] = field(default_factory=dict)
    """Cosines of all nodes that were looked at: those stood on, their children, their neighbours."""
    tried: set[tuple[NodeId, Action, NodeId]] = field(default_factory=set)
    """Ways that were gone: going one again would be a loop."""
    enough: NodeId | None = None
    seq: int = 0

    def see(self, node: NodeId, similarity: float) -> None:
        self.sight[node] = similarity


class Agent(Strategy):
    """
    A walk of at most `moves_max` actions, and the k nodes nearest to the question among all that it had in sight.

    Where it found enough, that node comes first. In sight are the nodes it stood on, their children and their neighbours in time.
    An action that is not possible, or that would go round in a circle, is refused: the navigator is told, and has one move less.
    Down leads to the child nearest to the question that was not visited yet; the paper does not say which child.

    Args:
        views: the trees.
        reader: gives the texts.
        navigator: who chooses; None goes by similarity alone. Where it is away, so is the rest of the way, and the trace says it.
        moves_max: limit of actions, 1 or more.
    """

    name = "agent"

    def __init__(
        self, views: ViewReader, reader: NodeReader, *, navigator: Navigator | None = None, moves_max: int = MOVES_MAX
    ) -> None:
        self._views = views
        self._reader = reader
        self._navigator = navigator or BestFirst()
        self._moves_max = moves_max

    async def rank(self, question: Question) -> Ranking:
        """See `Strategy.rank`."""
        if question.scope.leaves_only:
            raise QueryError("agent cannot filter by speaker, conversation, source, time or metadata; use hybrid or collapsed")
        walk = await self.walk(question)
        async with self._views.hold(question.tree) as view:
            kinds = question.scope.kinds
            wanted = [
                (similarity + (node == walk.enough), node)
                for node, similarity in walk.sight.items()
                if node in view and (kinds is None or (NodeKind.SUMMARY if node in view.branches else NodeKind.LEAF) in kinds)
            ]
        wanted.sort(key=lambda scored: (-scored[0], scored[1]))
        ranked = tuple(
            Ranked(node=node, score=score, parts=self._parts(walk, node) if question.explain else {})
            for score, node in wanted[: question.k]
        )
        trace = tuple(_drawn(walk.steps)) if question.explain else ()
        return Ranking(ranked=ranked, seq=walk.seq, trace=trace)

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

    def _parts(self, walk: _Walk, node: NodeId) -> dict[str, float]:
        parts = {"dense": walk.sight[node]}
        if node in walk.visited:
            parts["visited at step"] = float(walk.visited[node] + 1)
        if node == walk.enough:
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
