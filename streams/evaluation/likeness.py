"""
How much answers say what the right ones say.

By the measures that the papers give, beside a judge's or instead of one (HAT, slides "Metrics"; MemGAS, section 3.1).
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module, util
from typing import Final

from streams.evaluation import overlap

MEASURES: Final = ("f1", "bleu_1", "bleu_2", "bleu_4", "rouge_1", "rouge_2", "rouge_l", "distinct_1", "distinct_2")
BERTSCORE: Final = "bertscore"
ANSWER_WORDS_MAX: Final = 1_000
"""What is compared of a text: the time of ROUGE-L grows with the product of both lengths."""
_LIBRARY: Final = "bert_score"


def likeness(pairs: Sequence[tuple[str, str]]) -> dict[str, float]:
    """
    Means over answers, in [0, 1], of `MEASURES`; and of BERTScore's F1 where the library bert-score is installed.

    Takes as long as that library's model does; without it a millisecond an answer.

    Args:
        pairs: an answer and the right one each.

    Returns:
        Empty for no pairs.
    """
    if not pairs:
        return {}
    rows = [of(said, right) for said, right in pairs]
    means = {name: sum(row[name] for row in rows) / len(rows) for name in MEASURES}
    return means | ({BERTSCORE: _bertscore(pairs)} if util.find_spec(_LIBRARY) is not None else {})


def of(said: str, right: str) -> dict[str, float]:
    """`MEASURES` of one answer."""
    candidate, gold = overlap.words(said)[:ANSWER_WORDS_MAX], overlap.words(right)[:ANSWER_WORDS_MAX]
    both = bool(candidate and gold)
    return {
        "f1": overlap.f1(candidate, gold),
        **{f"bleu_{order}": overlap.bleu(candidate, gold, order) if both else 0.0 for order in (1, 2, 4)},
        **{f"rouge_{length}": overlap.rouge(candidate, gold, length) for length in (1, 2)},
        "rouge_l": overlap.rouge_l(candidate, gold),
        **{f"distinct_{length}": overlap.distinct(candidate, length) for length in (1, 2)},
    }


def _bertscore(pairs: Sequence[tuple[str, str]]) -> float:
    """Mean F1 with the library's own model for English; not rescaled."""
    _, _, found = import_module(_LIBRARY).score([said for said, _ in pairs], [right for _, right in pairs], lang="en")
    return float(found.mean())
