"""The formats that can be read, each from a folder of JSON lines in UTF-8. Missing optional fields are taken as absent."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from memory.records import Document, Turn
from streams.evaluation import sessions
from streams.evaluation.dataset import Case, Dataset, DatasetError, Place
from streams.evaluation.long_texts import natural_questions, quality
from streams.evaluation.rows import Items, Row, dataset_of, joined, label, optional, rows, strings, time_of, tree_name

FILES: Final[Mapping[str, tuple[str, str]]] = {
    "locomo": ("conversations.jsonl", "qa.jsonl"),
    "multihoprag": ("facts.jsonl", "queries.jsonl"),
    "passages": ("corpus.jsonl", "queries.jsonl"),
    "quality": ("articles.jsonl", "questions.jsonl"),
    "nq": ("docs.jsonl", "queries.jsonl"),
}
"""What each format's folder holds: the items, then the questions."""

_SESSION = re.compile(r"^\D*(\d+)\s*:")
_SPOKEN_TIME = "%I:%M %p on %d %B, %Y"  # 1:56 pm on 8 May, 2023


def load(name: str, folder: Path) -> Dataset:
    """
    Read a data set.

    Args:
        name: one of `FILES`.
        folder: where its files are.

    Raises:
        DatasetError: no such folder or file, a line that cannot be used, or nothing to ask.
    """
    _check_folder(name, folder)
    dataset = _LOADERS[name](folder)
    if not dataset.cases:
        raise DatasetError(f"{folder / FILES[name][1]} has no question with evidence")
    return dataset


def _locomo(folder: Path) -> Dataset:
    """One tree a conversation; a turn's session is the number before the colon of its id."""
    items = Items()
    trees: dict[str, str] = {}
    for row in rows(folder / "conversations.jsonl"):
        sample = row.text("sample_id")
        tree = trees.setdefault(sample, tree_name("locomo", sample))
        for session in row.list("sessions", needed=False):
            at = _session_time(session.value)
            for turn in session.list("turns", needed=False):
                dia_id = turn.text("dia_id")
                key = _session_of(dia_id)
                fields = {
                    "type": Turn.KIND,
                    "tree": tree,
                    "id": dia_id,
                    "text": _said(turn),
                    "conversation": key,
                    "speaker": label(turn.value.get("speaker")),
                    "at": at,
                }
                items.add(turn, fields, Place(turn=dia_id, session=key))
    cases: list[Case] = []
    left_out = 0
    for row in rows(folder / "qa.jsonl"):
        evidence = frozenset(strings(row.value.get("evidence")))
        if not evidence:
            left_out += 1
            continue
        sample = row.text("sample_id")
        cases.append(
            _case(
                row,
                trees.get(sample, ""),
                row.text("question"),
                ("category_name", "category"),
                turns=evidence,
                sessions=frozenset(map(_session_of, evidence)),
            )
        )
    return dataset_of("locomo", "conversation", items, cases, left_out)


def _multihoprag(folder: Path) -> Dataset:
    """One tree of facts; questions name theirs by its text. At the session level a fact counts as its article."""
    items = Items()
    tree = tree_name("multihoprag", folder.resolve().name)
    first: dict[str, str] = {}
    for row in rows(folder / "facts.jsonl"):
        fact = row.text("fact")
        item = optional(row.value.get("fact_id")) or f"line-{row.number}"
        turn = first.setdefault(joined(fact), item)
        fields = {
            "type": Document.KIND,
            "tree": tree,
            "id": item,
            "text": fact,
            "title": label(row.value.get("title")),
            "source": label(row.value.get("source")),
            "url": optional(row.value.get("url")),
            "published_at": time_of(row.value.get("published_at")),
            "metadata": {name: value for name in ("author", "category") if (value := optional(row.value.get(name)))},
        }
        items.add(row, fields, Place(turn=turn, session=_article(row.value, turn)))
    cases: list[Case] = []
    left_out = 0
    for row in rows(folder / "queries.jsonl"):
        evidence = row.list("evidence_list", needed=False)
        if not evidence:
            left_out += 1
            continue
        keys = [(first.get(joined(each.text("fact")), f"no such fact: {each.text('fact')}"), each.value) for each in evidence]
        cases.append(
            _case(
                row,
                tree,
                row.text("query"),
                ("question_type",),
                turns=frozenset(key for key, _ in keys),
                sessions=frozenset(_evidence_article(items, tree, key, value) for key, value in keys),
            )
        )
    return dataset_of("multihoprag", "document", items, cases, left_out)


