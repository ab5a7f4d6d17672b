"""Statements without a model: sentences in the first person that say something."""

from __future__ import annotations

import re

from memory.adapters.embedded.extractive.ranking import score
from memory.adapters.embedded.extractive.sentences import CHARACTERS_MAX, Sentence, clean, cut, split_sentences
from memory.ports import statements as ports
from memory.ports.statements import Statement

TEXT_CHARACTERS_MAX = 8_192
"""Of a text, what is looked at: a profile's facts are in what people say, not in what they paste."""
WORTH_MIN = 0.08
"""Below it a sentence says too little ("I agree with you" has 0.0); "I work as a nurse" has 0.1, "I live in Porto" 0.28."""
_SELF = re.compile(r"\bI\b|\b(?i:my|mine|myself|we|our)\b")


class ExtractiveStatements(ports.StatementFinder):
    """
    Sentences that speak of "I", "my", "we" or "our", are no questions, and are worth as much as a summary's sentences.

    English only: of a text in another language it finds nothing.
    """

    def statements(self, text: str) -> list[Statement]:
        """See `StatementFinder.statements`."""
        found = [
            part for part in split_sentences(clean(text[:TEXT_CHARACTERS_MAX])) if _SELF.search(part) and not part.endswith("?")
        ]
        sentences = [
            Sentence(text=cut(part, CHARACTERS_MAX), who="", when="", leaves=1.0, source=0, position=place)
            for place, part in enumerate(found)
        ]
        scored = score(sentences, speakers=frozenset())
        return [Statement(text=each.sentence.text, worth=each.quality) for each in scored if each.quality >= WORTH_MIN]
