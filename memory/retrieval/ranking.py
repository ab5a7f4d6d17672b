"""The hybrid recipe, pure: candidates with raw scores in, the same with what became of them out (decision 0003)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from memory.model import NodeId
from memory.ports.index import Candidate
from memory.retrieval.fusion import Scores, scaled_dense, scaled_lexical, weighted
from memory.retrieval.hints import DateHint
from memory.retrieval.spreading import pooled


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The hybrid strategy's parameters. Round numbers: each lies on a plateau (decision 0003)."""

    candidates: int = 100
    """Candidates by vector, and by BM25. Also the rank at which a cosine counts as 0."""
    dense_weight: float = 0.4
    """Share of the cosine in the fused score; BM25 has the rest. 0.4 to 0.5 are equally good."""
    kernel: tuple[float, ...] = (0.4, 0.2)
    """Weights of the squared scores of the turns one and two away."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A candidate and its score."""

    candidate: Candidate
    score: float
    """0 or more."""
    found: bool
    """False for one that only lends its score to its neighbours."""
    parts: Mapping[str, float] = field(default_factory=dict)


def score(
    found: Sequence[Candidate],
    around: Sequence[Candidate],
    *,
    hints: Hints,
    recipe: Recipe,
    added: Sequence[Candidate] = (),
    bonus: Mapping[NodeId, float] | None = None,
) -> list[Scored]:
    """
    Score candidates.

    Args:
        found: best by vector and by BM25.
        around: neighbours of those in their conversations.
        hints: of the question.
        recipe: the parameters.
        added: others that may be hits; they do not shift the scales of the found ones.
        bonus: what is added to the scores of some nodes, because their title was named.

    Returns:
        All of them, best first; equal ones by cosine, then by id.
    """
    candidates = [*found, *added, *around]
    if not candidates:
        return []
    dense_raw = np.array([candidate.dense for candidate in candidates])
    lexical_raw = np.array([candidate.lexical for candidate in candidates])
    # The floor is a rank among what was found; neighbours come along with whatever cosine they have.
    dense = scaled_dense(dense_raw, floor_rank=recipe.candidates, ranked=len(found))
    lexical = scaled_lexical(lexical_raw)
    fused = weighted(dense, lexical, dense_weight=recipe.dense_weight)
    spread = pooled(
        fused,
        [candidate.sequence for candidate in candidates],
        [candidate.position for candidate in candidates],
        kernel=recipe.kernel,
    )
    speaker = _speaker_factors(candidates, hints, recipe.speaker_factor)
    date = _date_factors(candidates, hints, recipe.date_factor)
    title = np.array([bonus.get(candidate.node, 0.0) if bonus else 0.0 for candidate in candidates])
    total = spread * speaker * date + title
    order = sorted(range(len(candidates)), key=lambda index: (-total[index], -dense_raw[index], candidates[index].node))
    return [
        Scored(
            candidate=candidates[index],
            score=float(total[index]),
            found=index < len(found) + len(added),
            parts={
                "cosine": float(dense_raw[index]),
                "bm25": float(lexical_raw[index]),
                "dense": float(recipe.dense_weight * dense[index]),
                "lexical": float((1.0 - recipe.dense_weight) * lexical[index]),
                "neighbours": float(spread[index] - fused[index]),
                "speaker": float(speaker[index]),
                "date": float(date[index]),
                "title": float(title[index]),
            },
        )
        for index in order
    ]


def _speaker_factors(candidates: Sequence[Candidate], hints: Hints, factor: float) -> Scores:
    # A question that names both speakers says nothing about who said it.
    if len(hints.speakers) != 1:
        return np.ones(len(candidates))
    return np.array([factor if candidate.speaker in hints.speakers else 1.0 for candidate in candidates])


def _date_factors(candidates: Sequence[Candidate], hints: Hints, factor: float) -> Scores:
    return np.array(
        [
            factor if candidate.at is not None and any(hint.matches(candidate.at) for hint in hints.dates) else 1.0
            for candidate in candidates
        ]
    )
