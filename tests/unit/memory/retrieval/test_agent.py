"""Walks through a HAT: moves, refusals, limits, what is returned, and that the offline policy beats chance."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest

from memory.errors import NavigatorError, QueryError
from memory.model import EmbeddingModel, EventId, Item, Mark, Node, NodeId, NodeKind, TreeId, Vector
from memory.ports.index import Candidate, IndexQuery, Scope
from memory.ports.navigator import MOVES, Action, Choice, Navigator, Situation
from memory.retrieval.agent import LEAVES_MAX, MOVES_MAX, Agent
from memory.retrieval.agent_policy import BestFirst, RandomWalk
from memory.retrieval.strategy import Question, Ranking
from memory.structures.hat import Hat
from memory.structures.parameters import HatParameters
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import merge_means, quantize
from memory.tree.view import Branch, View

TREE = TreeId("t")
DIMENSION = 24
MODEL = EmbeddingModel(name="fake", dimension=DIMENSION, unrelated_cosine=0.0)


class Memory:
    """A HAT of clustered items, its summaries with the mean vectors that an extractive summarizer gives them."""

    def __init__(self, vectors: Sequence[Vector], length: int = 3, name: str = "e") -> None:
        self.hat = Hat(MODEL, HatParameters(memory_length=length))
        self.view = View(DIMENSION)
        items = [Item(event_id=EventId(f"{name}{number}"), text=f"text {number}") for number in range(len(vectors))]
        insertions = [Insertion(item=item, vector=vector) for item, vector in zip(items, vectors, strict=True)]
        self.hat.plan(self.view, insertions)
        self.items = {leaf_id(item.event_id, 0): item for item in items}
        for child in list(self.view.root.ids):
            self._mean(self.view.branches[child])

    def _mean(self, branch: Branch) -> tuple[Vector, float, int]:
        parts = []
        for slot, child in enumerate(branch.ids):
            inner = self.view.branches.get(child)
            parts.append((branch.row(slot), 1.0, 1) if inner is None else self._mean(inner))
        vector, length = merge_means(parts)
        assert branch.parent is not None
        branch.parent.replace(branch.slot, vector)
        return vector, length, sum(leaves for _, _, leaves in parts)

    @asynccontextmanager
    async def hold(self, tree: TreeId) -> AsyncIterator[View]:
        assert tree == TREE
        yield self.view

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> Mapping[NodeId, Node]:
        assert (tree, vectors) == (TREE, False)
        found = {}
        for node in ids:
            item = self.items.get(node)
            kind = NodeKind.SUMMARY if item is None else NodeKind.LEAF
            text = f"summary {node}" if item is None else item.text
            found[node] = Node(id=node, parent=None, kind=kind, depth=1, mark=Mark(1), text=text, item=item)
        return found


class Script(Navigator):
    """Does what it is told, and keeps what it was shown."""

    def __init__(self, *actions: Action | str | None) -> None:
        self.actions = list(actions)
        self.seen: list[Situation] = []

    @property
    def name(self) -> str:
        return "script"

    async def choose(self, situation: Situation) -> Choice:
        self.seen.append(situation)
        action = self.actions.pop(0) if self.actions else Action.INSUFFICIENT
        return Choice(action=None if action is None else Action(action), reason=f"because {len(self.seen)}")


def vectors(count: int, seed: int = 1, topics: int = 8) -> list[Vector]:
    """Runs of items about one topic each, as a conversation has them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((topics, DIMENSION))
    return [quantize(centres[(number // 9) % topics] + 0.6 * rng.standard_normal(DIMENSION)) for number in range(count)]


def question(vector: Vector, *, k: int = 10, explain: bool = True, scope: Scope | None = None) -> Question:
    return Question(tree=TREE, text="who?", vector=vector, k=k, scope=scope or Scope(), explain=explain)


@pytest.fixture(scope="module")
def memory() -> Memory:
    return Memory(vectors(27))


async def walked(
    memory: Memory, *actions: Action | str | None, k: int = 10, scope: Scope | None = None
) -> tuple[Ranking, list[Situation]]:
    script = Script(*actions)
    ranking = await Agent(memory, memory, navigator=script).rank(question(vectors(1)[0], k=k, scope=scope))
    return ranking, script.seen


async def test_it_starts_at_the_root_and_is_told_where_it_stands(memory: Memory) -> None:
    _, seen = await walked(memory, "D", "R", "L", "U", "D", "D")
    assert [(one.layer, one.nodes) for one in seen[:2]] == [(0, 1), (1, 3)]
    assert (seen[0].layers, seen[0].node, seen[0].question, seen[0].moves_left) == (4, 0, "who?", MOVES_MAX)
    assert seen[0].text.startswith("summary ")
    assert [one.node for one in seen[1:3]] == [seen[1].node, seen[1].node + 1]
    assert seen[3].error, "left again leads back to where it was"
    assert seen[-1].walk[0].reason == "because 1"


async def test_down_leads_to_the_nearest_child_that_was_not_visited(memory: Memory) -> None:
    _, seen = await walked(memory, "D", "U", "D", "U", "D", "U", "D")
    visited = [one.node for one in seen if one.layer == 1]
    assert sorted(visited) == [0, 1, 2]
    cosines = [one.similarity for one in seen if one.layer == 1]
    assert cosines == sorted(cosines, reverse=True)
    assert "D would go round in a circle" in seen[-1].error or seen[-1].layer == 0


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        (["U"], "U is not possible: this is the root"),
        (["S"], "S is not possible: this is the root"),
        (["L"], "L is not possible: this is the first node of the layer"),
        (["R"], "R is not possible: this is the last node of the layer"),
        (["D", "D", "D", "D"], "D is not possible: this is the lowest layer"),
        ([None], "that was no action"),
        (["D", "S", "D", "S", "D", "S", "D"], "D would go round in a circle"),
    ],
)
async def test_what_cannot_be_is_refused_told_and_counted(memory: Memory, actions: list[str | None], error: str) -> None:
    ranking, seen = await walked(memory, *actions)
    assert error in seen[-1].error
    assert seen[-1].moves_left == MOVES_MAX - len(actions)
    assert any("✘" in line for line in ranking.trace)
    assert (seen[-1].layer, seen[-1].node) == (seen[-2].layer, seen[-2].node), "it stands where it stood"


async def test_the_moves_are_limited_and_no_way_is_gone_twice(memory: Memory) -> None:
    rng = random.Random(3)
    for _ in range(50):
        script = Script(*(rng.choice(MOVES) for _ in range(100)))
        await Agent(memory, memory, navigator=script).rank(question(vectors(1)[0]))
        assert len(script.seen) == MOVES_MAX
        ways = [
            (step.layer, step.node, step.action, after.layer, after.node)
            for step, after in zip(script.seen[-1].walk, script.seen[1:], strict=True)
            if not step.error
        ]
        assert len(set(ways)) == len(ways)


async def test_what_was_enough_comes_first_then_the_leaves_below_it_then_what_was_in_sight(memory: Memory) -> None:
    ranking, seen = await walked(memory, "D", "O", k=40)
    first, *others = ranking.ranked
    assert first.parts == {"dense": pytest.approx(seen[1].similarity), "visited at step": 2.0, "sufficient": 1.0}
    below = [found.node for found in others if "sufficient" in found.parts]
    assert len(below) == 9, "of three layers of three, those below one of the three"
    assert [found.node for found in others][:9] == below
    for part in (others[:9], others[9:]):
        assert [found.score for found in part] == sorted((found.score for found in part), reverse=True)
    assert ranking.trace[0].startswith("1. layer 0, node 0 → down · because 1")
    assert "sufficient" in ranking.trace[1]


async def test_all_leaves_below_a_node_are_in_sight_where_they_are_few() -> None:
    memory = Memory(vectors(200), length=4)
    leaves = Scope(kinds=frozenset({NodeKind.LEAF}))
    seen = []
    for actions in (["I"], ["D", "I"]):
        ranking, situations = await walked(memory, *actions, k=200, scope=leaves)
        seen.append((situations[-1].read, len(ranking.ranked)))
    assert seen[0] == (False, 0), "the root stands for too many"
    assert seen[1][0]
    assert 8 <= seen[1][1] <= LEAVES_MAX


class Words:
    """An index in which one leaf has the question's words."""

    def __init__(self, node: NodeId) -> None:
        self.node = node

    async def score(self, tree: TreeId, query: IndexQuery, nodes: Sequence[NodeId]) -> Sequence[Candidate]:
        assert (tree, query.terms) == (TREE, "who?")
        return [
            Candidate(
                node=node,
                kind=NodeKind.LEAF,
                mark=Mark(1),
                dense=0.0,
                lexical=5.0 if node == self.node else 0.0,
                event_id=None,
                sequence=None,
                position=-1,
                speaker=None,
                at=None,
            )
            for node in nodes
        ]


async def test_what_is_in_sight_is_ranked_by_words_too(memory: Memory) -> None:
    by_cosine = (await Agent(memory, memory).rank(question(vectors(1)[0], k=40))).ranked
    least = next(found.node for found in reversed(by_cosine) if found.node in memory.items)
    ranking = await Agent(memory, memory, index=Words(least)).rank(question(vectors(1)[0], k=40))
    assert ranking.ranked[0].node == least
    assert ranking.ranked[0].parts["bm25"] == 5.0


async def test_nothing_was_enough(memory: Memory) -> None:
    ranking, _ = await walked(memory, "D", "I")
    assert all("sufficient" not in found.parts for found in ranking.ranked)


async def test_kinds_are_a_filter_and_other_filters_are_refused(memory: Memory) -> None:
    agent = Agent(memory, memory)
    ranking = await agent.rank(question(vectors(1)[0], scope=Scope(kinds=frozenset({NodeKind.LEAF}))))
    assert ranking.ranked
    assert all(found.node in memory.items for found in ranking.ranked)
    with pytest.raises(QueryError, match="hybrid"):
        await agent.rank(question(vectors(1)[0], scope=Scope(speaker="Ana")))


async def test_an_empty_tree_has_no_walk() -> None:
    empty = Memory([])
    assert await Agent(empty, empty).rank(question(vectors(1)[0])) == Ranking(ranked=(), seq=0)


async def test_a_tree_of_one_item() -> None:
    one = Memory(vectors(1))
    ranking = await Agent(one, one).rank(question(vectors(1)[0]))
    assert {found.node for found in ranking.ranked} >= set(one.items)


class Away(Navigator):
    @property
    def name(self) -> str:
        return "away"

    async def choose(self, situation: Situation) -> Choice:
        if situation.layer == 0:
            return Choice(action=Action.DOWN, reason="down")
        raise NavigatorError("the model is away")


async def test_where_the_navigator_is_away_similarity_goes_on(memory: Memory) -> None:
    ranking = await Agent(memory, memory, navigator=Away()).rank(question(vectors(1)[0]))
    assert "the model is away" in ranking.trace[1]
    assert len(ranking.trace) > 2


async def test_a_node_that_is_gone_leads_back_to_the_root() -> None:
    lost, other = Memory(vectors(27)), Memory(vectors(9, seed=5), name="other")

    class Vanishing(Script):
        async def choose(self, situation: Situation) -> Choice:
            if len(self.seen) == 1:
                lost.view = other.view
            return await super().choose(situation)

    script = Vanishing("D", "D", "I")
    await Agent(lost, lost, navigator=script).rank(question(vectors(1)[0]))
    assert [one.layer for one in script.seen] == [0, 1, 0]


async def test_the_offline_policy_beats_a_random_walk_of_the_same_length() -> None:
    given = vectors(1_500, seed=2, topics=170)
    memory = Memory(given, length=4)
    leaves = list(memory.items)
    scope = Scope(kinds=frozenset({NodeKind.LEAF}))

    async def found(navigator: Navigator) -> int:
        agent = Agent(memory, memory, navigator=navigator)
        hits = 0
        for number in range(0, 1_500, 25):
            asked = replace(question(given[number], explain=False, scope=scope), text=f"question {number}")
            hits += leaves[number] in {one.node for one in (await agent.rank(asked)).ranked}
        return hits

    best, chance = await found(BestFirst()), await found(RandomWalk())
    assert best >= 3 * max(1, chance), (best, chance)


async def test_the_offline_policy_looks_along_a_layer_from_which_all_leaves_are_in_sight() -> None:
    memory = Memory(vectors(500), length=4)
    ranking = await Agent(memory, memory).rank(question(vectors(1)[0]))
    steps = [line.split(" · ")[0] for line in ranking.trace]
    assert len(steps) == MOVES_MAX
    assert all("layer 3" not in step for step in steps), "sixteen leaves a node there, sixty-four one above"
    assert sum("→ left" in step or "→ right" in step for step in steps) > 3


async def test_the_offline_policy_is_done_at_once_where_all_is_in_sight(memory: Memory) -> None:
    ranking = await Agent(memory, memory).rank(question(vectors(1)[0], k=40))
    assert len(ranking.trace) == 1
    assert {found.node for found in ranking.ranked} >= set(memory.items)


async def test_a_random_walk_is_the_same_for_the_same_question(memory: Memory) -> None:
    agent = Agent(memory, memory, navigator=RandomWalk())
    one, two = [await agent.rank(question(vectors(1)[0])) for _ in range(2)]
    other = await agent.rank(replace(question(vectors(1)[0]), text="another"))
    assert one == two
    assert one.trace != other.trace
