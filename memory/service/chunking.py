"""Records to items: a turn is one item, a document is cut into chunks at the ends of its paragraphs and sentences."""

from __future__ import annotations

import re
from collections.abc import Iterator

from memory.model import EventId, Item
from memory.records import Document, Record, Turn

CHARACTERS_PER_TOKEN = 4
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?…])[\"'”’)\]]*\s+|(?<=[。！？])")


def items(record: Record, *, chunk_tokens: int) -> list[Item]:
    """
    The items of a record, in order.

    Args:
        record: a turn (one item) or a document (one item a chunk; non-overlapping, as in the paper's A.2.1).
        chunk_tokens: longest chunk, in tokens of four characters.
    """
    if isinstance(record, Turn):
        return [
            Item(
                event_id=EventId(record.id),
                text=record.text,
                conversation=record.conversation,
                speaker=record.speaker,
                at=record.at,
                metadata=record.metadata,
            )
        ]
    texts = chunks(record.text, characters_max=chunk_tokens * CHARACTERS_PER_TOKEN)
    return [_chunk(record, text, index, len(texts)) for index, text in enumerate(texts)]


def _chunk(document: Document, text: str, index: int, count: int) -> Item:
    return Item(
        event_id=EventId(document.id),
        text=text,
        chunk=index,
        chunks=count,
        source=document.source,
        url=document.url,
        title=document.title,
        at=document.published_at,
        metadata=document.metadata,
    )


def chunks(text: str, *, characters_max: int) -> list[str]:
    """
    Cut a text into pieces of at most `characters_max`, of about equal length, at the strongest boundary that allows it.

    Boundaries, strongest first: paragraphs, sentences, words, characters. Nothing but white space between pieces is lost.

    Args:
        text: not blank.
        characters_max: at least 16.
    """
    text = text.strip()
    if len(text) <= characters_max:
        return [text]
    count = -(-len(text) // characters_max)
    # Equal pieces rather than full ones and a crumb: a crumb of six words is a poor leaf.
    target = len(text) / count
    pieces: list[str] = []
    current = ""
    for piece, separator in _pieces(text, characters_max):
        joined = f"{current}{separator}{piece}" if current else piece
        if current and (len(joined) > characters_max or len(joined) - target > target - len(current)):
            pieces.append(current)
            current = piece
        else:
            current = joined
    pieces.append(current)
    return pieces


def _pieces(text: str, characters_max: int) -> Iterator[tuple[str, str]]:
    """Sentences, or shorter parts of over-long ones, each with what joins it to the one before."""
    for paragraph in _PARAGRAPH.split(text):
        separator = "\n\n"
        for sentence in _SENTENCE.split(paragraph):
            stripped = sentence.strip()
            if not stripped:
                continue
            for part in _parts(stripped, characters_max):
                yield part, separator
                separator = " "


def _parts(sentence: str, characters_max: int) -> Iterator[str]:
    while len(sentence) > characters_max:
        cut = sentence.rfind(" ", characters_max // 2, characters_max)
        cut = cut if cut > 0 else characters_max
        yield sentence[:cut].rstrip()
        sentence = sentence[cut:].lstrip()
    if sentence:
        yield sentence
