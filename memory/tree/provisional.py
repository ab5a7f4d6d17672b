"""Text of a summary that no summarizer has written yet, and the short form in which a drawing shows any text."""

from __future__ import annotations

import re
from collections.abc import Sequence

PROVISIONAL_CHARACTERS_MAX = 160
"""Most characters that each of the texts gives to a provisional one."""

PHRASES = " · "
"""Separates the key phrases that an extractive summary begins with."""

_FIRST_SENTENCE = re.compile(r".{24,}?(?:[.!?…](?=\s|$)|[。！？｡؟।۔]|(?=\n))", re.DOTALL)


def provisional_text(texts: Sequence[str]) -> str:
    """
    Text of a fresh summary until a summarizer has spoken: the beginning of each text, one a line, in microseconds.

    Args:
        texts: of the leaves below it, in time order; usually two. Blank ones are left out.

    Returns:
        The first sentence of each (more of them while they are shorter than 24 characters), cut at a word's end after
        `PROVISIONAL_CHARACTERS_MAX`; empty only when all texts are blank.
    """
    return "\n".join(filter(None, (_beginning(text) for text in texts)))


def provisional_window(text: str) -> str:
    """The part of a text that its provisional text depends on, at most `2 * PROVISIONAL_CHARACTERS_MAX` characters."""
    return text.lstrip()[: 2 * PROVISIONAL_CHARACTERS_MAX]


def headline(text: str, characters: int) -> str:
    """
    One line that stands for a text where there is little room: its first line, cut at a word's end.

    Of an extractive summary that is its key phrases; those that do not fit are left out whole.

    Args:
        text: of any node.
        characters: most that are returned, 1 or more.
    """
    line = text.lstrip()[: 4 * characters + 64].partition("\n")[0].rstrip()
    phrases = line.split(PHRASES)
    while len(phrases) > 1 and len(PHRASES.join(phrases)) > characters:
        phrases.pop()
    return _cut(" ".join(PHRASES.join(phrases).split()), characters)


def without_phrases(text: str) -> str:
    """
    A summary's sentences, without the line of key phrases before them, which says nothing that they do not.

    Args:
        text: of any node; one that does not begin with key phrases (a model's, a provisional one, an item's) is returned whole.
    """
    first, _, rest = text.partition("\n")
    return rest if rest.strip() and PHRASES in first and not first.endswith((".", "!", "?", "…")) else text


def _beginning(text: str) -> str:
    """First sentence of a text, on one line."""
    window = provisional_window(text)
    match = _FIRST_SENTENCE.match(window)
    return _cut(" ".join((match.group() if match else window).split()), PROVISIONAL_CHARACTERS_MAX)


def _cut(text: str, characters: int) -> str:
    """The text, or its beginning up to a word's end with an ellipsis."""
    if len(text) <= characters:
        return text
    head = text[: max(0, characters - 1)]
    space = head.rfind(" ")
    return (head[:space] if space >= characters // 2 else head).rstrip(" ,;:-–—") + "…"
