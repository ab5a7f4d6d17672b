"""The hybrid strategy over a real index, with vectors that a test can read: one dimension a topic."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.model import ROOT, EventId, Item, Node, NodeId, NodeKind, TreeId, Vector, mark
from memory.ports.index import Scope
from memory.retrieval.hybrid import Hybrid
from memory.retrieval.ranking import Recipe
from memory.retrieval.strategy import Question, Ranking
from memory.retrieval.text import terms
from memory.service.indexing import index_entry
from memory.tree.similarity import quantize

TREE = TreeId("t")
DIMENSION = 8


def towards(*topics: int) -> Vector:
    """A unit vector over the given topics."""
    vector = np.full(DIMENSION, 0.01)
    vector[list(topics)] = 1.0
    return quantize(vector)


class Nodes:
    """The part of a store that the strategy reads."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.by_id = {node.id: node for node in nodes}

    async def nodes(self, tree: TreeId, ids: Sequence[NodeId], *, vectors: bool = False) -> dict[NodeId, Node]:
        assert (tree, vectors) == (TREE, False)
        return {node: self.by_id[node] for node in ids if node in self.by_id}


def leaf(number: int, item: Item, vector: Vector) -> Node:
    return Node(
        id=NodeId(f"n{number}"),
        parent=ROOT,
        kind=NodeKind.LEAF,
        depth=1,
        mark=mark(1, number),
        text=item.text,
        vector=vector,
        item=item,
    )


def turn(number: int, speaker: str, text: str, *topics: int, conversation: str = "c", month: int = 5) -> Node:
    at = datetime(2026, month, 8, 12, number, tzinfo=UTC)
    item = Item(event_id=EventId(f"e{number}"), text=text, conversation=conversation, speaker=speaker, at=at)
    return leaf(number, item, towards(*topics))


def document(number: int, title: str, text: str, *topics: int) -> Node:
    return leaf(number, Item(event_id=EventId(f"d{number}"), text=text, title=title), towards(*topics))


async def ask(
    nodes: Sequence[Node], text: str, *topics: int, bare: Vector | None = None, recipe: Recipe | None = None, **options: object
) -> Ranking:
    index = await EmbeddedNodeIndex.open(None, tokenize=terms)
    await index.update(TREE, after=0, seq=1, upserts=[index_entry(node) for node in nodes])

    async def embed(asked: str) -> Vector:
        assert bare is not None, f"asked for the vector of {asked!r}"
        return bare

    hybrid = Hybrid(index, reader=Nodes(nodes), embed=embed, recipe=recipe)
    question = {"tree": TREE, "text": text, "vector": towards(*topics), "k": 10, "explain": True} | options
    ranking = await hybrid.rank(Question(**question))  # type: ignore[arg-type]
    await index.close()
    return ranking


def order(ranking: Ranking) -> list[str]:
    return [ranked.node for ranked in ranking.ranked]


TALK = [
    turn(0, "Ana", "Hello there.", 0),
    turn(1, "Ben", "Which instrument do you play?", 1),
    turn(2, "Ana", "For years now. Badly.", 2),
    turn(3, "Ben", "Good weather today.", 3),
    turn(4, "Ana", "It rained all week.", 3),
    turn(5, "Ben", "The ferry was late.", 4),
    turn(6, "Ana", "The train too.", 4),
]


async def test_words_and_meaning_both_find() -> None:
    nodes = [turn(n, "Ana", text, n, conversation=f"c{n}") for n, text in enumerate(["the ferry", "a boat", "my dog"])]
    ranking = await ask(nodes, "ferry", 1)
    assert set(order(ranking)[:2]) == {"n0", "n1"}
    assert order(ranking)[2] == "n2"


async def test_an_answer_is_found_by_its_question() -> None:
    asked = await ask(TALK, "instrument", 1)
    assert order(asked)[0] == "n1"
    assert set(order(asked)[1:3]) == {"n0", "n2"}
    alone = await ask(TALK, "instrument", 1, recipe=Recipe(kernel=()))
    assert alone.ranked[1].score < asked.ranked[1].score


