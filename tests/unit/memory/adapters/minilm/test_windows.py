from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from memory.adapters.minilm.windows import WINDOW_TOKENS, pad_batch, plan_batches, split_windows


@given(st.integers(0, 3000))
def test_windows_hold_every_token_once_and_fit(count: int) -> None:
    ids = list(range(1000, 1000 + count))
    windows = split_windows(ids)
    assert [token for window in windows for token in window[1:-1]] == ids
    assert all(window[0] == 101 and window[-1] == 102 for window in windows)
    lengths = list(map(len, windows))
    assert max(lengths) <= WINDOW_TOKENS
    assert max(lengths) - min(lengths) <= 1
    assert len(windows) == max(1, -(-count // 254))


@given(st.lists(st.integers(2, 256), max_size=200), st.integers(1, 40), st.integers(256, 4096))
def test_batches_hold_every_window_once_within_bounds(lengths: list[int], rows_max: int, tokens_max: int) -> None:
    batches = list(plan_batches(lengths, rows_max=rows_max, tokens_max=tokens_max))
    assert sorted(position for batch in batches for position in batch) == list(range(len(lengths)))
    for batch in batches:
        assert len(batch) <= rows_max
        assert len(batch) * max(lengths[position] for position in batch) <= tokens_max


def test_sorting_by_length_bounds_padding() -> None:
    lengths = [4, 250] * 64
    batches = list(plan_batches(lengths, rows_max=32, tokens_max=1024))
    padded = sum(len(batch) * max(lengths[position] for position in batch) for batch in batches)
    assert padded <= 1.1 * sum(lengths)


def test_padding_is_masked() -> None:
    ids, mask = pad_batch([[101, 7, 102], [101, 102]])
    assert ids.tolist() == [[101, 7, 102], [101, 102, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 1, 0]]
