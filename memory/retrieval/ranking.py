"""The hybrid recipe, pure: candidates with raw scores in, the same with their final scores out (decision 0003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memory.model import NodeId
from memory.ports.index import Candidate, Candidates
from memory.retrieval.fusion import Scores, scaled_dense, scaled_lexical, weighted
from memory.retrieval.hints import DateHint
from memory.retrieval.spreading import pooled


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The hybrid strategy's parameters. Round numbers: each lies on a plateau (decision 0003)."""

    candidates: int = 50
    """Candidates by vector, and by BM25; more when more hits are asked for. Also the rank at which a cosine counts as 0. 50 to 200
    are equally good, and candidates with their neighbours are what a query's time goes into."""
    dense_weight: float = 0.4
    """Share of the cosine in the fused score; BM25 has the rest. 0.4 to 0.5 are equally good."""
    kernel: tuple[float, ...] = (0.4, 0.2)
    """Weights of the squared scores of the turns one and two away."""
    summary_factor: float = 0.7
    """For summaries: they have no neighbours to gain from, and an extractive one repeats what its leaves say."""
    speaker_factor: float = 1.1
    """For what a speaker said whom the question names, when it names one only."""
    date_factor: float = 1.2
    """For what was said on a date that the question names."""
    nameless_weight: float = 2.0
    """Weight of the question without its speakers' names, against 1 of the question as it is, in the query vector."""
    title_bonus: float = 0.3
    """Added to a document whose title the question names."""
    mention_bonus: float = 0.5
    """Share of its score that one of the best hits adds to a document whose title it names."""
    mention_sources: int = 5
    """Best hits whose mentions are followed."""

    @property
    def spread(self) -> int:
        """Turns on either side that lend their score."""
        return len(self.kernel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """What the question says besides its topic."""

    speakers: frozenset[str] = frozenset()
    dates: tuple[DateHint, ...] = ()


class Scoring:
    """
    Candidates and their scores, in columns.

    Args:
        found: best by vector and by BM25.
        around: neighbours of those in their conversations.
        hints: of the question.
        recipe: the parameters.
        added: others that may be hits; they do not shift the scales of the found ones.
        bonus: what is added to the scores of some nodes, because their title was named.
    """

    def __init__(
        self,
        found: Sequence[Candidate],
        around: Sequence[Candidate],
        *,
        hints: Hints,
        recipe: Recipe,
        added: Sequence[Candidate] = (),
        bonus: Mapping[NodeId, float] | None = None,
    ) -> None:
        self.candidates = Candidates.joined(part for part in (found, added, around) if part) if found else Candidates.of(())
        self._recipe = recipe
        self._own = len(found) + len(added)
        self._cosines = self.candidates.dense
        # The floor is a rank among what was found; neighbours come along with whatever cosine they have.
        self._dense = scaled_dense(self._cosines, floor_rank=recipe.candidates, ranked=len(found))
        self._lexical = scaled_lexical(self.candidates.lexical)
        self._fused = weighted(self._dense, self._lexical, dense_weight=recipe.dense_weight)
        self._spread = pooled(self._fused, self.candidates.sequences, self.candidates.positions, kernel=recipe.kernel)
        self._speaker = self._speaker_factors(hints)
        self._date = self._date_factors(hints)
        self._title = np.zeros(len(self.candidates))
        if bonus:
            self._title[:] = [bonus.get(node, 0.0) for node in self.candidates.nodes]
        self._kind = np.where(self.candidates.leaves, 1.0, recipe.summary_factor)
        self.scores: Scores = self._spread * self._kind * self._speaker * self._date + self._title
        """(n,) 0 or more, in the order of `candidates`."""

    def best(self, k: int, *, around: bool) -> list[int]:
        """
        Indexes of the k best, best first; equal ones by cosine, then by node.

        Args:
            k: wanted.
            around: whether neighbours that came along may themselves be hits.
        """
        scores = self.scores if around else self.scores[: self._own]
        if k < len(scores):
            # All that equal the k-th are looked at, so that ties are broken as if everything were sorted.
            places = np.flatnonzero(scores >= np.partition(scores, len(scores) - k)[len(scores) - k]).tolist()
        else:
            places = list(range(len(scores)))
        nodes, cosines = self.candidates.nodes, self._cosines
        return sorted(places, key=lambda place: (-scores[place], -cosines[place], nodes[place]))[:k]

    def parts(self, index: int) -> dict[str, float]:
        """
        What a candidate's score is made of.

        The score is `(dense + lexical + neighbours) * kind * speaker * date + title`; `cosine` and `bm25` are the raw ones.
        """
        weight = self._recipe.dense_weight
        return {
            "cosine": float(self._cosines[index]),
            "bm25": float(self.candidates.lexical[index]),
            "dense": float(weight * self._dense[index]),
            "lexical": float((1.0 - weight) * self._lexical[index]),
            "neighbours": float(self._spread[index] - self._fused[index]),
            "kind": float(self._kind[index]),
            "speaker": float(self._speaker[index]),
            "date": float(self._date[index]),
            "title": float(self._title[index]),
        }

    def _speaker_factors(self, hints: Hints) -> Scores:
        factors = np.ones(len(self.candidates))
        # A question that names two speakers does not say which of them said it.
        if len(hints.speakers) == 1:
            factors[[speaker in hints.speakers for speaker in self.candidates.speakers]] = self._recipe.speaker_factor
        return factors

    def _date_factors(self, hints: Hints) -> Scores:
        factors = np.ones(len(self.candidates))
        if hints.dates:
            named = [at is not None and any(hint.matches(at) for hint in hints.dates) for at in self.candidates.times.tolist()]
            factors[named] = self._recipe.date_factor
        return factors
