"""
H-MEM's descent against a flat search: similarities computed, what is found, time; at 10,000, 100,000 and 1,000,000 episodes.

Made-up vectors around 60 topics of 40 subjects each (`tests.bench.corpus`): a million of them have 96 dimensions instead of 384, so
that they fit in 4 GB; the count of similarities does not depend on that. With BANYAN_BENCH_DATA also real texts: the passages and
sentences of HotpotQA, MuSiQue and 2Wiki by the local model, asked the questions of these sets.

A tree is grown by the structure's own placement, without a store; the vectors of its summaries are the means of their episodes,
brought up to date whenever one has grown by an eighth, as the pool of workers would.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory.changes import Grow, Rewrite
from memory.model import EmbeddingModel, EventId, Item, NodeId
from memory.retrieval.descent import ROOM, WIDTH, descend
from memory.structures.hmem import HMem
from memory.tree.planning import Insertion, leaf_id
from memory.tree.similarity import quantize
from memory.tree.view import View
from tests.bench.corpus import DIMENSION, SUBTOPICS, TOPICS, Corpus
from tests.bench.example import data_folder

SIZES = ((10_000, DIMENSION), (100_000, DIMENSION), (1_000_000, 96))
"""Episodes, and the dimensions of their vectors."""
QUESTIONS = 200
BATCH = 256
K = 10
PASSAGES = ("hotpotqa", "musique", "twowiki")
SENTENCE_WORDS_MIN = 5

Rows = NDArray[np.float16]


class Grown:
    """
    A tree that items are put into.

    Args:
        dimension: of the vectors.
    """

    def __init__(self, dimension: int) -> None:
        self._structure = HMem(EmbeddingModel(name="bench:given", dimension=dimension, unrelated_cosine=0.0))
        self.view = View(dimension)
        self._sums: dict[NodeId, NDArray[np.float64]] = {}
        self._counts: dict[NodeId, int] = {}
        self._covered: dict[NodeId, int] = {}

    def put(self, first: int, rows: Rows) -> None:
        """Items with numbers from `first` on."""
        vectors = [quantize(row.astype(np.float32)) for row in rows]
        insertions = [
            Insertion(item=Item(event_id=EventId(str(number)), text="-"), vector=vector)
            for number, vector in enumerate(vectors, first)
        ]
        plan = self._structure.plan(self.view, insertions)
        grown = (step for step in plan.steps if isinstance(step, Grow))
        touched: set[NodeId] = set()
        for step, vector in zip(grown, vectors, strict=True):
            for node in step.nodes:
                self._sums[node] = self._sums.get(node, 0.0) + vector.astype(np.float64)
                self._counts[node] = self._counts.get(node, 0) + 1
                touched.add(node)
        for node in touched:
            if self._counts[node] >= 1.125 * self._covered.get(node, 0):
                self._cover(node)
        self.view.seq += 1

    def _cover(self, node: NodeId) -> None:
        branch = self.view.branches[node]
        assert branch.parent is not None
        mean = quantize((self._sums[node] / np.linalg.norm(self._sums[node])).astype(np.float32))
        self.view.apply(Rewrite(node=node, parent=branch.parent.id, vector=mean, cohesion=1.0, through=0))  # type: ignore[arg-type]
        self._covered[node] = self._counts[node]

    def shape(self) -> dict[str, int]:
        """Nodes by layer."""
        branches = self.view.branches.values()
        layers = [sum(branch.depth == depth for branch in branches) for depth in (1, 2, 3)]
        return dict(zip(("domains", "categories", "traces"), layers, strict=True))


def compare(grown: Grown, rows: Rows, questions: Rows, same: Callable[[int], Any] = lambda number: number) -> dict[str, float]:
    """
    The descent and the flat search on the same questions.

    Args:
        grown: the tree of `rows`, numbered from 0.
        rows: (n, d) unit rows.
        questions: (q, d) unit rows.
        same: what counts as the same answer.
    """
    flat_rows = rows.astype(np.float32)
    numbers = {leaf_id(EventId(str(number)), 0): number for number in range(len(rows))}
    compared, found, flat_s, own_s = [], [], [], []
    for question in questions.astype(np.float32):
        begun = time.process_time()
        cosines = flat_rows @ question
        best = np.argpartition(-cosines, K)[:K]
        flat_s.append(time.process_time() - begun)
        begun = time.process_time()
        layers = descend(grown.view, question, width=WIDTH, room=ROOM, episodes=K)
        own_s.append(time.process_time() - begun)
        compared.append(sum(layer.compared for layer in layers))
        wanted = {same(int(number)) for number in best}
        found.append(len(wanted & {same(numbers[chosen.node]) for chosen in layers[-1].chosen}) / len(wanted))
    return {
        "episodes": len(rows),
        "dimensions": rows.shape[1],
        **grown.shape(),
        "compared": round(float(np.mean(compared))),
        "compared_max": int(np.max(compared)),
        "share": round(float(np.mean(compared)) / len(rows), 5),
        "recall": round(float(np.mean(found)), 3),
        "flat_ms": round(1e3 * float(np.median(flat_s)), 2),
        "descent_ms": round(1e3 * float(np.median(own_s)), 2),
    }


def made_up(count: int, dimension: int) -> Iterator[Rows]:
    """(BATCH, dimension) float16 unit rows, until there are `count`; then the questions."""
    if dimension == DIMENSION:
        corpus = Corpus()
        for first in range(0, count, BATCH):
            yield corpus.vectors(first, min(BATCH, count - first)).astype(np.float16)
        yield corpus.vectors(count + 10_000, QUESTIONS).astype(np.float16)
        return
    random = np.random.default_rng(0)
    topics, subjects = (_unit(random.normal(size=(number, dimension))) for number in (TOPICS, TOPICS * SUBTOPICS))
    for size in (*(min(BATCH, count - first) for first in range(0, count, BATCH)), QUESTIONS):
        subject = random.integers(0, len(subjects), size)
        noise = _unit(random.normal(size=(size, dimension)))
        yield _unit(0.59 * topics[subject // SUBTOPICS] + 0.48 * subjects[subject] + 0.65 * noise).astype(np.float16)


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


def measure(count: int, dimension: int) -> dict[str, float]:
    """One size, with made-up vectors."""
    grown = Grown(dimension)
    rows = np.empty((count, dimension), np.float16)
    first = 0
    for some in made_up(count, dimension):
        if first == count:
            return compare(grown, rows, some)
        rows[first : first + len(some)] = some
        grown.put(first, some)
        first += len(some)
    raise AssertionError("the questions come last")


def sentences(text: str) -> list[str]:
    """Of a passage, those that say something."""
    from memory.adapters.embedded.extractive.sentences import split_sentences  # noqa: PLC0415

    return [each for each in split_sentences(text) if len(each.split()) >= SENTENCE_WORDS_MIN]


async def real(folder: Path) -> dict[str, Any]:
    """Passages and their sentences in one tree, by the local model."""
    from memory.adapters.minilm import MiniLmEmbedder  # noqa: PLC0415
    from streams.evaluation.formats import load  # noqa: PLC0415

    texts: list[str] = []
    owners: list[str] = []
    questions: list[tuple[str, set[str]]] = []
    for name in PASSAGES:
        data = load("passages", folder / name)
        for record in data.records:
            owner = f"{name}:{record.id}"
            parts = [record.text, *sentences(record.text)]
            texts += parts
            owners += [owner] * len(parts)
        questions += [(case.text, {f"{name}:{turn}" for turn in case.turns}) for case in data.cases]
    embedder = MiniLmEmbedder.open()
    try:
        order = np.random.default_rng(0).permutation(len(texts))
        rows = (await embedder.embed([texts[place] for place in order])).astype(np.float16)
        asked = (await embedder.embed([text for text, _ in questions], purpose="query")).astype(np.float16)
    finally:
        await embedder.close()
    shuffled = [owners[place] for place in order]
    return against(rows, shuffled, asked, [wanted for _, wanted in questions])


def against(rows: Rows, owners: list[str], asked: Rows, wanted: list[set[str]]) -> dict[str, Any]:
    """`compare` for texts whose owners are known, and the evidence that either search finds among its first ten."""
    grown = Grown(rows.shape[1])
    for first in range(0, len(rows), BATCH):
        grown.put(first, rows[first : first + BATCH])
    numbers = {leaf_id(EventId(str(number)), 0): number for number in range(len(rows))}
    flat_rows = rows.astype(np.float32)
    shares = []
    for question, relevant in zip(asked.astype(np.float32), wanted, strict=True):
        best = np.argpartition(-(flat_rows @ question), K)[:K]
        chosen = descend(grown.view, question, width=WIDTH, room=ROOM, episodes=K)[-1].chosen
        flat, own = {owners[number] for number in best}, {owners[numbers[each.node]] for each in chosen}
        shares.append((len(flat & relevant) / len(relevant), len(own & relevant) / len(relevant)))
    flat_recall, own_recall = (float(share) for share in np.mean(shares, axis=0))
    return {
        **compare(grown, rows, asked),
        "evidence_flat": round(flat_recall, 3),
        "evidence_descent": round(own_recall, 3),
        "evidence_ratio": round(own_recall / flat_recall, 3),
    }


def main() -> None:
    """Measure and print; sizes may be named on the command line."""
    chosen = {int(each) for each in sys.argv[1:]}
    sizes = [size for size in SIZES if not chosen or size[0] in chosen]
    result: dict[str, Any] = {"made_up": [measure(*size) for size in sizes]}
    folder = data_folder()
    if folder is not None:
        result["real"] = asyncio.run(real(folder))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
