"""Texts to sentences that know who said them and when."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

CHARACTERS_MAX = 240
"""A longer sentence is cut: a summary has room for few, and one must not take it all."""

_DATED = re.compile(r"(?P<who>[^\n]{0,300}?) ?[(\[](?P<when>\d{4}-\d\d-\d\d)[^)\]\n]{0,30}[)\]]:\s+")
"""`Ana (2025-09-14): `, `(2025-09-14): `, `Council approves tunnel: what now (2025-10-02): `."""
_UNDATED = re.compile(r"(?P<who>[^\s:()\[\]][^\n:()\[\]]{0,59}):\s+")
"""`Ana: `."""
_BREAK = re.compile(r"(?<=[.!?…])[\"'”’»)\]*_]*\s+|(?<=[。！？｡؟।۔])[」』”’）]*\s*|\s*\n\s*")
_ABBREVIATION = re.compile(
    r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|No|Inc|Ltd|Co|Corp|vs|etc|e\.g|i\.e|a\.m|p\.m|approx|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?"
    r"|Oct|Nov|Dec|bzw|z\.B|ca|Sra?|M|Mme)\.$"
)
_BLANKS = re.compile(r"[^\S\n]+")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sentence:
    """One sentence of one text."""

    text: str
    """Without line breaks, at most `CHARACTERS_MAX` characters."""
    who: str
    """Who said it, as the text was labelled; may be empty."""
    when: str
    """Day it was said, `YYYY-MM-DD`; may be empty."""
    leaves: float
    """How many leaves it speaks for."""
    source: int
    """Which of the texts it comes from; -1 for the existing summary."""
    position: int
    """Order among all sentences: the existing ones first, then the new in time order."""

    @property
    def label(self) -> str:
        """What goes before it in the summary."""
        if self.who and self.when:
            return f"{self.who} ({self.when}): "
        return f"{self.who}: " if self.who else f"({self.when}): " if self.when else ""


def clean(text: str) -> str:
    """The text without control characters and lone surrogates, which no store and no terminal takes."""
    return _UNPRINTABLE.sub("", text)


def split_label(text: str) -> tuple[str, str, str]:
    """Who (or a title), when, and the rest of a labelled text; the first two are empty where it has none."""
    if match := _DATED.match(text):
        return match["who"].strip(), match["when"], text[match.end() :]
    match = _UNDATED.match(text)
    if match is None or not is_speaker(match["who"]):
        return "", "", text  # a clause that ends in a colon
    return match["who"].strip(), "", text[match.end() :]


def is_speaker(who: str) -> bool:
    """Whether a label names somebody (or a paper) rather than being a title: one word, or up to three capitalised ones."""
    parts = who.split()
    return len(parts) == 1 or (len(parts) <= 3 and all(part[0].isupper() or not part[0].isalpha() for part in parts))


def split_sentences(text: str) -> Iterator[str]:
    """Sentences of a text, at ends of sentences of any script and at line breaks; abbreviations and initials do not end one."""
    pending = ""
    for piece in _pieces(text):
        joined = f"{pending} {piece}" if pending else piece
        if _ABBREVIATION.search(joined[-12:]):
            pending = joined
            continue
        pending = ""
        yield joined
    if pending:
        yield pending


def _pieces(text: str) -> Iterator[str]:
    """Pieces between breaks, white space folded; closing quotes stay with what they close."""
    text = _BLANKS.sub(" ", text)
    start = 0
    for match in _BREAK.finditer(text):
        closing = match.group().rstrip()
        piece = (text[start : match.start()] + closing).strip()
        if piece:
            yield piece
        start = match.end()
    piece = text[start:].strip()
    if piece:
        yield piece


def cut(text: str, characters: int) -> str:
    """The text, or its beginning up to a word's end with an ellipsis, at most `characters` long."""
    if len(text) <= characters:
        return text
    head = text[: max(1, characters - 1)]
    space = head.rfind(" ")
    if space > characters // 2:
        head = head[:space]
    return head.rstrip(" ,;:-–—") + "…"