def _passages(folder: Path) -> Dataset:
    """One tree of passages, each a document."""
    items = Items()
    tree = tree_name("passages", folder.resolve().name)
    for row in rows(folder / "corpus.jsonl"):
        item = row.text("doc_id")
        title = label(row.value.get("title"))
        text = optional(row.value.get("text")) or title or ""
        fields = {"type": Document.KIND, "tree": tree, "id": item, "text": text, "title": title}
        items.add(row, fields, Place(turn=item, session=item))
    cases: list[Case] = []
    left_out = 0
    for row in rows(folder / "queries.jsonl"):
        relevant = frozenset(strings(row.value.get("relevant")))
        if not relevant:
            left_out += 1
            continue
        cases.append(_case(row, tree, row.text("query"), ("question_type", "type"), turns=relevant, sessions=relevant))
    return dataset_of("passages", "document", items, cases, left_out)


def _case(row: Row, tree: str, text: str, kinds: tuple[str, ...], *, turns: frozenset[str], sessions: frozenset[str]) -> Case:
    """A question; its category is the first of `kinds` that the row has."""
    return Case(
        id=optional(row.value.get("qid")) or str(row.number),
        tree=tree,
        text=text,
        category=next((said for kind in kinds if (said := optional(row.value.get(kind)))), "all"),
        turns=turns,
        sessions=sessions,
        answer=optional(row.value.get("answer")),
    )


def formats_of(folder: Path) -> list[str]:
    """Formats whose files a folder has, `msc` among them."""
    found = [each for each, files in FILES.items() if all((folder / file).is_file() for file in files)]
    return [*found, *(["msc"] if (folder / sessions.FILE).is_file() else [])]


def _check_folder(name: str, folder: Path) -> None:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder; {name} is a folder with {' and '.join(FILES[name])}")
    missing = [file for file in FILES[name] if not (folder / file).is_file()]
    if missing:
        other = formats_of(folder)
        hint = f"; it looks like {other[0]}" if other else ""
        raise DatasetError(f"{folder} has no {' and no '.join(missing)}, which {name} needs{hint}")


def _said(turn: Row) -> str:
    """What a turn's listener got: its words, and its picture by its caption."""
    text, caption = optional(turn.value.get("text")), optional(turn.value.get("blip_caption"))
    return "\n".join(part for part in (text, f"[{caption}]" if caption else None) if part)


def _session_of(dia_id: str) -> str:
    found = _SESSION.match(dia_id)
    return found[1] if found else dia_id


def _session_time(session: Mapping[str, Any]) -> datetime | None:
    stated = time_of(session.get("date_iso"))
    if stated is not None:
        return stated
    try:
        return datetime.strptime(str(session.get("date_time")), _SPOKEN_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _article(fields: Mapping[str, Any], fallback: str) -> str:
    return optional(fields.get("url")) or optional(fields.get("title")) or fallback


def _evidence_article(items: Items, tree: str, key: str, fields: Mapping[str, Any]) -> str:
    # What was inserted counts, should the two places name the article differently.
    place = items.places.get((tree, key))
    return place.session if place is not None else _article(fields, key)


_LOADERS: Mapping[str, Callable[[Path], Dataset]] = {
    "locomo": _locomo,
    "multihoprag": _multihoprag,
    "passages": _passages,
    "quality": quality,
    "nq": natural_questions,
}
