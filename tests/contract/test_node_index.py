"""What every NodeIndex must do. An adapter joins by one line in ADAPTERS."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from memory.adapters.embedded.index.node_index import EmbeddedNodeIndex
from memory.model import EventId, NodeId, NodeKind, TreeId, Vector, mark
from memory.ports.index import Candidate, IndexAnswer, IndexEntry, IndexQuery, NodeIndex, Scope
from tests.fakes.plain_index import PlainIndex, in_scope, plain_bm25, unit

TREE, OTHER = TreeId("tree-1"), TreeId("tree-2")
D = 32
START = datetime(2026, 1, 1, tzinfo=UTC)
WORDS = ["river", "stone", "bridge", "lantern", "copper", "violin", "harbour", "winter", "apple", "thunder", "paper", "signal"]

Opener = Callable[[], Awaitable[NodeIndex]]


async def _memory(_: Path) -> NodeIndex:
    return await EmbeddedNodeIndex.open(None)


async def _file(folder: Path) -> NodeIndex:
    return await EmbeddedNodeIndex.open(folder / "index.db")


ADAPTERS: dict[str, Callable[[Path], Awaitable[NodeIndex]]] = {"embedded-memory": _memory, "embedded-file": _file}
SHARED = ["embedded-file"]
"""Adapters whose instances see one another's updates."""