async def test_a_named_speaker_is_left_out_of_the_vector_and_comes_first() -> None:
    nodes = [
        turn(0, "Ben", "Hi Ana!", 0, conversation="a"),
        turn(1, "Ana", "A boat trip with friends.", 1, conversation="b"),
        turn(2, "Ben", "A boat trip with friends.", 1, conversation="d"),
    ]
    ranking = await ask(nodes, "Did Ana sail?", 0, bare=towards(1))
    assert order(ranking)[0] == "n1"
    parts = {ranked.node: ranked.parts for ranked in ranking.ranked}
    assert parts[NodeId("n1")]["speaker"] > parts[NodeId("n2")]["speaker"] == 1.0
    assert any("Ana" in line and "Did sail?" in line for line in ranking.trace)


async def test_a_named_speaker_is_known_whose_turns_no_word_of_the_question_leads_to() -> None:
    crowd = [turn(n, "Ben", "Ana, ana, ana.", 0, conversation=f"c{n}") for n in range(9)]
    said = turn(20, "Ana", "A boat trip with many friends, all of them from the village by the river.", 1, conversation="b")
    ranking = await ask([*crowd, said], "Did Ana sail?", 1, bare=towards(1), recipe=Recipe(candidates=3), k=3)
    assert "Ana" in ranking.trace[0]


async def test_of_very_many_speakers_the_one_named_is_found_by_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.retrieval.hybrid.SPEAKERS_MAX", 2)
    nodes = [turn(n, who, "A boat trip.", 1, conversation=f"c{n}") for n, who in enumerate(["Ben", "Ana", "Cleo", "Dan"])]
    ranking = await ask(nodes, "Did Ana sail?", 0, bare=towards(1))
    assert order(ranking)[0] == "n1"
    assert "Did sail?" in ranking.trace[0]
    assert order(await ask(nodes, "Did anybody sail?", 1))[0] == "n0"


async def test_a_question_that_names_both_speakers_prefers_neither() -> None:
    ranking = await ask(TALK, "Did Ana and Ben take the ferry?", 4, bare=towards(4))
    assert {ranked.parts["speaker"] for ranked in ranking.ranked} == {1.0}


async def test_a_question_without_names_is_embedded_once() -> None:
    await ask(TALK, "Who took the ferry?", 4, bare=None)


async def test_a_named_month_lifts_what_was_said_in_it() -> None:
    nodes = [turn(n, "Ana", "We went camping.", 1, conversation=f"c{n}", month=n + 4) for n in range(4)]
    ranking = await ask(nodes, "Where did they camp in June?", 1)
    assert order(ranking)[0] == "n2"
    assert ranking.ranked[0].parts["date"] > 1.0 == ranking.ranked[1].parts["date"]


DOCUMENTS = [
    document(0, "The Long Night (film)", "The Long Night is a film by Mara Ito.", 0),
    document(1, "Mara Ito", "She was born in Lund.", 5),
    document(2, "Night shift", "Working at night is long and hard.", 0, 1),
    document(3, "Lund", "A town.", 6),
    document(4, "Other film", "A film about a night.", 0, 2),
]


async def test_a_document_named_by_one_of_the_best_hits_is_followed() -> None:
    ranking = await ask(DOCUMENTS, "Where was the director of the long night born?", 0)
    assert order(ranking)[:2] == ["n0", "n1"]
    assert ranking.ranked[1].parts["title"] > 0.0
    alone = await ask(DOCUMENTS, "Who made the long night?", 0, recipe=Recipe(mention_bonus=0.0, title_bonus=0.0))
    assert order(alone).index("n1") > 1


async def test_a_title_in_the_question_counts_in_any_case() -> None:
    ranking = await ask(DOCUMENTS, "anything about mara ito?", 4, recipe=Recipe(mention_bonus=0.0))
    assert order(ranking)[0] == "n1"
    assert ranking.ranked[0].parts["title"] == pytest.approx(Recipe().title_bonus)


