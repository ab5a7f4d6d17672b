"""What a memory has to beat, made of two of its own strategies over leaves alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from memory.facade import LocalMemory
from memory.model import NodeId, NodeKind
from memory.ports.index import Scope
from memory.results import Hit
from memory.retrieval import fusion

LEAVES: Final = Scope(kinds=frozenset({NodeKind.LEAF}))
"""Evidence is what was inserted, so that only leaves are ranked."""
CANDIDATES: Final = 50
"""Of either kind, as many as `hybrid` takes (decision 0003)."""
DENSE_WEIGHT: Final = 0.4


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
