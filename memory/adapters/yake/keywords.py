"""Keywords by the library yake."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

from memory.errors import SettingError
from memory.ports import keywords as ports
from memory.ports.keywords import Keywords

LANGUAGES: Final = (
    *("ar", "bg", "br", "cz", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "hi", "hr", "hu", "hy", "id", "it", "ja", "lt"),
    *("lv", "nl", "no", "pl", "pt", "ro", "ru", "sk", "sl", "sv", "tr", "uk", "zh"),
)
"""Those that the library has stop words of, as it calls them."""
PHRASES_MAX: Final = 20
PHRASE_CHARACTERS_MAX: Final = 60
TOKENS_MAX: Final = 4_000
"""The library takes a tenth of a second for 10,000 characters."""
_WORDS: Final = 2
"""Of a phrase at most; three find no more (decision 0014)."""
_SPEAKER: Final = re.compile(r"\A[^:\n]{1,80}:\s+")


class YakeKeywords(ports.KeywordExtractor):
    """
    Phrases of one or two words, by where and how often their words stand in the text (Campos et al. 2020, "YAKE!").

    Needs no model, and no list of words but a language's stop words. Exclamations and names that chats are full of count as
    keywords, which is why it is not the default (decision 0014). One thread calls the library, so that no event loop waits.

    Args:
        library: a `yake.KeywordExtractor`.
        language: of its stop words; for the name.
    """

    def __init__(self, library: Any, language: str) -> None:  # the library has no types
        self._library = library
        self._language = language
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="yake")

    @classmethod
    def open(cls, language: str = "en") -> Self:
        """
        With the stop words of a language.

        Args:
            language: one of `LANGUAGES`.

        Raises:
            SettingError: the library is missing, or it cannot load.
        """
        try:
            import yake  # noqa: PLC0415  # optional
        except ImportError as error:
            raise SettingError(
                f"BANYAN_KEYWORDS=yake needs its library: `pip install 'banyan-memory[memgas]'` or `pip install yake` ({error})."
            ) from error
        return cls(yake.KeywordExtractor(lan=language, n=_WORDS, top=PHRASES_MAX), language)

    @property
    def name(self) -> str:
        """Scheme and language, e.g. `yake:en`."""
        return f"yake:{self._language}"

    @property
    def tokens_max(self) -> int:
        """What one call reads."""
        return TOKENS_MAX

    async def keywords(self, texts: Sequence[str], *, existing: Sequence[str] = (), covered: int = 0) -> Keywords:
        """
        Find the keywords; never fails.

        Of phrases so far and new ones as many are kept as they stand for leaves, phrases that are both before all others.
        """
        text = "\n".join(_SPEAKER.sub("", each) for each in texts)[: TOKENS_MAX * 4]
        found = await asyncio.get_running_loop().run_in_executor(self._pool, self._library.extract_keywords, text)
        fresh = _told_apart(" ".join(str(phrase).replace(",", " ").split()) for phrase, _ in found)
        return Keywords(phrases=_merged(fresh, _told_apart(existing), new=len(texts), covered=covered))

    async def close(self) -> None:
        """End the thread."""
        self._pool.shutdown(wait=False)


def _told_apart(phrases: Any) -> dict[str, str]:
    """Phrases that are not too long, each once whatever its case, by that form of it."""
    apart: dict[str, str] = {}
    for phrase in phrases:
        if any(map(str.isalnum, phrase)) and len(phrase) <= PHRASE_CHARACTERS_MAX:
            apart.setdefault(phrase.casefold(), phrase)
    return apart


def _merged(fresh: dict[str, str], existing: dict[str, str], *, new: int, covered: int) -> tuple[str, ...]:
    """Those of both first; then of either as many as their share of the leaves, the most telling first."""
    both = [phrase for form, phrase in existing.items() if form in fresh]
    old = [phrase for form, phrase in existing.items() if form not in fresh]
    only_new = [phrase for form, phrase in fresh.items() if form not in existing]
    room = max(0, PHRASES_MAX - len(both))
    newer = max(1, round(room * new / (new + covered)))
    newer = max(newer, room - len(old))
    return tuple([*both, *old[: max(0, room - newer)], *only_new[:newer]][:PHRASES_MAX])
