"""The recipe on candidates made by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from memory.model import Mark, NodeId, NodeKind
from memory.ports.index import Candidate
from memory.retrieval.hints import DateHint
from memory.retrieval.ranking import Hints, Recipe, Scoring

PLAIN = Recipe(kernel=())


def candidate(
    name: str,
    *,
    dense: float = 0.0,
    lexical: float = 0.0,
    sequence: str | None = None,
    position: int = -1,
    speaker: str | None = None,
    at: datetime | None = None,
    kind: NodeKind = NodeKind.LEAF,
) -> Candidate:
    return Candidate(
        node=NodeId(name),
        kind=kind,
        mark=Mark(0),
        dense=dense,
        lexical=lexical,
        event_id=None,
        sequence=sequence,
        position=position,
        speaker=speaker,
        at=at,
    )


def scores(scoring: Scoring) -> dict[str, float]:
    return {found.node: score for found, score in zip(scoring.candidates, scoring.scores.tolist(), strict=True)}


def test_cosine_and_bm25_are_fused_by_their_weights() -> None:
    found = [candidate("a", dense=0.9), candidate("b", dense=0.5, lexical=3.0), candidate("c", dense=0.1, lexical=6.0)]
    scoring = Scoring(found, [], hints=Hints(), recipe=PLAIN)
    assert scores(scoring) == pytest.approx({"a": 0.4, "b": 0.4 * 0.5 + 0.6 * 0.5, "c": 0.6})


def test_neighbours_and_added_ones_do_not_move_the_floor() -> None:
    found = [candidate("a", dense=0.9), candidate("b", dense=0.5)]
    others = [candidate("x", dense=-0.5)]
    alone = scores(Scoring(found, [], hints=Hints(), recipe=PLAIN))
    for scoring in (
        Scoring(found, others, hints=Hints(), recipe=PLAIN),
        Scoring(found, [], added=others, hints=Hints(), recipe=PLAIN),
    ):
        assert scores(scoring) == pytest.approx(alone | {"x": 0.0})


def test_a_neighbour_lends_its_score_without_being_a_hit() -> None:
    found = [candidate("a", dense=0.9, sequence="c", position=3), candidate("z", dense=0.1)]
    around = [candidate("b", dense=0.9, sequence="c", position=4)]
    scoring = Scoring(found, around, hints=Hints(), recipe=Recipe())
    assert scores(scoring)["a"] > scores(Scoring(found, [], hints=Hints(), recipe=Recipe()))["a"]
    assert [scoring.candidates[index].node for index in scoring.best(9, around=False)] == ["a", "z"]
    assert [scoring.candidates[index].node for index in scoring.best(9, around=True)] == ["a", "b", "z"]


def test_hints_multiply() -> None:
    may = datetime(2026, 5, 8, tzinfo=UTC)
    found = [
        candidate("both", lexical=1.0, speaker="Ana", at=may),
        candidate("who", lexical=1.0, speaker="Ana"),
        candidate("when", lexical=1.0, at=may),
        candidate("none", lexical=1.0, speaker="Ben"),
    ]
    recipe = Recipe(kernel=(), speaker_factor=2.0, date_factor=3.0, dense_weight=0.0)
    hints = Hints(speakers=frozenset({"Ana"}), dates=(DateHint(month=5),))
    assert scores(Scoring(found, [], hints=hints, recipe=recipe)) == pytest.approx(
        {"both": 6.0, "who": 2.0, "when": 3.0, "none": 1.0}
    )


def test_equal_ones_stand_by_cosine_then_by_node() -> None:
    found = [candidate(name, lexical=1.0, dense=dense) for name, dense in (("c", 0.1), ("a", 0.1), ("b", 0.2))]
    scoring = Scoring(found, [], hints=Hints(), recipe=Recipe(dense_weight=0.0))
    assert [scoring.candidates[index].node for index in scoring.best(9, around=False)] == ["b", "a", "c"]


def test_no_candidates_are_no_answer() -> None:
    assert Scoring([], [], hints=Hints(), recipe=Recipe()).best(5, around=True) == []
