"""The formats that can be read, each from a folder of JSON lines in UTF-8. Missing optional fields are taken as absent."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from memory.errors import RecordError
from memory.records import FIELD_CHARACTERS_MAX, Document, Record, Turn, parse, parse_time
from streams.evaluation.dataset import Case, Dataset, DatasetError, Place

FILES: Final[Mapping[str, tuple[str, str]]] = {
    "locomo": ("conversations.jsonl", "qa.jsonl"),
    "multihoprag": ("facts.jsonl", "queries.jsonl"),
    "passages": ("corpus.jsonl", "queries.jsonl"),
}
"""What each format's folder holds: the items, then the questions."""

_SESSION = re.compile(r"^\D*(\d+)\s*:")
_SPOKEN_TIME = "%I:%M %p on %d %B, %Y"  # 1:56 pm on 8 May, 2023
_NOT_IN_A_TREE_NAME = re.compile(r"[^A-Za-z0-9._:-]+")


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


class _Items:
    """Collects records and what they count as."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.places: dict[tuple[str, str], Place] = {}
        self.skipped = 0

    def add(self, row: _Row, fields: dict[str, Any], place: Place) -> None:
        """One record; without a text, or with an id that was there, it is only counted."""
        if not str(fields["text"]).strip() or (fields["tree"], fields["id"]) in self.places:
            self.skipped += 1
            return
        given = {key: value for key, value in fields.items() if value is not None}
        try:
            record = parse(given)
        except RecordError as error:
            raise DatasetError(f"{row.place}: {error}") from error
        self.records.append(record)
        self.places[record.tree, record.id] = place


def _locomo(folder: Path) -> Dataset:
    """One tree a conversation; a turn's session is the number before the colon of its id."""
    items = _Items()
    trees: dict[str, str] = {}
    for row in _rows(folder / "conversations.jsonl"):
        sample = row.text("sample_id")
        tree = trees.setdefault(sample, _tree_name("locomo", sample))
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
                    "speaker": _label(turn.value.get("speaker")),
                    "at": at,
                }
                items.add(turn, fields, Place(turn=dia_id, session=key))
    cases: list[Case] = []
    left_out = 0
    for row in _rows(folder / "qa.jsonl"):
        evidence = frozenset(_strings(row.value.get("evidence")))
        if not evidence:
            left_out += 1
            continue
        sample = row.text("sample_id")
        cases.append(
            Case(
                id=_optional(row.value.get("qid")) or str(row.number),
                tree=trees.get(sample, ""),
                text=row.text("question"),
                category=_optional(row.value.get("category_name")) or _optional(row.value.get("category")) or "all",
                turns=evidence,
                sessions=frozenset(map(_session_of, evidence)),
                answer=_optional(row.value.get("answer")),
            )
        )
    return _dataset("locomo", "conversation", items, cases, left_out)


def _multihoprag(folder: Path) -> Dataset:
    """One tree of facts; questions name theirs by its text. At the session level a fact counts as its article."""
    items = _Items()
    tree = _tree_name("multihoprag", folder.resolve().name)
    first: dict[str, str] = {}
    for row in _rows(folder / "facts.jsonl"):
        fact = row.text("fact")
        item = _optional(row.value.get("fact_id")) or f"line-{row.number}"
        turn = first.setdefault(_joined(fact), item)
        fields = {
            "type": Document.KIND,
            "tree": tree,
            "id": item,
            "text": fact,
            "title": _label(row.value.get("title")),
            "source": _label(row.value.get("source")),
            "url": _optional(row.value.get("url")),
            "published_at": _time(row.value.get("published_at")),
            "metadata": {name: value for name in ("author", "category") if (value := _optional(row.value.get(name)))},
        }
        items.add(row, fields, Place(turn=turn, session=_article(row.value, turn)))
    cases: list[Case] = []
    left_out = 0
    for row in _rows(folder / "queries.jsonl"):
        evidence = row.list("evidence_list", needed=False)
        if not evidence:
            left_out += 1
            continue
        keys = [(first.get(_joined(each.text("fact")), f"no such fact: {each.text('fact')}"), each.value) for each in evidence]
        cases.append(
            Case(
                id=_optional(row.value.get("qid")) or str(row.number),
                tree=tree,
                text=row.text("query"),
                category=_optional(row.value.get("question_type")) or "all",
                turns=frozenset(key for key, _ in keys),
                sessions=frozenset(_evidence_article(items, tree, key, value) for key, value in keys),
                answer=_optional(row.value.get("answer")),
            )
        )
    return _dataset("multihoprag", "document", items, cases, left_out)


