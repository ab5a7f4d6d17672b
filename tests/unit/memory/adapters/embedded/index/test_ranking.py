"""BM25 with skipped lists gives what BM25 over everything gives."""

from __future__ import annotations

import numpy as np
import pytest

from memory.adapters.embedded.index import lexical, ranking, vectors
from memory.adapters.embedded.index.ranking import Block, Ranking
from tests.fakes.plain_index import plain_bm25

K1, B = 0.9, 0.4


def texts(count: int, seed: int) -> list[str]:
    """Common words in most texts, rare ones in few, as language has it."""
    random = np.random.default_rng(seed)
    words = [f"w{rank}" for rank in range(40)]
    shares = 1 / np.arange(1, 41)
    return [" ".join(random.choice(words, size=random.integers(0, 12), p=shares / shares.sum())) for _ in range(count)]


def ranked(rows: list[str], query: str, cuts: list[int]) -> Ranking:
    blocks, lengths = [], []
    for start, end in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        postings, sizes = lexical.build((lexical.words(text), []) for text in rows[start:end])
        blocks.append(Block(start, vectors.of_rows(np.ones((end - start, 2), np.float32)), postings))
        lengths.append(sizes)
    length = np.concatenate(lengths)
    documents = int(np.count_nonzero(length))
    norms = (K1 * (1 - B + B * length * documents / length.sum())).astype(np.float32)
    return Ranking(blocks, dict.fromkeys(lexical.words(query)), alive=None, norms=norms, documents=documents, k1=K1)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("k", [1, 3, 10, 200])
def test_best_and_scores_are_those_of_plain_bm25(seed: int, k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "LONG", 2)
    monkeypatch.setattr(ranking, "LOOKED_UP_SHARE", 1)
    rows = texts(300, seed)
    random = np.random.default_rng(seed)
    query = " ".join(f"w{number}" for number in random.integers(0, 40, size=random.integers(1, 9)))
    allowed = random.random(300) < 0.5 if seed % 2 else None
    expected = np.array(plain_bm25(rows, query, K1, B))
    result = ranked(rows, query, [100, 101, 250])
    best = result.best(k, allowed)
    open_ = expected if allowed is None else np.where(allowed, expected, 0)
    wanted = np.sort(open_[open_ > 0])[::-1][:k]
    assert np.sort(expected[best])[::-1] == pytest.approx(wanted, rel=1e-5)
    assert allowed is None or allowed[best].all()
    assert result.of(np.arange(300)) == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_common_word_is_not_read_when_rare_ones_decide() -> None:
    rows = ["the"] * 20_000 + ["the rare word"] * 20
    result = ranked(rows, "the rare word", [])
    assert len(result.best(10, None)) == 10
    assert result._read == 2
    assert result.of(np.array([0, 20_000])) == pytest.approx(
        np.array(plain_bm25(rows, "the rare word", K1, B))[[0, 20_000]], rel=1e-5
    )


def test_postings_merge_as_if_built_at_once() -> None:
    rows = texts(50, 3)
    whole, _ = lexical.build((lexical.words(text), []) for text in rows)
    first, _ = lexical.build((lexical.words(text), []) for text in rows[:20])
    second, _ = lexical.build((lexical.words(text), []) for text in ["gone only-here", *rows[20:]])
    merged = lexical.combine([(first, np.arange(20, dtype=np.int32)), (second, np.array([-1, *range(20, 50)], np.int32))])
    assert merged.lookup.keys() == whole.lookup.keys()
    for word in whole.lookup:
        (start, end), (from_, to) = whole.span(word) or (0, 0), merged.span(word) or (0, 0)
        assert merged.rows[from_:to].tolist() == whole.rows[start:end].tolist()
        assert merged.counts[from_:to].tolist() == whole.counts[start:end].tolist()
