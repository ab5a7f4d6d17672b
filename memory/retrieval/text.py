"""The texts an item is embedded as, indexed as, and shown to the summarizer as; and the terms that BM25 counts."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Final

import Stemmer

from memory.model import Item

KEY: Final = "\x1e"
"""Encloses a key in an indexed text: what stands between two of them is one term, kept as it is. ASCII's record separator."""

MONTHS: Final = (
    "January", "February", "March", "April", "May", "June",
    "July", "August", "September", "October", "November", "December",
)  # fmt: skip

_STOPWORDS = """
    a about an and are as at be been being but by can could did do does doing for from had has have having he her hers him his how i
    if in into is it its just me my no not of on or our she should so some such than that the their them then there these they this
    those to too up very was we were what when where which who whom whose why will with would you your
"""
STOPWORDS: Final = frozenset(_STOPWORDS.split())
"""Dropped from texts and queries alike. Question words among them: kept, they cost 6 points of recall (decision 0003)."""

_WORD: Final = re.compile(r"[\w\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670\u0900-\u0eff\u1000-\u109f\u1780-\u17ff]+")
"""Letters, digits and underscores of any script, with the marks that Python does not count among a script's letters."""
_UNSPACED: Final = re.compile(
    r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+"
)
"""Scripts written without spaces between words (Thai, Lao, Burmese, Khmer, kana, Han), and Hangul with its attached particles."""
_APOSTROPHE: Final = re.compile(r"(?<=\w)['’](?:s\b)?")
_ACCENTS: Final = re.compile(r"[\u0300-\u036f]")
_TRAILING_PARENTHESIS: Final = re.compile(r"\s*\([^()]*\)\s*$")
_TITLE_WORDS_MAX: Final = 8


def embedded_text(item: Item) -> str:
    """What the embedder is given for an item."""
    return f"{item.speaker}: {item.text}" if item.speaker else f"{item.title}. {item.text}" if item.title else item.text


def lexical_text(item: Item) -> str:
    """
    What BM25 is computed over for a leaf: its speaker, title, source and text, the date in words, and its title as a key.

    The date lets "in May 2023" find what was said then. The title's key lets a mention of the title find the document; of a
    document in several chunks only the first has it.
    """
    parts = [item.speaker, item.title, item.source, item.text]
    if item.at is not None:
        parts.append(f"{item.at.day} {MONTHS[item.at.month - 1]} {item.at.year}")
    key = title_key(item.title) if item.title and item.chunk == 0 else ""
    text = "\n".join(part.replace(KEY, " ") for part in parts if part)
    return f"{text}\n{key}" if key else text


def attributed_text(item: Item) -> str:
    """What the summarizer is given for a leaf: who said it and when, then the text."""
    who = item.speaker or item.title or item.source or ""
    when = f" ({item.at.date()})" if item.at else ""
    return f"{who}{when}: {item.text}" if who or when else item.text


def terms(text: str) -> list[str]:
    """
    The terms of an indexed text or a query, in order, repetitions included; pure and safe in any thread.

    Lower-cased words without accents, stemmed as English, without stop words. Scripts that do not space their words give pairs of
    neighbouring characters. Keys (`title_key`) stay whole.
    """
    found: list[str] = []
    for index, part in enumerate(text.split(KEY)):
        if index % 2:
            found.append(f"{KEY}{part}{KEY}")
        else:
            found.extend(_words(part))
    return found


def title_key(title: str) -> str:
    """The key of a title, enclosed as `lexical_text` wants it: its words in lower case, without a trailing parenthesis; or ""."""
    words = _keywords(_TRAILING_PARENTHESIS.sub("", title))
    return _key(words) if 0 < len(words) <= _TITLE_WORDS_MAX else ""


def mention_keys(text: str, *, capitals: bool) -> dict[str, None]:
    """
    Keys of all titles that may be named in a text: its runs of up to eight words, in order of appearance.

    Args:
        text: any.
        capitals: only runs that begin with a capital or a digit, as names do in prose. False for questions, which people write
            in lower case.
    """
    clean = text.replace(KEY, " ")
    raw = [match.group() for match in _WORD.finditer(clean)]
    words = [_keyword(word) for word in raw]
    keys: dict[str, None] = {}
    for start, word in enumerate(raw):
        if capitals and not (word[0].isupper() or word[0].isdigit()):
            continue
        for end in range(start + 1, min(start + _TITLE_WORDS_MAX, len(words)) + 1):
            keys[_key(words[start:end])] = None
    return keys


def plain(text: str) -> str:
    """The text without anything that `terms` would take for a key."""
    return text.replace(KEY, " ")


def _words(text: str) -> list[str]:
    words: list[str] = []
    for match in _WORD.finditer(_APOSTROPHE.sub("", _folded(text))):
        word = match.group()
        if word.isascii() or not _UNSPACED.search(word):
            if word not in STOPWORDS:
                words.append(word)
        else:
            words.extend(_pairs(word))
    # A stemmer must not be used by two threads at once; making one takes less than half a microsecond.
    stemmed: list[str] = Stemmer.Stemmer("english", 0).stemWords(words)
    return stemmed


def _pairs(word: str) -> Iterable[str]:
    """Runs of unspaced characters as overlapping pairs (alone when there is but one), other runs as they are."""
    end = 0
    for match in _UNSPACED.finditer(word):
        if match.start() > end:
            yield word[end : match.start()]
        run, end = match.group(), match.end()
        yield from [run[index : index + 2] for index in range(len(run) - 1)] or [run]
    if end < len(word):
        yield word[end:]


def _folded(text: str) -> str:
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", unicodedata.normalize("NFKD", text))).casefold()


def _keywords(title: str) -> list[str]:
    return [_keyword(match.group()) for match in _WORD.finditer(plain(title))]


def _keyword(word: str) -> str:
    return _folded(word).replace(" ", "")


def _key(words: Iterable[str]) -> str:
    return f"{KEY}{' '.join(words)}{KEY}"