def _passages(folder: Path) -> Dataset:
    """One tree of passages, each a document."""
    items = _Items()
    tree = _tree_name("passages", folder.resolve().name)
    for row in _rows(folder / "corpus.jsonl"):
        item = row.text("doc_id")
        title = _label(row.value.get("title"))
        text = _optional(row.value.get("text")) or title or ""
        fields = {"type": Document.KIND, "tree": tree, "id": item, "text": text, "title": title}
        items.add(row, fields, Place(turn=item, session=item))
    cases: list[Case] = []
    left_out = 0
    for row in _rows(folder / "queries.jsonl"):
        relevant = frozenset(_strings(row.value.get("relevant")))
        if not relevant:
            left_out += 1
            continue
        cases.append(
            Case(
                id=_optional(row.value.get("qid")) or str(row.number),
                tree=tree,
                text=row.text("query"),
                category=_optional(row.value.get("question_type")) or _optional(row.value.get("type")) or "all",
                turns=relevant,
                sessions=relevant,
                answer=_optional(row.value.get("answer")),
            )
        )
    return _dataset("passages", "document", items, cases, left_out)


_LOADERS: Mapping[str, Callable[[Path], Dataset]] = {"locomo": _locomo, "multihoprag": _multihoprag, "passages": _passages}


def _dataset(name: str, group: Any, items: _Items, cases: list[Case], left_out: int) -> Dataset:
    return Dataset(
        format=name,
        group=group,
        records=tuple(items.records),
        places=items.places,
        cases=tuple(cases),
        left_out=left_out,
        skipped=items.skipped,
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """One JSON object of a file, and where it stands."""

    file: Path
    number: int
    value: Mapping[str, Any]

    @property
    def place(self) -> str:
        return f"{self.file}:{self.number}"

    def text(self, field: str) -> str:
        """A field that must be there; numbers are taken as they are written."""
        found = _optional(self.value.get(field))
        if found is None:
            raise DatasetError(f"{self.place}: {field}: is missing or empty")
        return found

    def list(self, field: str, *, needed: bool = True) -> list[_Row]:
        """A field that holds a list of objects."""
        found = self.value.get(field)
        if found is None and not needed:
            return []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise DatasetError(f"{self.place}: {field}: expected a list of objects")
        return [_Row(self.file, self.number, each) for each in found]


def _rows(file: Path) -> Iterator[_Row]:
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _row(file, number, line)
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror or error}") from error


def _row(file: Path, number: int, line: bytes) -> _Row:
    try:
        value = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{file}:{number}: record: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{file}:{number}: record: expected a JSON object")
    return _Row(file, number, value)


def _check_folder(name: str, folder: Path) -> None:
    if not folder.is_dir():
        raise DatasetError(f"{folder} is no folder; {name} is a folder with {' and '.join(FILES[name])}")
    missing = [file for file in FILES[name] if not (folder / file).is_file()]
    if missing:
        other = [each for each, files in FILES.items() if all((folder / file).is_file() for file in files)]
        hint = f"; it looks like {other[0]}" if other else ""
        raise DatasetError(f"{folder} has no {' and no '.join(missing)}, which {name} needs{hint}")


def _said(turn: _Row) -> str:
    """What a turn's listener got: its words, and its picture by its caption."""
    text, caption = _optional(turn.value.get("text")), _optional(turn.value.get("blip_caption"))
    return "\n".join(part for part in (text, f"[{caption}]" if caption else None) if part)


def _session_of(dia_id: str) -> str:
    found = _SESSION.match(dia_id)
    return found[1] if found else dia_id


def _session_time(session: Mapping[str, Any]) -> datetime | None:
    stated = _time(session.get("date_iso"))
    if stated is not None:
        return stated
    try:
        return datetime.strptime(str(session.get("date_time")), _SPOKEN_TIME).replace(tzinfo=UTC)
    except ValueError:
        return None


def _article(fields: Mapping[str, Any], fallback: str) -> str:
    return _optional(fields.get("url")) or _optional(fields.get("title")) or fallback


def _evidence_article(items: _Items, tree: str, key: str, fields: Mapping[str, Any]) -> str:
    # What was inserted counts, should the two places name the article differently.
    place = items.places.get((tree, key))
    return place.session if place is not None else _article(fields, key)


def _time(value: object) -> datetime | None:
    """A time, or None where there is none that can be read."""
    try:
        return parse_time("time", value) if value else None
    except RecordError:
        return None


def _joined(text: str) -> str:
    return " ".join(text.split())


def _label(value: object) -> str | None:
    text = _optional(value)
    return text[:FIELD_CHARACTERS_MAX] if text else None


def _optional(value: object) -> str | None:
    """A text or number as text; None for what is absent, empty or something else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).strip() or None


def _strings(value: object) -> list[str]:
    """Ids in a list, or one alone."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := _optional(each))]


def _tree_name(kind: str, name: str) -> str:
    return f"{kind}-{_NOT_IN_A_TREE_NAME.sub('-', name)}"[:100]
