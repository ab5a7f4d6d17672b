"""The index's segments, however they were cut and merged, answer like a plain dictionary; the scan misses next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.adapters.embedded.index import gathering, lexical, ranking, scanning, segment, tree
from memory.adapters.embedded.index.segment import Segment
from memory.adapters.embedded.index.tree import LoadedTree
from memory.errors import QueryError
from memory.model import NodeId, NodeKind, mark
from memory.ports.index import Candidate, Candidates, IndexEntry, IndexQuery, Scope
from tests.fakes.plain_index import PlainIndex, unit

D = 8
START = datetime(2026, 1, 1, tzinfo=UTC)
POOL = ThreadPoolExecutor(1)


@pytest.fixture(scope="module", autouse=True)
def _small_limits() -> Iterator[None]:
    """Make every way through the code common at a few dozen rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree, "BLOCK_ROWS_MAX", 24)
        patch.setattr(gathering, "LOADED_ROWS", 32)
        patch.setattr(tree, "BLOCK_FAN", 2)
        patch.setattr(scanning, "SCAN_ROWS_ASIDE", 5)
        patch.setattr(scanning, "SCAN_ROWS", 7)
        patch.setattr(scanning, "FLOOR_SAMPLE", 4)
        patch.setattr(ranking, "LONG", 2)
        patch.setattr(ranking, "LOOKED_UP_SHARE", 1)
        yield


class Update(NamedTuple):
    upserts: list[IndexEntry]
    removes: list[NodeId]


@st.composite
def entries(draw: st.DrawFn) -> IndexEntry:
    number = draw(st.integers(0, 25))
    is_leaf = draw(st.booleans())
    minute = draw(st.none() | st.integers(0, 4))
    return IndexEntry(
        node=NodeId(f"n{number}"),
        kind=NodeKind.LEAF if is_leaf else NodeKind.SUMMARY,
        mark=mark(draw(st.integers(1, 3)), number),
        vector=unit(np.random.default_rng(draw(st.integers(0, 400))).standard_normal(D)),
        text=" ".join(draw(st.lists(st.sampled_from("aaaaabbbccd"), max_size=6))),
        sequence=draw(st.sampled_from([None, "c:1", "c:2"])) if is_leaf else None,
        speaker=draw(st.sampled_from([None, "Ana", "Ben"])) if is_leaf else None,
        at=None if minute is None or not is_leaf else START + timedelta(minutes=minute),
        metadata={"topic": draw(st.sampled_from("xy"))} if is_leaf else {},
    )


NODES = st.integers(0, 25).map(lambda number: NodeId(f"n{number}"))
UPDATES = st.lists(st.builds(Update, st.lists(entries(), max_size=8), st.lists(NODES, max_size=3)), min_size=1, max_size=12)
SCOPES = st.sampled_from(
    [Scope(), Scope(speaker="Ana"), Scope(kinds=frozenset({NodeKind.SUMMARY})), Scope(metadata={"topic": "x"}),
     Scope(since=START + timedelta(minutes=1), until=START + timedelta(minutes=3))]
)  # fmt: skip
QUERIES = st.builds(
    lambda seed, terms, dense_k, lexical_k, spread, scope: IndexQuery(
        vector=unit(np.random.default_rng(seed).standard_normal(D)), terms=terms, dense_k=dense_k, lexical_k=lexical_k,
        spread=spread, scope=scope,
    ),
    st.integers(500, 600), st.sampled_from(["", "a", "d", "a b c d", "d a e", "c c b"]), st.integers(0, 6), st.integers(0, 6),
    st.integers(0, 2), SCOPES,
)  # fmt: skip


def loaded() -> LoadedTree:
    return LoadedTree(k1=0.9, b=0.4, tokenize=lexical.words, scanner=POOL)


def merged_somewhere(segments: list[Segment], draw: Callable[[st.SearchStrategy[int]], int]) -> list[Segment]:
    """The same history with some runs of segments merged, and through bytes."""
    left = list(segments)
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(left) - 1))
        end = draw(st.integers(start + 1, len(left)))
        left[start:end] = [segment.merge(left[start:end])]
    return [segment.decode(segment.encode(one)) for one in left]


def put_together(segments: list[Segment]) -> Iterator[Segment]:
    """What counts of them, as the file gives it."""
    gathered = gathering.Gathered([len(one.nodes) for one in segments])
    for one in reversed(segments):
        gathered.add(one)
    return gathered.segments()


