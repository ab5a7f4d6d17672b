from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.retrieval.pagerank import DAMPING, Graph


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.floats(0.0, 0.3), st.sampled_from([0.5, DAMPING]))
def test_ranks_as_a_kept_library_does(seed: int, size: int, density: float, damping: float) -> None:
    random = np.random.default_rng(seed)
    ends = [(a, b) for a in range(size) for b in range(a + 1, size) if random.random() < density]
    weights = random.uniform(0.1, 1.0, len(ends))
    seeds = random.random(size) * (random.random(size) < 0.3)
    seeds[0] += 0.1
    graph = nx.Graph()
    graph.add_nodes_from(range(size))
    graph.add_weighted_edges_from((a, b, weight) for (a, b), weight in zip(ends, weights, strict=True))
    expected = nx.pagerank(graph, alpha=damping, personalization=dict(enumerate(seeds)), tol=1e-10, max_iter=1000)

    ranks = Graph(size, ends, weights).rank(seeds, damping=damping)

    assert ranks == pytest.approx([expected[node] for node in range(size)], abs=1e-6)
    assert ranks.sum() == pytest.approx(1.0)


def test_an_edge_given_twice_counts_twice_and_one_to_itself_once() -> None:
    twice = Graph(3, [(0, 1), (0, 1), (0, 2)]).rank(np.array([1.0, 0, 0]))
    weighted = Graph(3, [(0, 1), (0, 2)], np.array([2.0, 1.0])).rank(np.array([1.0, 0, 0]))
    assert twice == pytest.approx(weighted)
    loop = nx.Graph([(0, 0), (0, 1)])
    expected = nx.pagerank(loop, alpha=DAMPING, personalization={0: 1.0, 1: 0.0}, tol=1e-10)
    assert Graph(2, [(0, 0), (0, 1)]).rank(np.array([1.0, 0])) == pytest.approx([expected[0], expected[1]], abs=1e-6)


@pytest.mark.parametrize("seeds", [[0.0, 0.0], [1.0, -0.1]])
def test_seeds_that_are_none(seeds: list[float]) -> None:
    with pytest.raises(ValueError, match="seeds"):
        Graph(2, [(0, 1)]).rank(np.array(seeds))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(0, 4), st.booleans())
def test_a_graph_that_grew_is_the_graph_that_was_made_whole(seed: int, stages: int, often: bool) -> None:
    random = np.random.default_rng(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("memory.retrieval.pagerank.LATE_MIN", 3 if often else 4_096)
        size, ends = 5, random.integers(0, 5, (6, 2))
        grown = Graph(size, ends)
        for _ in range(stages):
            size += int(random.integers(0, 4))
            more = random.integers(0, size, (int(random.integers(0, 6)), 2))
            ends = np.concatenate([ends, more])
            grown = grown.grown(size, more)
    seeds = random.random(size)
    assert grown.edges == len(ends)
    assert grown.rank(seeds) == pytest.approx(Graph(size, ends).rank(seeds), abs=1e-9)


@pytest.mark.parametrize("damping", [0.3, DAMPING])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-4, 1e-6])
def test_a_walk_that_ends_early_is_as_near_as_it_says(tolerance: float, damping: float) -> None:
    random = np.random.default_rng(7)
    graph = Graph(60, random.integers(0, 60, (200, 2)))
    seeds = np.zeros(60)
    seeds[:3] = 1.0
    exact = graph.rank(seeds, damping=damping, tolerance=1e-14)
    early = graph.rank(seeds, damping=damping, tolerance=tolerance)
    assert 0 < np.abs(exact - early).sum() <= tolerance * damping / (1 - damping)
