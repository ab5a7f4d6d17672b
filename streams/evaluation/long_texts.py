"""
Formats of long texts, cut into passages: QuALITY and Natural Questions.

A text becomes a conversation of its passages, in their order, so that what stands beside a passage is known; each is cut as the
memory cuts a document's chunks. At the session level a passage counts as its text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from memory.records import Turn
from memory.retrieval.text import terms
from memory.service.chunking import chunks
from streams.evaluation.dataset import Case, Dataset, Place
from streams.evaluation.rows import Items, Row, dataset_of, optional, rows, tree_name

PASSAGE_CHARACTERS_MAX: Final = 1_024
"""256 tokens of four characters, as chunks have by default."""

_BLOCK = re.compile(r"</?(?:P|H\d|Table|Tr|Ul|Ol|Dl|Li|Dd|Dt)>", re.IGNORECASE)
_TAG = re.compile(r"</?[A-Za-z][^<>\s]*>")
_SPACES = re.compile(r"[ \t]+")

_Passages = Mapping[str, Sequence[tuple[str, str]]]
"""By text, its passages as (key, what it says)."""


def quality(folder: Path) -> Dataset:
    """
    QuALITY: `articles.jsonl` and `questions.jsonl`. One tree.

    The data marks no evidence. The passage of the article that shares most with the right option counts as it: the terms of both,
    each weighted by how few passages of the article have it. Questions whose right option shares nothing are left out.
    """
    items, passages = Items(), dict[str, Sequence[tuple[str, str]]]()
    tree = tree_name("quality", folder.resolve().name)
    for row in rows(folder / "articles.jsonl"):
        document = row.text("doc_id")
        passages[document] = tuple(_put(items, row, tree, document, row.text("text")))
    cases: list[Case] = []
    left_out = 0
    for row in rows(folder / "questions.jsonl"):
        document = row.text("doc_id")
        option = _right_option(row)
        best = _nearest(option, passages.get(document, ())) if option else None
        if best is None:
            left_out += 1
            continue
        cases.append(_case(row, tree, row.text("question"), document, frozenset({best}), option))
    return dataset_of("quality", "conversation", items, cases, left_out)


def natural_questions(folder: Path) -> Dataset:
    """
    Natural Questions on whole pages: `docs.jsonl` and `queries.jsonl`. One tree.

    Any passage of the page in which the answer stands, word for word, answers a question. Questions whose answer is nowhere in
    their page (`answer_in_doc`) are left out; one that passages cut in two stays, and cannot be found.
    """
    items, passages = Items(), dict[str, Sequence[tuple[str, str]]]()
    tree = tree_name("nq", folder.resolve().name)
    for row in rows(folder / "docs.jsonl"):
        document = row.text("doc_id")
        passages[document] = tuple(_put(items, row, tree, document, without_markup(row.text("text"))))
    cases: list[Case] = []
    left_out = 0
    for row in rows(folder / "queries.jsonl"):
        answer = optional(row.value.get("answer"))
        if answer is None or row.value.get("answer_in_doc") is False:
            left_out += 1
            continue
        document = row.text("doc_id")
        sought = _words(answer)
        holding = frozenset(key for key, text in passages.get(document, ()) if sought in _words(text))
        found = holding or frozenset({f"{document}: no passage"})
        cases.append(_case(row, tree, row.text("query"), document, found, answer))
    return dataset_of("nq", "conversation", items, cases, left_out)


def without_markup(page: str) -> str:
    """What a page says: paragraphs, rows and entries on lines of their own, other tags left out."""
    text = _SPACES.sub(" ", _TAG.sub(" ", _BLOCK.sub("\n", page)))
    return re.sub(r"\s*\n\s*\n\s*", "\n\n", text).strip()


def _put(items: Items, row: Row, tree: str, document: str, text: str) -> Iterator[tuple[str, str]]:
    for number, passage in enumerate(chunks(text, characters_max=PASSAGE_CHARACTERS_MAX)):
        key = f"{document}:{number}"
        fields = {"type": Turn.KIND, "tree": tree, "id": key, "text": passage, "conversation": document}
        items.add(row, fields, Place(turn=key, session=document))
        yield key, passage


def _case(row: Row, tree: str, text: str, document: str, turns: frozenset[str], answer: str | None) -> Case:
    return Case(
        id=optional(row.value.get("qid")) or str(row.number),
        tree=tree,
        text=text,
        category=optional(row.value.get("question_type")) or "all",
        turns=turns,
        one_suffices=True,
        sessions=frozenset({document}),
        answer=answer,
    )


def _right_option(row: Row) -> str | None:
    options = row.value.get("options")
    label = optional(row.value.get("answer_label"))
    if isinstance(options, Mapping) and label is not None:
        return optional(options.get(label))
    return optional(row.value.get("answer"))


def _nearest(option: str, passages: Sequence[tuple[str, str]]) -> str | None:
    """The passage that shares most with a text, the first of equals; None where none shares anything."""
    wanted = frozenset(terms(option))
    held = [(key, wanted & frozenset(terms(text))) for key, text in passages]
    among = Counter(term for _, shared in held for term in shared)
    weights = {term: math.log(1 + len(held) / count) for term, count in among.items()}
    scored = [(math.fsum(weights[term] for term in sorted(shared)), key) for key, shared in held if shared]
    best = max((score for score, _ in scored), default=0.0)
    return next((key for score, key in scored if score == best), None)


def _words(text: str) -> str:
    """Words one space apart, with one at both ends, so that only whole words are found in others."""
    return f" {' '.join(text.casefold().split())} "
