"""Rows of files of JSON lines, and what becomes of them: what all formats share."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from memory.errors import RecordError
from memory.records import FIELD_CHARACTERS_MAX, Record, parse, parse_time
from streams.evaluation.dataset import Case, Dataset, DatasetError, Place

_NOT_IN_A_TREE_NAME = re.compile(r"[^A-Za-z0-9._:-]+")


class Items:
    """Collects records and what they count as."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.places: dict[tuple[str, str], Place] = {}
        self.skipped = 0

    def add(self, row: Row, fields: dict[str, Any], place: Place) -> None:
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


def dataset_of(name: str, group: Any, items: Items, cases: list[Case], left_out: int) -> Dataset:
    """The data set of what was collected."""
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
class Row:
    """One JSON object of a file, and where it stands."""

    file: Path
    number: int
    value: Mapping[str, Any]

    @property
    def place(self) -> str:
        """File and line, as messages name them."""
        return f"{self.file}:{self.number}"

    def text(self, field: str) -> str:
        """A field that must be there; numbers are taken as they are written."""
        found = optional(self.value.get(field))
        if found is None:
            raise DatasetError(f"{self.place}: {field}: is missing or empty")
        return found

    def list(self, field: str, *, needed: bool = True) -> list[Row]:
        """A field that holds a list of objects."""
        found = self.value.get(field)
        if found is None and not needed:
            return []
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise DatasetError(f"{self.place}: {field}: expected a list of objects")
        return [Row(self.file, self.number, each) for each in found]


def rows(file: Path) -> Iterator[Row]:
    """
    The objects of a file, one a line; blank lines are passed over.

    Raises:
        DatasetError: the file cannot be read, or a line is no JSON object.
    """
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield _row(file, number, line)
    except OSError as error:
        raise DatasetError(f"{file}: {error.strerror or error}") from error


def _row(file: Path, number: int, line: bytes) -> Row:
    try:
        value = msgspec.json.decode(line.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DatasetError(f"{file}:{number}: record: is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DatasetError(f"{file}:{number}: record: expected a JSON object")
    return Row(file, number, value)


def time_of(value: object) -> datetime | None:
    """A time, or None where there is none that can be read."""
    try:
        return parse_time("time", value) if value else None
    except RecordError:
        return None


def joined(text: str) -> str:
    """The text with single spaces, for comparing."""
    return " ".join(text.split())


def label(value: object) -> str | None:
    """As `optional`, cut to what a record's field takes."""
    text = optional(value)
    return text[:FIELD_CHARACTERS_MAX] if text else None


def optional(value: object) -> str | None:
    """A text or number as text; None for what is absent, empty or something else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    return str(value).strip() or None


def strings(value: object) -> list[str]:
    """Ids in a list, or one alone."""
    values = value if isinstance(value, list) else [value]
    return [text for each in values if (text := optional(each))]


def tree_name(kind: str, name: str) -> str:
    """A tree's name for a kind of data and the name of one of it."""
    return f"{kind}-{_NOT_IN_A_TREE_NAME.sub('-', name)}"[:100]