@pytest.fixture(params=list(ADAPTERS))
async def index(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[NodeIndex]:
    opened = await ADAPTERS[request.param](tmp_path)
    yield opened
    await opened.close()


@pytest.fixture(params=SHARED)
async def opener(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opener]:
    opened: list[NodeIndex] = []

    async def open_another() -> NodeIndex:
        opened.append(await ADAPTERS[request.param](tmp_path))
        return opened[-1]

    yield open_another
    for one in opened:
        await one.close()


def leaf(number: int, vector: Vector | None = None, text: str = "", **fields: Any) -> IndexEntry:
    random = np.random.default_rng(number)
    return IndexEntry(
        node=NodeId(f"n{number}"),
        kind=NodeKind.LEAF,
        mark=mark(number + 1, 0),
        vector=unit(random.standard_normal(D)) if vector is None else vector,
        text=text,
        event_id=EventId(f"e{number}"),
        **fields,
    )


def summary(number: int, vector: Vector | None = None, text: str = "") -> IndexEntry:
    return replace(leaf(number, vector, text), kind=NodeKind.SUMMARY, event_id=None)


def about(text: str = "", vector: Vector | None = None, **fields: Any) -> IndexQuery:
    return IndexQuery(vector=unit(np.ones(D)) if vector is None else vector, terms=text, **fields)


def clustered(count: int, seed: int = 0) -> list[IndexEntry]:
    """Entries in clusters, with texts, sequences and fields of every kind."""
    random = np.random.default_rng(seed)
    centres = random.standard_normal((12, D))
    entries = []
    for number in range(count):
        group = int(random.integers(12))
        text = " ".join(random.choice(WORDS, size=int(random.integers(1, 9))))
        vector = unit(centres[group] + 0.6 * random.standard_normal(D))
        if number % 7 == 6:
            entries.append(summary(number, vector, text))
            continue
        entries.append(
            leaf(
                number,
                vector,
                text,
                sequence=f"c:{group}" if number % 5 else None,
                conversation=f"{group}",
                speaker=("Ana", "Ben", None)[number % 3],
                source=("The Verge", "Wire")[number % 2],
                at=START + timedelta(minutes=int(random.integers(0, 5000))) if number % 11 else None,
                metadata={"topic": ("work", "home")[number % 2], "n": str(number % 17)},
            )
        )
    return entries


async def fill(index: NodeIndex, entries: Sequence[IndexEntry], batch: int = 64, tree: TreeId = TREE) -> int:
    """Feed entries in batches, one commit each; the commit reached."""
    seq = await index.covered(tree)
    for start in range(0, len(entries), batch):
        assert await index.update(tree, after=seq, seq=seq + 1, upserts=entries[start : start + batch])
        seq += 1
    return seq


def nodes(candidates: Sequence[Candidate]) -> set[str]:
    return {candidate.node for candidate in candidates}


def summed_up(answer: IndexAnswer) -> list[tuple[object, ...]]:
    """What was found, with scores as far as float32 holds them."""
    found = sorted(answer.found, key=lambda candidate: candidate.node)
    return [(c.node, c.position, c.at, round(c.dense, 4), round(c.lexical, 4)) for c in found]


def by_node(answer: IndexAnswer) -> dict[str, Candidate]:
    return {candidate.node: candidate for candidate in answer.found}


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


# --------------------------------------------------------------------------------------------------------------- scores


@pytest.mark.parametrize(
    "scope",
    [
        Scope(),
        Scope(kinds=frozenset({NodeKind.SUMMARY})),
        Scope(speaker="Ana"),
        Scope(conversation="3", source="Wire"),
        Scope(since=START + timedelta(days=1), until=START + timedelta(days=2)),
        Scope(metadata={"topic": "home", "n": "5"}),
    ],
    ids=["all", "summaries", "speaker", "conversation and source", "period", "metadata"],
)
async def test_the_best_by_vector_are_found_in_any_scope(index: NodeIndex, scope: Scope) -> None:
    plain = PlainIndex()
    entries = clustered(3000)
    plain.update(entries)
    await fill(index, entries, batch=256)
    hits = wanted = 0
    for seed in range(20):
        query = about(vector=unit(np.random.default_rng(900 + seed).standard_normal(D)), dense_k=20, lexical_k=0, scope=scope)
        best = plain.best(plain.dense(query), scope, 20)
        found = (await index.search(TREE, query)).found
        assert len(found) == len(best)
        assert all(in_scope(plain.entries[candidate.node], scope) for candidate in found)
        hits += len(nodes(found) & set(best))
        wanted += len(best)
    assert wanted
    assert hits / wanted >= 0.98


async def test_scores_are_cosine_and_bm25_for_all_that_is_found(index: NodeIndex) -> None:
    plain = PlainIndex()
    entries = clustered(600)
    plain.update(entries)
    await fill(index, entries)
    replaced = [replace(entry, text="copper river river", vector=entries[0].vector) for entry in entries[::9]]
    removed = [entry.node for entry in entries[4::50]]
    plain.update(replaced, removed)
    seq = await index.covered(TREE)
    await index.update(TREE, after=seq, seq=seq + 1, upserts=[e for e in replaced if e.node not in removed], removes=removed)
    for node in removed:
        plain.entries.pop(node, None)
    query = about("river copper copper no-such-word", vector=entries[5].vector, dense_k=30, lexical_k=30, spread=2)
    dense, lexical = plain.dense(query), plain.lexical(query)
    answer = await index.search(TREE, query)
    assert answer.around
    for candidate in (*answer.found, *answer.around):
        assert candidate.dense == pytest.approx(dense[candidate.node], abs=2e-3)
        assert candidate.lexical == pytest.approx(lexical[candidate.node], rel=1e-4, abs=1e-6)
    least = sorted(lexical.values())[-30]
    assert sum(candidate.lexical >= least - 1e-4 for candidate in answer.found) >= 30
    assert nodes(answer.around) == plain.around(nodes(answer.found), 2)  # type: ignore[arg-type]
    asked = [entry.node for entry in entries]
    scored = await index.score(TREE, replace(query, scope=Scope(speaker="nobody")), asked)
    assert {one.node: one.lexical for one in scored} == pytest.approx(lexical, rel=1e-4, abs=1e-6)


async def test_nothing_is_found_by_words_that_no_text_has(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=1, upserts=[leaf(1, text="copper"), summary(2)])
    assert (await index.search(TREE, about("paper", dense_k=0))).found == []
    assert nodes((await index.search(TREE, about("copper", dense_k=0))).found) == {"n1"}
    assert nodes((await index.search(TREE, about("copper", lexical_k=0))).found) == {"n1", "n2"}


ODD_TEXTS = [
    '"', '"copper', "NEAR(copper, 2)", "copper*", "-copper", "NOT copper", "text:copper", "'; DROP TABLE trees; --", "(((",
    "@a|b{c}", "copper\x00river", "\x00", "", "   ", "東京 کتاب 👩‍👩‍👧 copper", "%", "_", "\\", "copper " * 15_000,
    " ".join(map(str, range(20_000))),
]  # fmt: skip


@pytest.mark.parametrize("terms", ODD_TEXTS, ids=range(len(ODD_TEXTS)))
async def test_any_text_can_be_asked_for(index: NodeIndex, terms: str) -> None:
    await index.update(TREE, after=0, seq=1, upserts=[leaf(1, text="copper river"), leaf(2, text=terms), leaf(3, text="paper")])
    answer = await index.search(TREE, about(terms))
    assert nodes(answer.found) == {"n1", "n2", "n3"}
    assert (by_node(answer)["n1"].lexical > 0) == ("copper" in terms)


async def test_a_candidate_says_what_the_entry_was(index: NodeIndex) -> None:
    at = datetime(2026, 5, 8, 13, 56, 0, 123456, tzinfo=UTC)
    entry = leaf(1, sequence="c:7", conversation="7", speaker="Łukasz 🎻", source="s", at=at)
    await index.update(TREE, after=0, seq=1, upserts=[entry, summary(2)])
    found = by_node(await index.search(TREE, about()))
    one = found["n1"]
    assert (one.kind, one.mark, one.event_id) == (NodeKind.LEAF, entry.mark, "e1")
    assert (one.sequence, one.position, one.speaker, one.at) == ("c:7", 0, "Łukasz 🎻", at)
    two = found["n2"]
    assert (two.kind, two.event_id, two.sequence, two.position, two.speaker, two.at) == (
        NodeKind.SUMMARY, None, None, -1, None, None,
    )  # fmt: skip


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


# ------------------------------------------------------------------------------------------- size, concurrency, processes


async def test_one_vector_dimension_a_tree(index: NodeIndex) -> None:
    await index.update(TREE, after=0, seq=1, upserts=[leaf(1)])
    with pytest.raises(ValueError, match="dimension"):
        await index.update(TREE, after=1, seq=2, upserts=[leaf(2, unit(np.ones(D + 1)))])
    with pytest.raises(ValueError, match="dimension"):
        await index.search(TREE, about(vector=unit(np.ones(D + 1))))
    assert await index.covered(TREE) == 1


async def test_many_small_updates_give_the_same_as_one(index: NodeIndex) -> None:
    entries = clustered(400)
    rewrites = [replace(entry, text=f"thunder {number}") for number, entry in enumerate(entries[6::7])]
    await fill(index, entries, batch=1)
    await index.search(TREE, about("thunder"))
    await fill(index, rewrites, batch=1)
    final = {entry.node: entry for entry in [*entries, *rewrites]}
    await index.update(OTHER, after=0, seq=1, upserts=list(final.values()))
    query = about("thunder river 3", dense_k=400, lexical_k=400)
    many, one = [sorted((await index.search(tree, query)).found, key=lambda c: c.node) for tree in (TREE, OTHER)]
    assert [(c.node, c.position, c.speaker, c.at) for c in many] == [(c.node, c.position, c.speaker, c.at) for c in one]
    assert [c.lexical for c in many] == pytest.approx([c.lexical for c in one], rel=1e-5)


async def test_searches_during_updates_see_whole_updates(index: NodeIndex) -> None:
    pair = 2

    async def write() -> None:
        for seq in range(60):
            batch = [leaf(seq * pair + offset, text="copper") for offset in range(pair)]
            assert await index.update(TREE, after=seq, seq=seq + 1, upserts=batch)

    async def read() -> int:
        seen = 0
        for _ in range(60):
            answer = await index.search(TREE, about("copper", dense_k=500, lexical_k=500))
            assert len(answer.found) == answer.seq * pair
            assert answer.seq >= seen
            seen = answer.seq
        return seen

    await asyncio.gather(write(), read(), read())
    assert await read() == 60


async def test_what_was_covered_before_closing_is_covered_after_opening(opener: Opener) -> None:
    entries = clustered(300)
    first = await opener()
    seq = await fill(first, entries, batch=7)
    query = about("copper violin", dense_k=20, lexical_k=20, spread=1)
    before = await first.search(TREE, query)
    await first.close()
    await first.close()
    second = await opener()
    assert await second.covered(TREE) == seq
    after = await second.search(TREE, query)
    assert {c.node: (c.position, c.at, c.event_id) for c in after.found} == {
        c.node: (c.position, c.at, c.event_id) for c in before.found
    }
    assert nodes(after.around) == nodes(before.around)


async def test_a_second_instance_sees_what_the_first_did(opener: Opener) -> None:
    writer, reader = await opener(), await opener()
    seq = 0
    for round_ in range(40):
        upserts = [leaf(round_, text=f"copper w{round_}", sequence="c:1"), summary(1000, text=f"garden v{round_}")]
        removes = [NodeId(f"n{round_ - 3}")] if round_ > 3 else []
        assert await writer.update(TREE, after=seq, seq=seq + 2, upserts=upserts, removes=removes)
        seq += 2
        assert await reader.covered(TREE) == seq
        if round_ % 3 == 0:
            ours = await writer.search(TREE, about(f"w{round_} v{round_}"))
            theirs = await reader.search(TREE, about(f"w{round_} v{round_}"))
            assert theirs.seq == seq
            assert summed_up(theirs) == summed_up(ours)
    assert not await reader.update(TREE, after=seq - 2, seq=seq + 9, upserts=[leaf(77)])
    assert await reader.update(TREE, after=seq, seq=seq + 1, upserts=[leaf(77)])
    assert "n77" in nodes((await writer.search(TREE, about())).found)


async def test_a_tree_dropped_and_made_again_elsewhere_is_seen_as_the_new_one(opener: Opener) -> None:
    writer, reader = await opener(), await opener()
    await fill(writer, [leaf(number, text="copper") for number in range(10)], batch=2)
    assert len((await reader.search(TREE, about("copper"))).found) == 10
    await writer.drop(TREE)
    await fill(writer, [leaf(100 + number, text="paper") for number in range(5)], batch=1)
    assert nodes((await reader.search(TREE, about("copper"))).found) == {f"n{100 + number}" for number in range(5)}
