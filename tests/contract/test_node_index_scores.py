"""What every `NodeIndex` must find, and with which scores."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from memory.model import NodeKind
from memory.ports.index import NodeIndex, Scope
from tests.fakes.index_entries import START, TREE, D, about, by_node, clustered, fill, leaf, nodes, summary
from tests.fakes.plain_index import PlainIndex, in_scope, unit


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
