"""Summaries made of the texts' own sentences."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator, Sequence

from memory.adapters.embedded.extractive.headline import HEADLINE_CHARACTERS_MAX, Recurrence, headline, recurring
from memory.adapters.embedded.extractive.ranking import addressed, centroid, choose, score
from memory.adapters.embedded.extractive.sentences import (
    CHARACTERS_MAX,
    Sentence,
    clean,
    cut,
    is_speaker,
    split_label,
    split_sentences,
)
from memory.ports import summarizer as ports
from memory.ports.summarizer import Summary, SummaryRequest
from memory.tree.provisional import PHRASES

INPUT_CHARACTERS_MAX = 64_000
"""Characters read for one summary; longer texts are read to their fair share of it."""
INLINE_CHARACTERS_MAX = 6_000
"""Up to here a summary takes below 5 ms and is made on the event loop; above, in a thread."""
HEADLINE_LEAVES_MAX = 24.0
"""Most leaves that a word of the existing headline counts for: counting every one would freeze an old headline."""
HEADLINE_SHARE = 0.4
"""Share of the covered leaves that the first phrase of a headline is taken to occur in."""
EXISTING_LEAVES = 0.3
"""Leaves that an existing sentence counts for in the centroid. It stands for many, but was chosen for being like them: counting
it as many lets the first sentences support themselves for ever (measured: recall of what 64 leaves say 0.13 instead of 0.18)."""
_ENDS = (".", "!", "?", "…", "。", "！", "？")


def budget(descendants: int, *, tokens_few: int = 120, tokens_many: int = 60, many: int = 1_000) -> int:
    """
    Tokens of a summary: falls with the logarithm of the descendants, from `tokens_few` at 2 to `tokens_many` at `many`.

    The more leaves, the more abstract (MemTree, A.1.2): what cannot be reworded can only be made shorter.
    """
    share = math.log(max(2, descendants) / 2) / math.log(many / 2)
    return round(tokens_few - (tokens_few - tokens_many) * min(1.0, share))


def summarize(request: SummaryRequest) -> str:
    """
    The summary of a request: a line of key phrases, then the chosen sentences in time order, one speaker and day a line.

    A pure function of the request.
    """
    sentences, recurrences = _read(request)
    if not sentences:
        return _anything(request)
    speakers = addressed(sentences)
    scored = score(sentences, speakers=speakers)
    mass = centroid(scored, recurrences)
    characters = budget(request.descendants) * 4
    counted = [(entry.sentence.text, entry.words) for entry in scored]
    topics = PHRASES.join(headline(counted, mass, recurrences, speakers=speakers)) if len(scored) > 1 else ""
    chosen = choose(scored, mass, characters=characters - len(topics))
    lines = [topics] if PHRASES in topics else []
    lines.extend(_lines(chosen, characters - len(topics)))
    return "\n".join(lines)


def key_phrases(
    texts: Sequence[str], *, existing: Sequence[str], covered: int, phrases_max: int, characters_max: int
) -> tuple[str, ...]:
    """
    Phrases that tell what texts are about, found as those that head a summary are, and as bounded in their input.

    A pure function.

    Args:
        texts: new ones, oldest first, at least one.
        existing: phrases so far, most telling first.
        covered: leaves behind those.
        phrases_max: most phrases.
        characters_max: most characters of all together.
    """
    sentences, _ = _read(SummaryRequest(existing="", new=tuple(texts), descendants=covered + len(texts), covered=0))
    leaves = min(HEADLINE_LEAVES_MAX, HEADLINE_SHARE * covered)
    recurrences = list(recurring([clean(phrase) for phrase in existing], leaves, phrases_max=phrases_max))
    speakers = addressed(sentences)
    scored = score(sentences, speakers=speakers)
    counted = [(entry.sentence.text, entry.words) for entry in scored]
    mass = centroid(scored, recurrences)
    return tuple(headline(counted, mass, recurrences, speakers=speakers, phrases_max=phrases_max, characters_max=characters_max))


def _split_headline(text: str) -> tuple[list[str], str]:
    """Phrases of the first line, when it is one of ours, and the rest."""
    first, newline, rest = text.partition("\n")
    if newline and PHRASES in first and len(first) <= 2 * HEADLINE_CHARACTERS_MAX and not first.endswith((".", "!", "?")):
        return first.split(PHRASES), rest
    return [], text


def _read(request: SummaryRequest) -> tuple[list[Sentence], list[Recurrence]]:
    """The sentences of a request, the existing ones first, and what its headlines say of the leaves behind them."""
    share = INPUT_CHARACTERS_MAX // (len(request.new) + 1)
    sentences: list[Sentence] = []
    recurrences: list[Recurrence] = []
    for source, text in enumerate((request.existing, *request.new), start=-1):
        phrases, rest = _split_headline(clean(text[:share]))
        covered = HEADLINE_SHARE * request.covered if source < 0 else 1.0
        recurrences.extend(recurring(phrases, min(HEADLINE_LEAVES_MAX, covered)))
        leaves = EXISTING_LEAVES if phrases and source < 0 else 1.0
        # Lines of a summary have labels of their own; those of an item belong to the item.
        for part in rest.split("\n") if phrases or source < 0 else (rest,):
            for who, when, sentence in _labelled(part):
                position = len(sentences)
                sentences.append(Sentence(text=sentence, who=who, when=when, leaves=leaves, source=source, position=position))
    return sentences, recurrences


def _labelled(text: str) -> Iterator[tuple[str, str, str]]:
    """Sentences of one text, each with who and when. A title is the first of them."""
    who, when, rest = split_label(text)
    if who and not is_speaker(who):
        yield "", when, cut(who if who.endswith(_ENDS) else f"{who}.", CHARACTERS_MAX)
        who = ""
    for sentence in split_sentences(rest):
        yield who, when, cut(sentence, CHARACTERS_MAX)


def _lines(chosen: Sequence[Sentence], characters: int) -> Iterator[str]:
    """Chosen sentences in time order; those that follow one another with one label share a line."""
    dated = all(sentence.when for sentence in chosen)
    ordered = sorted(chosen, key=lambda sentence: (sentence.when if dated else "", sentence.position))
    label, line = "", ""
    for sentence in ordered:
        text = cut(sentence.text, max(20, characters - len(sentence.label)))
        if line and sentence.label == label:
            line = f"{line}{text}" if line.endswith(("。", "！", "？")) else f"{line} {text}"
            continue
        if line:
            yield label + line
        label, line = sentence.label, text
    yield label + line


def _anything(request: SummaryRequest) -> str:
    """Of texts without a single sentence (blank ones): what is there, or a dash."""
    texts = (clean(text[: 4 * CHARACTERS_MAX]).strip() for text in (request.existing, *request.new))
    return next((cut(text, CHARACTERS_MAX) for text in texts if text), "–")


class ExtractiveSummarizer(ports.Summarizer):
    """
    Summaries made of the texts' own sentences, in about a millisecond and without a model.

    Sentences near the centroid of the words are chosen, unlike one another (MMR), within a budget that shrinks as descendants
    grow. The existing summary competes with the new texts by the leaves that each stands for. Names, dates and numbers count
    more than plain words, small talk least. The first line holds key phrases, so that a drawn tree shows topics.
    """

    @property
    def name(self) -> str:
        """`extractive`."""
        return "extractive"

    @property
    def vector_from_text(self) -> bool:
        """False: the mean of the leaves says more than a few of their sentences, and costs nothing."""
        return False

    @property
    def tokens_max(self) -> int:
        """What one call reads: `INPUT_CHARACTERS_MAX` with room for the existing text."""
        return INPUT_CHARACTERS_MAX // 4 - 2_000

    async def summarize(self, request: SummaryRequest) -> Summary:
        """Make one summary; never fails, never empty."""
        size = len(request.existing) + sum(map(len, request.new))
        text = summarize(request) if size <= INLINE_CHARACTERS_MAX else await asyncio.to_thread(summarize, request)
        return Summary(text=text)
