"""Texts of MemGAS' units that are no summaries: a session word for word, and its keywords (equations 1 and 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

SEPARATOR = ", "
"""Between keywords."""
NO_KEYWORDS = "–"
"""Text of a unit whose turns hold none: no text is empty."""
_BLANKS = re.compile(r"\s+")
_SEPARATING = re.compile(r",(?=\s|$)")


def transcript(existing: str, new: Sequence[str], *, characters_max: int) -> str:
    """
    Items in the order in which they were committed, one after the other, a line each where they have no line breaks.

    Args:
        existing: the items so far; "" for none.
        new: those that follow, with their speakers and dates.
        characters_max: most characters, at least 1. What is over is cut off, and an ellipsis tells it; a text that is cut off once
            stays as it is.
    """
    text = "\n".join((existing, *new) if existing else new)
    return text if len(text) <= characters_max else text[: characters_max - 1] + "…"


def joined(phrases: Iterable[str], *, characters_max: int) -> str:
    """
    The text of a keyword unit: phrases in their order, each once whatever its case, as many whole ones as there is room for.

    Args:
        phrases: most telling first; blank ones, and what would part a phrase in two, are left out.
        characters_max: most characters.
    """
    found: dict[str, str] = {}
    left = characters_max + len(SEPARATOR)
    for phrase in phrases:
        kept = _BLANKS.sub(" ", _SEPARATING.sub("", phrase)).strip()
        size = len(kept) + len(SEPARATOR)
        if kept and kept.casefold() not in found and size <= left:
            found[kept.casefold()] = kept
            left -= size
    return SEPARATOR.join(found.values()) or NO_KEYWORDS


def parted(text: str) -> tuple[str, ...]:
    """The phrases of such a text."""
    return tuple(text.split(SEPARATOR)) if text not in {"", NO_KEYWORDS} else ()
