"""The line of key phrases that heads a summary, and what a later round learns from it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from memory.adapters.embedded.extractive.words import Word, words

PHRASES_MAX = 7
HEADLINE_CHARACTERS_MAX = 90


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """A phrase of an earlier headline."""

    surface: str
    words: tuple[Word, ...]
    """Those that are no function words; at least one."""
    leaves: float
    """In how many leaves it is taken to occur, beyond the sentences at hand."""


def recurring(phrases: Sequence[str], leaves: float, *, phrases_max: int = PHRASES_MAX) -> Iterator[Recurrence]:
    """
    What a headline says about the leaves whose sentences are gone.

    It is read as a sketch of the most frequent words (as in Space-Saving, Metwally et al. 2005): the first phrase stands for
    `leaves`, each further one for a step less. So a new word pushes out the last phrase, one that comes up again rises, and what
    has been there for long is not lost to the latest turn.
    """
    for rank, phrase in enumerate(phrases[:phrases_max]):
        parts = tuple(word for word in words(phrase) if word.weight > 0)
        if parts:
            yield Recurrence(surface=phrase, words=parts, leaves=leaves * (1 - rank / phrases_max))


def headline(
    sentences: Sequence[tuple[str, Sequence[Word]]],
    mass: Mapping[str, float],
    recurrences: Sequence[Recurrence],
    *,
    speakers: frozenset[str],
    phrases_max: int = PHRASES_MAX,
    characters_max: int = HEADLINE_CHARACTERS_MAX,
) -> list[str]:
    """
    Phrases that tell the topic, most telling first.

    Args:
        sentences: all candidates with their words, not only those that were chosen for the summary.
        mass: of each word (`ranking.centroid`).
        recurrences: phrases of earlier headlines; they keep their wording when they are chosen again.
        speakers: keys that are no topic.
        phrases_max: most phrases.
        characters_max: most characters of all together.

    Returns:
        Phrases that share no word.
    """
    phrases: dict[tuple[str, ...], _Phrase] = {}
    for text, found in sentences:
        for run in _runs(found, speakers):
            for size in (1, 2, 3):
                for start in range(len(run) - size + 1):
                    _count(phrases, run[start : start + size], text, opens=run[start] is found[0])
    for recurrence in recurrences:
        keys = tuple(word.key for word in recurrence.words)
        phrase = phrases.setdefault(keys, _Phrase(recurrence.surface, 0, recurrence.words[0].named))
        phrase.surface, phrase.uses = recurrence.surface, phrase.uses + 1
    ranked = sorted(phrases.items(), key=lambda pair: (-_telling(pair[0], pair[1], mass), pair[0]))
    return _fitting(ranked, phrases_max, characters_max)


@dataclass(slots=True)
class _Phrase:
    surface: str
    uses: int
    named: bool


def _fitting(ranked: Sequence[tuple[tuple[str, ...], _Phrase]], phrases_max: int, characters_max: int) -> list[str]:
    """The first phrases that share no word and fit."""
    taken: set[str] = set()
    chosen: list[str] = []
    left = characters_max
    for keys, phrase in ranked:
        if len(chosen) == phrases_max:
            break
        if taken.intersection(keys) or len(phrase.surface) > left:
            continue
        taken.update(keys)
        chosen.append(phrase.surface)
        left -= len(phrase.surface) + 3
    return chosen


def _runs(found: Sequence[Word], speakers: frozenset[str]) -> Iterator[list[Word]]:
    """Words that follow one another with nothing but a space between, none of them a function word or a speaker."""
    run: list[Word] = []
    for word in found:
        topical = word.weight >= 0.6 and word.key not in speakers
        if run and (not topical or word.start > run[-1].end + 1):
            yield run
            run = []
        if topical:
            run.append(word)
    if run:
        yield run


def _count(phrases: dict[tuple[str, ...], _Phrase], part: Sequence[Word], text: str, *, opens: bool) -> None:
    if all(word.surface[0].isdigit() or len(word.surface) == 1 for word in part):
        return
    keys = tuple(word.key for word in part)
    if len(set(keys)) < len(keys):
        return
    named = all(word.named for word in part[1:]) and (part[0].named or (opens and len(part) > 1))
    phrase = phrases.get(keys)
    if phrase is None:
        surface = text[part[0].start : part[-1].end]
        if opens and not (len(part) > 1 and part[1].named) and part[0].surface[1:].islower():
            surface = surface[0].lower() + surface[1:]
        phrases[keys] = _Phrase(surface, 1, named)
        return
    phrase.uses += 1
    if named and not phrase.named:
        phrase.surface, phrase.named = text[part[0].start : part[-1].end], True


def _telling(keys: tuple[str, ...], phrase: _Phrase, mass: Mapping[str, float]) -> float:
    """Mass of the words; a run that was used once and is no name is a coincidence, and counts less."""
    total = sum(mass.get(key, 0.0) for key in keys)
    if len(keys) == 1:
        return total
    if phrase.named or phrase.uses > 1:
        return total / math.pow(len(keys), 0.6)  # else the longest name would always lead
    return total * (0.55 if len(keys) == 2 else 0.35)
