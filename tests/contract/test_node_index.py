"""What every `NodeIndex` must do: cover, update, filter, keep sequences and speakers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from memory.model import NodeId, NodeKind, mark
from memory.ports.index import IndexAnswer, IndexEntry, NodeIndex, Scope
from tests.fakes.index_entries import OTHER, START, TREE, D, about, by_node, clustered, fill, leaf, nodes, summary
from tests.fakes.plain_index import plain_bm25, unit

# ------------------------------------------------------------------------------------------------------------- coverage


async def test_a_tree_that_it_does_not_know_is_covered_to_0_and_answers_nothing(index: NodeIndex) -> None:
    assert await index.covered(TREE) == 0
    assert await index.search(TREE, about("river")) == IndexAnswer(seq=0, found=[], around=[])
    assert await index.score(TREE, about("river"), [NodeId("n1")]) == []
    await index.drop(TREE)


async def test_an_update_moves_the_tree_on_and_can_be_found_at_once(index: NodeIndex) -> None:
    assert await index.update(TREE, after=0, seq=3, upserts=[leaf(1, text="copper violin")])
    assert await index.covered(TREE) == 3
    answer = await index.search(TREE, about("violin"))
    assert (answer.seq, nodes(answer.found)) == (3, {"n1"})


async def test_an_update_that_starts_elsewhere_does_nothing(index: NodeIndex) -> None:
    assert await index.update(TREE, after=0, seq=2, upserts=[leaf(1)])
    for after, seq in ((0, 3), (1, 3), (3, 4)):
        assert not await index.update(TREE, after=after, seq=seq, upserts=[leaf(2)], removes=[NodeId("n1")])
    assert await index.covered(TREE) == 2
    assert nodes((await index.search(TREE, about())).found) == {"n1"}


async def test_the_stamp_is_that_of_the_last_update_that_was_taken(index: NodeIndex) -> None:
    assert await index.stamp(TREE) == ""
    await index.update(TREE, after=0, seq=3, upserts=[leaf(1)], stamp="one")
    assert not await index.update(TREE, after=0, seq=9, upserts=[leaf(2)], stamp="refused")
    assert (await index.stamp(TREE), await index.stamp(OTHER)) == ("one", "")
    await index.update(TREE, after=3, seq=4, upserts=[], stamp="two")
    assert await index.stamp(TREE) == "two"
    await index.drop(TREE)
    assert await index.stamp(TREE) == ""


async def test_of_several_updates_from_one_place_exactly_one_is_taken(index: NodeIndex) -> None:
    taken = await asyncio.gather(*(index.update(TREE, after=0, seq=1, upserts=[leaf(number)]) for number in range(8)))
    assert sorted(taken) == [False] * 7 + [True]
    assert nodes((await index.search(TREE, about())).found) == {f"n{taken.index(True)}"}


async def test_an_update_without_entries_only_moves_on(index: NodeIndex) -> None:
    assert await index.update(TREE, after=0, seq=1, upserts=[leaf(1)])
    assert await index.update(TREE, after=1, seq=9, upserts=[])
    answer = await index.search(TREE, about())
    assert (answer.seq, nodes(answer.found)) == (9, {"n1"})


async def test_an_upsert_replaces_all_of_a_node(index: NodeIndex) -> None:
    vector = unit(np.eye(D)[0])
    old = leaf(1, vector, "copper violin", sequence="c:1", speaker="Ana", metadata={"topic": "work"})
    new = leaf(1, -vector, "paper signal", sequence="c:2", speaker="Ben", metadata={"topic": "home"})
    await index.update(TREE, after=0, seq=1, upserts=[old, leaf(2, text="garden"), leaf(3, sequence="c:1")])
    await index.update(TREE, after=1, seq=2, upserts=[new])
    (found,) = await index.score(TREE, about("copper violin", vector), [NodeId("n1")])
    assert found.dense == pytest.approx(-1, abs=1e-3)
    assert (found.lexical, found.speaker, found.sequence) == (0, "Ben", "c:2")
    (third,) = await index.score(TREE, about(), [NodeId("n3")])
    assert third.position == 0
    for scope in (Scope(speaker="Ana"), Scope(metadata={"topic": "work"})):
        assert nodes((await index.search(TREE, about("copper", scope=scope))).found) == set()
    answer = await index.search(TREE, about("paper", scope=Scope(metadata={"topic": "home"})))
    expected = plain_bm25(["paper signal", "garden", ""], "paper")[0]
    assert by_node(answer)["n1"].lexical == pytest.approx(expected, rel=1e-5)


async def test_removed_nodes_are_gone_and_can_come_again(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=1, upserts=[leaf(number, text="copper") for number in range(3)])
    await index.update(TREE, after=1, seq=2, upserts=[], removes=[NodeId("n1"), NodeId("unknown")])
    answer = await index.search(TREE, about("copper"))
    assert nodes(answer.found) == {"n0", "n2"}
    assert by_node(answer)["n0"].lexical == pytest.approx(plain_bm25(["copper"] * 2, "copper")[0], rel=1e-5)
    assert await index.score(TREE, about(), [NodeId("n1")]) == []
    await index.update(TREE, after=2, seq=3, upserts=[leaf(1, text="copper")])
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n0", "n1", "n2"}


async def test_a_dropped_tree_is_unknown_and_can_be_made_again(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=5, upserts=[leaf(1, text="copper")])
    await index.search(TREE, about("copper"))
    await index.drop(TREE)
    assert await index.covered(TREE) == 0
    assert (await index.search(TREE, about("copper"))).found == []
    await index.update(TREE, after=0, seq=5, upserts=[leaf(2, text="paper")])
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n2"}


async def test_trees_share_nothing(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=1, upserts=[leaf(1, text="copper violin"), leaf(2, text="paper")])
    before = by_node(await index.search(TREE, about("copper")))["n1"].lexical
    await fill(index, [leaf(number, text="copper " * (number % 5)) for number in range(40)], tree=OTHER)
    assert by_node(await index.search(TREE, about("copper")))["n1"].lexical == before
    assert nodes((await index.search(TREE, about("copper"))).found) == {"n1", "n2"}
    await index.drop(OTHER)
    assert await index.covered(TREE) == 1


# --------------------------------------------------------------------------------------------------------------- scopes


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (Scope(), {"n1", "n2", "n3", "n4"}),
        (Scope(kinds=frozenset(), speaker="", metadata={}), {"n1", "n2", "n3", "n4"}),
        (Scope(kinds=frozenset({NodeKind.LEAF})), {"n1", "n2", "n3"}),
        (Scope(kinds=frozenset({NodeKind.SUMMARY})), {"n4"}),
        (Scope(kinds=frozenset({NodeKind.ROOT})), set()),
        (Scope(kinds=frozenset({NodeKind.LEAF, NodeKind.SUMMARY})), {"n1", "n2", "n3", "n4"}),
        (Scope(kinds=frozenset({NodeKind.SUMMARY}), speaker="Ana"), set()),
        (Scope(speaker="Ana"), {"n1", "n3"}),
        (Scope(speaker="ana"), set()),
        (Scope(conversation="c"), {"n1", "n2"}),
        (Scope(source="wire"), {"n2"}),
        (Scope(since=START), {"n1", "n2"}),
        (Scope(since=START + timedelta(microseconds=1)), {"n2"}),
        (Scope(until=START), set()),
        (Scope(until=START + timedelta(microseconds=1)), {"n1"}),
        (Scope(since=START, until=START + timedelta(days=1)), {"n1"}),
        (Scope(metadata={"topic": "work"}), {"n1", "n2"}),
        (Scope(metadata={"topic": "work", "place": "x"}), {"n2"}),
        (Scope(metadata={"opic": "work"}), set()),
        (Scope(metadata={"conversation": "c"}), set()),
        (Scope(speaker="Ana", conversation="c", since=START), {"n1"}),
        (Scope(speaker="nobody"), set()),
    ],
)
async def test_scope(index: NodeIndex, scope: Scope, expected: set[str]) -> None:
    entries = [
        leaf(1, text="copper", speaker="Ana", conversation="c", at=START, metadata={"topic": "work"}),
        leaf(2, text="copper", speaker="Ben", conversation="c", source="wire", at=START + timedelta(days=1),
             metadata={"topic": "work", "place": "x"}),
        leaf(3, text="copper", speaker="Ana", metadata={"topic": "home"}),
        summary(4, text="copper"),
    ]  # fmt: skip
    await index.update(TREE, after=0, seq=1, upserts=entries)
    assert nodes((await index.search(TREE, about("copper", scope=scope))).found) == expected
    assert nodes((await index.search(TREE, about("copper", scope=scope, dense_k=0))).found) == expected
    assert nodes((await index.search(TREE, about("copper", scope=scope, lexical_k=0))).found) == expected


async def test_a_narrow_scope_still_gets_all_its_answers(index: NodeIndex) -> None:
    far = unit(np.eye(D)[0])
    entries = [leaf(number, far, "copper copper", speaker="Ana") for number in range(500)]
    entries += [leaf(1000 + number, -far, "copper and other words", speaker="Ben") for number in range(5)]
    await fill(index, entries, batch=100)
    answer = await index.search(TREE, about("copper", far, dense_k=5, lexical_k=5, scope=Scope(speaker="Ben")))
    assert nodes(answer.found) == {f"n{1000 + number}" for number in range(5)}


# ------------------------------------------------------------------------------------------------------------ sequences


async def positions(index: NodeIndex, numbers: Sequence[int]) -> list[int]:
    scored = await index.score(TREE, about(), [NodeId(f"n{number}") for number in numbers])
    found = {candidate.node: candidate.position for candidate in scored}
    return [found[NodeId(f"n{number}")] for number in numbers]


async def test_positions_follow_time_then_arrival_also_for_late_arrivals(index: NodeIndex) -> None:
    def turn(number: int, minute: int | None) -> IndexEntry:
        return leaf(number, sequence="c:1", at=None if minute is None else START + timedelta(minutes=minute))

    await index.update(TREE, after=0, seq=1, upserts=[turn(1, 10), turn(2, 20), leaf(9, sequence="c:2"), leaf(8)])
    assert await positions(index, [1, 2, 9, 8]) == [0, 1, 0, -1]
    await index.update(TREE, after=1, seq=2, upserts=[turn(3, 20), turn(4, 15)])
    assert await positions(index, [1, 4, 2, 3]) == [0, 1, 2, 3]
    await index.update(TREE, after=2, seq=3, upserts=[turn(5, None), turn(6, 5)], removes=[NodeId("n4")])
    assert await positions(index, [5, 6, 1, 2, 3]) == [0, 1, 2, 3, 4]
    await index.update(TREE, after=3, seq=4, upserts=[turn(2, 1)])
    assert await positions(index, [5, 2, 6, 1, 3]) == [0, 1, 2, 3, 4]
    await index.update(TREE, after=4, seq=5, upserts=[replace(turn(5, 3), mark=mark(1, 7)), turn(7, 30)])
    assert await positions(index, [2, 5, 6, 1, 3, 7]) == [0, 1, 2, 3, 4, 5]


async def test_neighbours_come_also_from_outside_the_scope_and_only_from_the_same_sequence(index: NodeIndex) -> None:
    target, other = unit(np.eye(D)[0]), unit(np.eye(D)[1])
    turns = [
        leaf(number, target if number == 5 else other, sequence="c:1", speaker="Ana" if number == 5 else "Ben")
        for number in range(10)
    ]
    await index.update(TREE, after=0, seq=1, upserts=[*turns, leaf(20, other, sequence="c:2"), leaf(21, other), summary(22, other)])
    query = about(vector=target, dense_k=1, lexical_k=0, spread=2, scope=Scope(speaker="Ana"))
    answer = await index.search(TREE, query)
    assert nodes(answer.found) == {"n5"}
    assert {candidate.node: candidate.position for candidate in answer.around} == {"n3": 3, "n4": 4, "n6": 6, "n7": 7}
    assert (await index.search(TREE, replace(query, spread=0))).around == []
    first = await index.search(TREE, replace(query, scope=Scope(), dense_k=13))
    assert first.around == []


# ------------------------------------------------------------------------------------------------------------- speakers


async def test_the_speakers_are_those_of_the_leaves_that_are_there(index: NodeIndex) -> None:
    assert await index.speakers(TREE, limit=9) == frozenset()
    silent = replace(summary(4), speaker="Nobody")
    said = [leaf(1, speaker="Ana"), leaf(2, speaker="Ben"), leaf(3), leaf(5, speaker="Cleo"), leaf(6, speaker="Ana"), silent]
    await index.update(TREE, after=0, seq=1, upserts=said)
    assert await index.speakers(TREE, limit=9) == {"Ana", "Ben", "Cleo"}
    assert await index.speakers(OTHER, limit=9) == frozenset()
    await index.update(TREE, after=1, seq=2, upserts=[leaf(2, speaker="Dan")], removes=[NodeId("n1"), NodeId("n5")])
    assert await index.speakers(TREE, limit=9) == {"Ana", "Dan"}, "Ana is left with n6, Ben's leaf is Dan's, Cleo's is gone"
    some = await index.speakers(TREE, limit=1)
    assert len(some) == 1
    assert some < {"Ana", "Dan"}


async def test_the_speakers_of_many_updates_are_those_of_one(index: NodeIndex) -> None:
    entries = clustered(300)
    await fill(index, entries, batch=1)
    assert await index.speakers(TREE, limit=9) == {"Ana", "Ben"}
    await fill(index, [replace(entry, speaker=f"{entry.speaker} II") for entry in entries], batch=7)
    assert await index.speakers(TREE, limit=9) == {"Ana II", "Ben II", "None II"}