def answered(index: LoadedTree, *queries: IndexQuery) -> list[tuple[Candidates, Candidates]]:
    answers = [answer for answer in index.search(queries) if not isinstance(answer, QueryError)]
    assert len(answers) == len(queries)
    return answers


def check(plain: PlainIndex, query: IndexQuery, found: Candidates, around: Candidates) -> None:
    dense, words = plain.dense(query), plain.lexical(query)
    for candidate in [*found, *around]:
        entry = plain.entries[candidate.node]
        assert candidate.dense == pytest.approx(dense[candidate.node], abs=1e-5)
        assert candidate.lexical == pytest.approx(words[candidate.node], rel=1e-4, abs=1e-6)
        rank = plain.sequence(entry.sequence).index(entry.node) if entry.sequence else -1
        assert (candidate.position, candidate.speaker, candidate.at) == (rank, entry.speaker, entry.at)
    nodes = {candidate.node for candidate in found}
    assert len(nodes) == len(found)
    by_words = [node for node in plain.best(words, query.scope, query.lexical_k) if words[node] > 0]
    by_vector = plain.best(dense, query.scope, query.dense_k)
    # Ties at the end of a list may be broken either way, so scores are compared and not nodes.
    assert_best(found, "lexical", [words[node] for node in by_words])
    assert_best(found, "dense", [dense[node] for node in by_vector])
    assert len(nodes) <= len(by_words) + len(by_vector)
    assert {candidate.node for candidate in around} == plain.around(nodes, query.spread)


def assert_best(found: Sequence[Candidate], score: str, expected: list[float]) -> None:
    scores = sorted((getattr(candidate, score) for candidate in found), reverse=True)
    assert scores[: len(expected)] == pytest.approx(expected, rel=1e-4, abs=1e-5)


@settings(max_examples=150, deadline=None)
@given(updates=UPDATES, queries=st.lists(QUERIES, min_size=1, max_size=4), data=st.data())
def test_any_cut_of_a_history_answers_like_a_dictionary(
    updates: list[Update], queries: list[IndexQuery], data: st.DataObject
) -> None:
    plain = PlainIndex()
    segments = []
    for seq, update in enumerate(updates, 1):
        plain.update(update.upserts, update.removes)
        segments.append(segment.build(*update, seq=seq, dimension=D, tokenize=lexical.words))
    stands = data.draw(st.integers(0, len(segments)), label="where the reader stands")
    whole, reader, stepwise = loaded(), loaded(), loaded()
    whole.load(put_together(merged_somewhere(segments, data.draw)), len(segments))
    reader.load(put_together(merged_somewhere(segments[:stands], data.draw)) if stands else (), stands)
    reader.apply(merged_somewhere(segments, data.draw), len(segments))
    for seq, one in enumerate(segments, 1):
        stepwise.apply([one], seq)
    for index in (whole, reader, stepwise):
        for query, answer in zip(queries, answered(index, *queries), strict=True):
            check(plain, query, *answer)
            check(plain, query, *answered(index, query)[0])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), clusters=st.integers(2, 40), spread=st.floats(0.01, 2.0))
def test_the_scan_finds_98_of_100_of_the_nearest(seed: int, clusters: int, spread: float) -> None:
    random = np.random.default_rng(seed)
    centres = random.standard_normal((clusters, 48))
    matrix = centres[random.integers(clusters, size=1000)] + spread * random.standard_normal((1000, 48))
    matrix = (matrix / np.linalg.norm(matrix, axis=1, keepdims=True)).astype(np.float16).astype(np.float32)
    made = [
        IndexEntry(node=NodeId(f"n{n}"), kind=NodeKind.LEAF, mark=mark(1, n), vector=row, text="") for n, row in enumerate(matrix)
    ]
    index = loaded()
    index.load([segment.build(made, [], seq=1, dimension=48, tokenize=lexical.words)], 1)
    hits = 0
    for _ in range(10):
        query = unit(centres[random.integers(clusters)] + spread * random.standard_normal(48))
        [(found, _)] = answered(index, IndexQuery(vector=query, terms="", dense_k=50, lexical_k=0))
        cosines = np.minimum(matrix @ query, 1.0)  # rounding to float16 makes some rows longer than 1
        # Rows as near as the 50th, up to what float32 can tell, are as good as it.
        hits += sum(candidate.dense >= np.sort(cosines)[-50] - 1e-5 for candidate in found)
    assert hits >= 0.98 * 500
