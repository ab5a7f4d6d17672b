"""
How much of a text is in another, by words; pure.

As the HAT slides define their metrics ("Metrics": F1, BLEU, DISTINCT), over words as ParlAI normalizes them: lower case, without
punctuation and without the articles a, an, the. ROUGE, which MemGAS gives beside them (section 3.1), is over the same words.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

_WORD = re.compile(r"[^\W_]+")
_ARTICLES = frozenset({"a", "an", "the"})


def words(text: str) -> list[str]:
    """Normalized words."""
    return [word for word in _WORD.findall(text.lower().replace("'", "").replace("’", "")) if word not in _ARTICLES]


def f1(candidate: Sequence[str], gold: Sequence[str]) -> float:
    """Harmonic mean of two shares, in [0, 1]: of the candidate's words that are in the gold text, and the other way round."""
    common = sum((Counter(candidate) & Counter(gold)).values())
    return 2 * common / (len(candidate) + len(gold)) if common else 0.0


def bleu(candidate: Sequence[str], gold: Sequence[str], order: int) -> float:
    """
    BLEU of one text against one: brevity penalty times the geometric mean of the modified precisions up to `order`, in [0, 1].

    Papineni et al. 2002, without smoothing: 0 where a length of n-gram has no match.
    """
    logs = 0.0
    for length in range(1, order + 1):
        said, wanted = _grams(candidate, length), _grams(gold, length)
        common = sum((said & wanted).values())
        if not common:
            return 0.0
        logs += math.log(common / sum(said.values())) / order
    brevity = 1.0 if len(candidate) > len(gold) else math.exp(1 - len(gold) / len(candidate))
    return brevity * math.exp(logs)


def distinct(candidate: Sequence[str], length: int) -> float:
    """DISTINCT-n: the share of n-grams that are different, in [0, 1]; 0 for a text that has none."""
    grams = _grams(candidate, length)
    return len(grams) / sum(grams.values()) if grams else 0.0


def rouge(candidate: Sequence[str], gold: Sequence[str], length: int) -> float:
    """ROUGE-n: the F1 of n-grams that both have, as often as both have them, in [0, 1] (Lin 2004)."""
    said, wanted = _grams(candidate, length), _grams(gold, length)
    common = sum((said & wanted).values())
    return 2 * common / (sum(said.values()) + sum(wanted.values())) if common else 0.0


def rouge_l(candidate: Sequence[str], gold: Sequence[str]) -> float:
    """ROUGE-L: the F1 of the longest words that both have in the same order, gaps allowed, in [0, 1] (Lin 2004)."""
    lengths = [0] * (len(gold) + 1)
    for word in candidate:
        before = 0
        for place, other in enumerate(gold, 1):
            above = lengths[place]
            lengths[place] = before + 1 if word == other else max(above, lengths[place - 1])
            before = above
    return 2 * lengths[-1] / (len(candidate) + len(gold)) if lengths[-1] else 0.0


def _grams(text: Sequence[str], length: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(text[start : start + length]) for start in range(len(text) - length + 1))
