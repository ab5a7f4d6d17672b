"""Keywords without a model: the phrases that would head a summary, and more of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from memory.adapters.embedded.extractive.summarizer import INLINE_CHARACTERS_MAX, INPUT_CHARACTERS_MAX, key_phrases
from memory.ports import keywords as ports
from memory.ports.keywords import Keywords

PHRASES_MAX = 20
CHARACTERS_MAX = 320
"""Of all phrases together: what the local embedding model reads at once, with room."""


class ExtractiveKeywords(ports.KeywordExtractor):
    """
    Phrases of one to three words, by how much their words say and in how many leaves they occur; names before plain words.

    Greetings, exclamations and the names of who speaks are no keywords. Pure, in about a millisecond a call.

    Args:
        phrases_max: most phrases of an answer.
        characters_max: most characters of them together.
    """

    def __init__(self, *, phrases_max: int = PHRASES_MAX, characters_max: int = CHARACTERS_MAX) -> None:
        self._phrases_max = phrases_max
        self._characters_max = characters_max

    @property
    def name(self) -> str:
        """`extractive`."""
        return "extractive"

    @property
    def tokens_max(self) -> int:
        """What one call reads."""
        return INPUT_CHARACTERS_MAX // 4 - 2_000

    async def keywords(self, texts: Sequence[str], *, existing: Sequence[str] = (), covered: int = 0) -> Keywords:
        """Find the keywords; never fails."""
        find = partial(
            key_phrases,
            texts,
            existing=existing,
            covered=covered,
            phrases_max=self._phrases_max,
            characters_max=self._characters_max,
        )
        inline = sum(map(len, texts)) <= INLINE_CHARACTERS_MAX
        return Keywords(phrases=find() if inline else await asyncio.to_thread(find))