async def test_a_document_beyond_the_candidates_is_followed_with_its_own_scores() -> None:
    nodes = [*DOCUMENTS, document(5, "Night", "A long night of film.", 0), document(6, "Dawn", "A long film.", 0)]
    ranking = await ask(nodes, "Who made the film of the long night?", 0, recipe=Recipe(candidates=3, mention_bonus=2.0), k=3)
    followed = {ranked.node: ranked.parts for ranked in ranking.ranked}[NodeId("n1")]
    assert followed["title"] > 0.0
    assert followed["bm25"] == 0.0
    assert len(order(ranking)) == len(set(order(ranking)))


async def test_a_followed_document_that_also_is_a_neighbour_stands_once_and_may_answer() -> None:
    def chunk(number: int, index: int, text: str, topic: int) -> Node:
        item = Item(event_id=EventId("d"), text=text, title="Mara Ito", source="atlas", chunk=index, chunks=2)
        return leaf(number, item, towards(topic))

    film = Item(event_id=EventId("f"), text="A film by Mara Ito.", title="Film", source="atlas")
    nodes = [leaf(0, film, towards(0)), chunk(1, 0, "She was born in Lund.", 5), chunk(2, 1, "Her film won.", 0)]
    for scope in (Scope(), Scope(source="atlas")):
        ranking = await ask(nodes, "film", 0, k=2, recipe=Recipe(candidates=2, mention_bonus=2.0), scope=scope)
        assert order(ranking) == ["n1", "n0"]


async def test_a_document_does_not_lift_itself() -> None:
    nodes = [document(0, "Lund", "Lund is a town. Lund is old.", 0), document(1, "Town", "It is old.", 1)]
    ranking = await ask(nodes, "old place", 0)
    assert {ranked.node: ranked.parts["title"] for ranked in ranking.ranked} == {"n0": 0.0, "n1": 0.0}


async def test_filters_hold_for_neighbours_and_followed_titles() -> None:
    asked = await ask(TALK, "instrument", 1, scope=Scope(speaker="Ana"))
    assert set(order(asked)) == {"n0", "n2", "n4", "n6"}
    assert set(order(asked)[:2]) == {"n0", "n2"}
    summaries = await ask(TALK, "instrument", 1, scope=Scope(kinds=frozenset({NodeKind.SUMMARY})))
    assert order(summaries) == []


async def test_a_leaf_comes_before_a_summary_that_says_the_same() -> None:
    said = turn(0, "Ana", "We saw the ferry.", 4)
    above = Node(
        id=NodeId("s"),
        parent=ROOT,
        kind=NodeKind.SUMMARY,
        depth=1,
        mark=mark(1, 9),
        text="Ana: We saw the ferry.",
        vector=said.vector,
    )
    assert order(await ask([said, above], "ferry", 4)) == ["n0", "s"]
    found = await ask([said, above], "ferry", 4, scope=Scope(kinds=frozenset({NodeKind.SUMMARY})))
    assert order(found) == ["s"]


async def test_the_parts_explain_the_score() -> None:
    ranking = await ask(DOCUMENTS, "Where was mara ito born in May?", 0)
    for ranked in ranking.ranked:
        parts = ranked.parts
        pooled = parts["dense"] + parts["lexical"] + parts["neighbours"]
        assert ranked.score == pytest.approx(pooled * parts["kind"] * parts["speaker"] * parts["date"] + parts["title"])
    assert (await ask(DOCUMENTS, "mara ito", 0, explain=False)).ranked[0].parts == {}


async def test_k_bounds_the_answer_and_an_empty_tree_gives_none() -> None:
    assert len((await ask(TALK, "ferry", 4, k=2)).ranked) == 2
    assert (await ask([], "ferry", 4)).ranked == ()


async def test_the_same_question_gets_the_same_answer() -> None:
    first, second = await ask(TALK, "late ferry", 4), await ask(TALK[::-1], "late ferry", 4)
    assert order(first) == order(second)
    assert [ranked.score for ranked in first.ranked] == pytest.approx([ranked.score for ranked in second.ranked])
