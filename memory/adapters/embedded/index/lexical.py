"""
Postings of one segment, and BM25 over many (Robertson and Zaragoza 2009, with Lucene's never negative idf).

Fields that can be filtered by are postings too, under terms that no tokenizer makes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Tokenize = Callable[[str], list[str]]
"""A text's terms in order, repetitions included; the same for nodes and queries."""

COUNT_MAX = 65_535
"""Occurrences of a term in one text are counted up to this."""
FIELD = "\x00"
"""First character of a field's term; terms of texts that start with it are dropped."""

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    """Lower-case words, without stemming: what stands in when no tokenizer is given."""
    return _WORD.findall(text.casefold())


def field_term(name: str, value: str) -> str:
    """The term under which rows with this value of a field are posted."""
    return f"{FIELD}{len(name)}:{name}{value}"


@dataclass(frozen=True, slots=True)
class Postings:
    """Term → rows, in columns."""

    lookup: dict[str, int]
    """Term → number t; insertion order is numbering."""
    starts: NDArray[np.int64]
    """(terms + 1,): the postings of t are at starts[t]:starts[t + 1]."""
    rows: NDArray[np.int32]
    """Rows within the segment, ascending within a term."""
    counts: NDArray[np.uint16]
    """Occurrences of the term in the row."""

    def span(self, term: str) -> tuple[int, int] | None:
        """Where the term's postings are."""
        number = self.lookup.get(term)
        return None if number is None else (int(self.starts[number]), int(self.starts[number + 1]))


def build(rows: Iterable[tuple[Sequence[str], Sequence[str]]]) -> tuple[Postings, NDArray[np.int32]]:
    """
    Postings of rows given as (terms of the text, terms of the fields).

    Returns:
        The postings, and (n,) int32 lengths of the texts in terms.
    """
    lookup: dict[str, int] = {}
    numbers: list[int] = []
    sizes: list[int] = []
    lengths: list[int] = []
    for terms, fields in rows:
        kept = [term for term in terms if not term.startswith(FIELD)]
        lengths.append(len(kept))
        kept.extend(fields)
        sizes.append(len(kept))
        numbers.extend([lookup.setdefault(term, len(lookup)) for term in kept])
    row_of = np.repeat(np.arange(len(sizes), dtype=np.int64), sizes)
    keys, counts = np.unique(np.asarray(numbers, np.int64) * max(len(sizes), 1) + row_of, return_counts=True)
    term_of, row_of = np.divmod(keys, max(len(sizes), 1))
    starts = np.zeros(len(lookup) + 1, np.int64)
    np.cumsum(np.bincount(term_of, minlength=len(lookup)), out=starts[1:])
    postings = Postings(lookup, starts, row_of.astype(np.int32), np.minimum(counts, COUNT_MAX).astype(np.uint16))
    return postings, np.asarray(lengths, np.int32)


def combine(parts: Sequence[tuple[Postings, NDArray[np.int32]]]) -> Postings:
    """
    One postings of several; each part comes with (n,) int32 new row numbers of its rows, -1 for a row to leave out.

    New numbers ascend within a part and from part to part.
    """
    lookup: dict[str, int] = {}
    kept_parts: list[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32], NDArray[np.uint16]]] = []
    for part, row_map in parts:
        numbers = np.fromiter((lookup.setdefault(term, len(lookup)) for term in part.lookup), np.int64, len(part.lookup))
        rows, counts, sizes = row_map[part.rows], part.counts, np.diff(part.starts)
        if len(rows) and rows.min() < 0:
            kept = rows >= 0
            sizes = np.bincount(np.repeat(np.arange(len(sizes)), sizes)[kept], minlength=len(sizes))
            rows, counts = rows[kept], counts[kept]
        kept_parts.append((numbers, sizes, rows, counts))
    totals = np.zeros(len(lookup), np.int64)
    for numbers, sizes, _, _ in kept_parts:
        totals[numbers] += sizes
    starts = np.zeros(len(lookup) + 1, np.int64)
    np.cumsum(totals, out=starts[1:])
    # Every part's run of a term goes to where the runs of earlier parts end: a counting sort whose input is sorted in runs.
    all_rows, all_counts = np.empty(starts[-1], np.int32), np.empty(starts[-1], np.uint16)
    cursor = starts[:-1].copy()
    for numbers, sizes, rows, counts in kept_parts:
        places = np.arange(len(rows)) + np.repeat(cursor[numbers] - (np.cumsum(sizes) - sizes), sizes)
        all_rows[places], all_counts[places] = rows, counts
        cursor[numbers] += sizes
    used = totals > 0
    if not used.all():
        names = [term for term, is_used in zip(lookup, used.tolist(), strict=True) if is_used]
        lookup, starts = {term: number for number, term in enumerate(names)}, starts[np.concatenate(([True], used))]
    return Postings(lookup, starts, all_rows, all_counts)


def idf(documents: int, holding: int) -> float:
    """Inverse document frequency of a term that `holding` of `documents` texts contain; above 0."""
    return math.log(1.0 + (documents - holding + 0.5) / (holding + 0.5))
