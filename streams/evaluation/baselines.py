"""What a memory has to beat: two of its own strategies over leaves alone, and the units of one granularity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from memory.facade import LocalMemory
from memory.model import NodeId, NodeKind
from memory.ports.index import Candidates, IndexQuery, Scope
from memory.records import tree_id
from memory.results import Hit
from memory.retrieval import fusion

LEAVES: Final = Scope(kinds=frozenset({NodeKind.LEAF}))
"""Evidence is what was inserted, so that only leaves are ranked."""
CANDIDATES: Final = 50
"""Of either kind, as many as `hybrid` takes (decision 0003)."""
DENSE_WEIGHT: Final = 0.4
AMONG: Final = 1_000
"""Summaries of all granularities that the units of one are looked for among at first; among more where there are not enough."""


async def fused(memory: LocalMemory, tree: str, text: str) -> Sequence[Hit]:
    """
    The best 50 leaves by cosine and by BM25, in the order of both scores added (decision 0003, step 3), and nothing else.

    Args:
        memory: to be asked.
        tree: of it.
        text: the question.
    """
    by_vector = (await memory.search(tree, text, k=CANDIDATES, strategy="collapsed", scope=LEAVES)).hits
    by_words = (await memory.search(tree, text, k=CANDIDATES, strategy="bm25", scope=LEAVES)).hits
    hits: dict[NodeId, Hit] = {hit.id: hit for hit in (*by_vector, *by_words)}
    cosines = {hit.id: hit.score for hit in by_vector}
    words = {hit.id: hit.score for hit in by_words}
    ids = [*cosines, *(each for each in words if each not in cosines)]
    # A leaf that is not among the nearest has at most the least of their cosines, which counts 0.
    least = min(cosines.values(), default=0.0)
    dense = fusion.scaled_dense(np.array([cosines.get(each, least) for each in ids]), floor_rank=CANDIDATES, ranked=len(cosines))
    lexical = fusion.scaled_lexical(np.array([words.get(each, 0.0) for each in ids]))
    scores = fusion.weighted(dense, lexical, dense_weight=DENSE_WEIGHT)
    best = sorted(zip((-scores).tolist(), ids, strict=True))
    return [hits[each] for _, each in best]


async def units_at(memory: LocalMemory, tree: str, text: str, *, depth: int, k: int) -> Sequence[Hit]:
    """
    The nearest k summaries of one depth by cosine, each with an item below it as its source, and without a path.

    They are looked for in the index, since a search leaves out what another node of the same path says too, and the summary of a
    single turn often says what its session says.

    Args:
        memory: to be asked.
        tree: of it.
        text: the question.
        depth: counted from the root, whose children have 1.
        k: summaries wanted, however many of other depths are nearer.
    """
    parts, name = memory.parts, tree_id(tree)
    vector = await parts.query.embed(text)
    await parts.indexing.catch_up(name)
    among = AMONG
    while True:
        query = IndexQuery(vector=vector, terms="", dense_k=among, lexical_k=0, scope=Scope(kinds=frozenset({NodeKind.SUMMARY})))
        found = Candidates.of((await parts.index.search(name, query)).found)
        nearest = sorted(zip((-found.dense).tolist(), found.nodes, strict=True))
        nodes = await parts.store.nodes(name, [each for _, each in nearest])
        chosen = [(-negated, nodes[each]) for negated, each in nearest if each in nodes and nodes[each].depth == depth][:k]
        if len(chosen) == k or len(nearest) < among:
            break
        among *= 4
    below = await parts.store.events_below(name, [node.id for _, node in chosen], limit=1)
    return [
        Hit(
            id=node.id,
            kind=node.kind,
            score=score,
            text=node.text,
            depth=node.depth,
            event_id=None,
            chunk=0,
            source=None,
            sources=below.get(node.id, ()),
            path=(),
            descendants=node.descendants,
            pending=node.pending,
            provisional=node.provisional,
        )
        for score, node in chosen
    ]
