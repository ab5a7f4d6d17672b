"""Which sentences to keep, and which phrases to head them with. Pure, deterministic, no vectors but words."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memory.adapters.embedded.extractive.headline import Recurrence
from memory.adapters.embedded.extractive.sentences import Sentence
from memory.adapters.embedded.extractive.words import Word, stem, words

DIVERSITY = 0.5
"""How much likeness to what is chosen already counts against a sentence (1 - λ of MMR, Carbonell & Goldstein 1998, rescaled)."""
ALIKE = 0.75
"""Cosine from which two sentences count as the same."""
BREVITY = 0.5
"""How much length counts against a sentence: several short ones are a better sample than one long one."""
_GREETED = re.compile(
    r"(?:hey|hi|hello|thanks|thank you|wow|oh|yeah|yes|no|ok|okay|congrats|sorry|bye|good (?:morning|night)|dear)[, ]+([^\W\d]\w+)"
    r"(?=[,.!?]|$)",
    re.IGNORECASE,
)
_CALLED = re.compile(r"^([^\W\d]\w+),|, ([^\W\d]\w+)[.!?…]*$")
_CALL_CHARACTERS_MAX = 48
"""A name after the comma of a longer sentence is more often a place ("we moved to Porto, Portugal") than who is spoken to."""
_WEAK_STARTS = ("it ", "it's ", "that ", "that's ", "this ", "they ", "he ", "she ", "and ", "but ", "so ", "then ", "those ")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """A sentence with its words counted."""

    sentence: Sentence
    words: tuple[Word, ...]
    weights: Mapping[str, float]
    """Weight by key, each key once; function words left out."""
    norm: float
    quality: float
    """What it is worth apart from its topic, about 0 to 1.5: facts raise it, small talk and questions lower it."""


def addressed(sentences: Iterable[Sentence]) -> frozenset[str]:
    """Keys of who is speaking and who is spoken to ("Hey Mel!", "Sounds great, Mel!"): in every other sentence, and no topic."""
    found: set[str] = set()
    for sentence in sentences:
        found.update(stem(part) for part in sentence.who.split())
        match = _GREETED.match(sentence.text)
        if match is None and len(sentence.text) <= _CALL_CHARACTERS_MAX:
            match = _CALLED.search(sentence.text)
        name = next(filter(None, match.groups()), "") if match else ""
        if name and name[0].isupper():
            found.add(stem(name))
    return frozenset(found)


def score(sentences: Iterable[Sentence], *, speakers: frozenset[str]) -> list[Scored]:
    """Count the words of each sentence; names of the speakers, which are in every greeting, count little."""
    scored = []
    for sentence in sentences:
        found = tuple(words(sentence.text))
        weights: dict[str, float] = {}
        facts: set[str] = set()
        for word in found:
            if word.weight == 0.0:
                continue
            if word.key in speakers:
                weights[word.key] = 0.1
                continue
            weights[word.key] = max(word.weight, weights.get(word.key, 0.0))
            if word.fact:
                facts.add(word.key)
        norm = math.sqrt(sum(weight * weight for weight in weights.values()))
        quality = _quality(sentence.text, sum(weights.values()), len(found), len(facts))
        scored.append(Scored(sentence=sentence, words=found, weights=weights, norm=norm, quality=quality))
    return scored


def _quality(text: str, content: float, count: int, facts: int) -> float:
    """Long enough to say something, rather a statement than a question, with names, numbers and dates."""
    substance = math.pow(min(1.0, content / 4.0), 1.5) * min(1.0, 2.5 * content / max(1, count))
    factual = 1.0 + 0.3 * min(3, facts)
    asking = 0.5 if text.rstrip("\"'”’ ").endswith(("?", "？", "؟")) else 1.0
    dangling = 0.85 if text.lower().startswith(_WEAK_STARTS) else 1.0
    letters = sum(map(str.isalpha, text))
    readable = 1.0 if letters * 2 >= len(text) else 0.4
    beside = 0.6 if text.startswith(("[", "(")) else 1.0  # a picture's caption, an aside
    return substance * factual * asking * dangling * readable * beside


def centroid(scored: Sequence[Scored], recurrences: Sequence[Recurrence]) -> dict[str, float]:
    """
    Mass of each word: its weight, times the square root of the leaves that use it.

    A leaf counts once for a word however often it uses it, so that one long text does not outvote many short ones.

    Args:
        scored: all sentences.
        recurrences: what earlier headlines say of leaves whose sentences are gone.
    """
    origins: dict[str, dict[tuple[int, int], float]] = defaultdict(dict)
    weight: dict[str, float] = {}
    for entry in scored:
        sentence = entry.sentence
        origin = (sentence.source, sentence.position if sentence.source < 0 else 0)
        for key, value in entry.weights.items():
            origins[key][origin] = sentence.leaves
            weight[key] = max(value, weight.get(key, 0.0))
    leaves = {key: sum(by_origin.values()) for key, by_origin in origins.items()}
    for recurrence in recurrences:
        for word in recurrence.words:
            leaves[word.key] = leaves.get(word.key, 0.0) + recurrence.leaves
            weight.setdefault(word.key, word.weight)
    return {key: weight[key] * math.sqrt(count) for key, count in leaves.items()}


def choose(scored: Sequence[Scored], mass: Mapping[str, float], *, characters: int) -> list[Sentence]:
    """
    Sentences near the centroid and unlike one another (MMR), until the budget is used up.

    Args:
        scored: candidates, at least one.
        mass: centroid of the candidates.
        characters: budget, labels included.

    Returns:
        The chosen ones by order of choice, at least one; the first is cut if it alone is over the budget.
    """
    worth = [_relevance(entry, mass) * entry.quality / (60 + len(entry.sentence.text)) ** BREVITY for entry in scored]
    best = max(worth, default=0.0) or 1.0
    gain = [value / best for value in worth]
    likeness = [0.0] * len(scored)
    chosen: list[int] = []
    left = characters
    open_ = [index for index in range(len(scored)) if scored[index].norm > 0]
    while open_:
        top = max(open_, key=lambda index: (gain[index] - DIVERSITY * likeness[index], -index))
        open_.remove(top)
        if chosen and gain[top] - DIVERSITY * likeness[top] <= 0.02:
            break
        sentence = scored[top].sentence
        size = len(sentence.text) + len(sentence.label) + 1
        if size > left and chosen:
            continue
        chosen.append(top)
        left -= size
        kept = []
        for index in open_:
            like = _cosine(scored[index], scored[top])
            if like < ALIKE:
                likeness[index] = max(likeness[index], like)
                kept.append(index)
        open_ = kept
    if not chosen:  # nothing but function words: the first is as good as any
        chosen = [0]
    return [scored[index].sentence for index in chosen]


def _relevance(entry: Scored, mass: Mapping[str, float]) -> float:
    """Cosine with the centroid, up to the centroid's length, which is the same for all."""
    if entry.norm == 0:
        return 0.0
    return sum(weight * mass[key] for key, weight in entry.weights.items()) / entry.norm


def _cosine(a: Scored, b: Scored) -> float:
    if len(b.weights) < len(a.weights):
        a, b = b, a
    other = b.weights
    return sum(weight * other[key] for key, weight in a.weights.items() if key in other) / (a.norm * b.norm)
