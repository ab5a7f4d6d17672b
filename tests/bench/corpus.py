"""Synthetic data for benchmarks: clustered vectors and texts with natural word frequencies; the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from memory.model import EmbeddingModel
from memory.ports.embedder import Embedder, Purpose
from memory.records import Turn

DIMENSION = 384
START = datetime(2025, 1, 1, tzinfo=UTC)
TOPICS, SUBTOPICS = 60, 40
WORDS = 20_000
TURNS_PER_CONVERSATION = 25


class Corpus:
    """
    Vectors around topics and subtopics, and a text for each.

    The cosine of two items of a subtopic is about 0.58 on average, of a topic 0.35, of others 0: as MiniLM gives them for turns of
    conversations.

    Args:
        seed: of everything.
    """

    def __init__(self, seed: int = 0) -> None:
        self._seed = seed
        random = np.random.default_rng(seed)
        self._topics = _unit(random.normal(size=(TOPICS, DIMENSION)))
        self._subtopics = _unit(random.normal(size=(TOPICS * SUBTOPICS, DIMENSION)))
        ranks = np.arange(1, WORDS + 1)
        self._frequencies = (1 / ranks) / (1 / ranks).sum()

    def vectors(self, start: int, count: int) -> NDArray[np.float32]:
        """(count, DIMENSION) float32, unit rows: the items from `start` on, in blocks of 1,000."""
        blocks = range(start // 1000, (start + count - 1) // 1000 + 1)
        rows = np.concatenate([self._block(block) for block in blocks])
        offset = start - blocks[0] * 1000
        return rows[offset : offset + count]

    def _block(self, block: int) -> NDArray[np.float32]:
        random = np.random.default_rng((self._seed, block))
        return self.around(random.integers(0, TOPICS, 1000), random)

    def around(self, topic: NDArray[np.int64], random: np.random.Generator, *, subtopics: int = SUBTOPICS) -> NDArray[np.float32]:
        """(n, DIMENSION) float32, unit rows: one item of each of the n topics, each below `TOPICS`, on its first subtopics."""
        subtopic = topic * SUBTOPICS + random.integers(0, subtopics, len(topic))
        noise = _unit(random.normal(size=(len(topic), DIMENSION)))
        return _unit(0.59 * self._topics[topic] + 0.48 * self._subtopics[subtopic] + 0.65 * noise).astype(np.float32)

    def texts(self, start: int, count: int) -> list[str]:
        """Texts of 6 to 40 words; the item's number is one of them."""
        random = np.random.default_rng((self._seed, 1, start))
        lengths = random.integers(6, 41, count)
        words = random.choice(WORDS, int(lengths.sum()), p=self._frequencies)
        ends = np.cumsum(lengths)
        return [
            f"item{start + index} " + " ".join(f"word{word}" for word in words[end - length : end])
            for index, (end, length) in enumerate(zip(ends, lengths, strict=True))
        ]

    def turns(self, tree: str, start: int, count: int) -> Iterator[Turn]:
        """Turns of conversations of 25, a minute apart."""
        for at in range(start, start + count, 1000):
            for index, text in enumerate(self.texts(at, min(1000, start + count - at)), at):
                yield Turn(
                    tree=tree,
                    id=f"e{index}",
                    text=text,
                    conversation=f"c{index // TURNS_PER_CONVERSATION}",
                    speaker=f"speaker{index % 5}",
                    at=START + timedelta(minutes=index),
                )


class GivenVectors(Embedder):
    """
    Gives each text of a corpus its vector; stands for an embedder that costs nothing.

    Args:
        corpus: whose texts.
        model: whose vectors they are taken for; by default a space of their own.
    """

    def __init__(self, corpus: Corpus, model: EmbeddingModel | None = None) -> None:
        self._corpus = corpus
        self._model = model or EmbeddingModel(name="bench:given", dimension=DIMENSION, unrelated_cosine=0.0)
        self._cache: dict[int, NDArray[np.float32]] = {}

    @property
    def model(self) -> EmbeddingModel:
        """The space that the vectors are taken to be of."""
        return self._model

    def ready(self, start: int, count: int) -> None:
        """Have these items' vectors at hand: they are made by blocks, which takes a tenth as long as committing them."""
        self._cache = {
            block: self._corpus.vectors(block * 1000, 1000) for block in range(start // 1000, (start + count - 1) // 1000 + 1)
        }

    async def embed(self, texts: Sequence[str], *, purpose: Purpose = "document") -> NDArray[np.float32]:
        """The vectors of the items that the texts name."""
        del purpose
        numbers = [int(text.partition("item")[2].partition(" ")[0]) for text in texts]
        return np.stack([self._vector(number) for number in numbers])

    def _vector(self, number: int) -> NDArray[np.float32]:
        block = number // 1000
        if block not in self._cache:
            # Two, where questions are not of the block that is being put in: making one takes longer than what is measured.
            self._cache = dict([*self._cache.items(), (block, self._corpus.vectors(block * 1000, 1000))][-2:])
        row: NDArray[np.float32] = self._cache[block][number % 1000]
        return row


def _unit(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return result
