"""What a data set is once it has been read: records to put in, questions, and what answers them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from msgspec import json, structs

from memory.errors import SettingError
from memory.records import Record


class DatasetError(SettingError):
    """A folder or file that is not of the format; the message names the file, the line and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What an inserted record counts as in an answer."""

    turn: str
    """Key at the turn level: the record itself, or the first of several with the same text."""
    session: str
    """Key at the session level: its conversation's session, or its document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One question with its evidence."""

    id: str
    tree: str
    text: str
    category: str
    turns: frozenset[str]
    """Turn keys that answer it, at least one; those that are in no record count as not found."""
    one_suffices: bool = False
    """Whether any of `turns` answers it alone, instead of all of them together."""
    sessions: frozenset[str]
    """Session keys of the evidence, at least one."""
    answer: str | None
    """None where the data gives none, or says that there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Everything of one folder."""

    format: str
    group: Literal["conversation", "document"]
    """What the session level groups hits by."""
    records: tuple[Record, ...]
    """In the order in which they were said or listed."""
    places: Mapping[tuple[str, str], Place]
    """By tree and record id."""
    cases: tuple[Case, ...]
    left_out: int
    """Questions without evidence."""
    skipped: int
    """Items without text, or with an id that was there already."""

    @property
    def trees(self) -> tuple[str, ...]:
        """Names of the trees, in order."""
        return tuple(dict.fromkeys(record.tree for record in self.records))

    def marked(self, *conditions: str) -> Dataset:
        """
        The same with tree names that end in a digest of the records and conditions.

        A kept memory is then used again only for the very same data under the very same conditions.
        """
        digest = hashlib.blake2b(digest_size=5)
        for part in conditions:
            digest.update(part.encode() + b"\x00")
        for record in self.records:
            digest.update(json.encode(record))
        names = {tree: f"{tree[:100]}-{digest.hexdigest()}" for tree in self.trees}
        # A question may ask a conversation that has no turn; it is then asked nowhere and nothing is found.
        return replace(
            self,
            records=tuple(structs.replace(record, tree=names[record.tree]) for record in self.records),
            places={(names[tree], item): place for (tree, item), place in self.places.items()},
            cases=tuple(replace(case, tree=names.get(case.tree, "")) for case in self.cases),
        )
