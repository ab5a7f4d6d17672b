"""Candidates in columns say what the objects said."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from memory.model import EventId, Mark, NodeId, NodeKind
from memory.ports.index import Candidate, Candidates

LEAF = Candidate(
    node=NodeId("n1"),
    kind=NodeKind.LEAF,
    mark=Mark(7 << 20 | 1),
    dense=0.25,
    lexical=3.5,
    event_id=EventId("e1"),
    sequence="c:1",
    position=4,
    speaker="Ana",
    at=datetime(2026, 5, 8, 13, 56, 1, 250, tzinfo=UTC),
)
SUMMARY = Candidate(
    node=NodeId("s"),
    kind=NodeKind.SUMMARY,
    mark=Mark(9),
    dense=-0.5,
    lexical=0.0,
    event_id=None,
    sequence=None,
    position=-1,
    speaker=None,
    at=None,
)


def test_columns_give_back_what_they_were_made_of() -> None:
    columns = Candidates.of([LEAF, SUMMARY])
    assert list(columns) == [LEAF, SUMMARY]
    assert columns[-1] == SUMMARY
    assert Candidates.of(columns) is columns
    assert columns == [LEAF, SUMMARY]
    assert columns != [SUMMARY, LEAF]
    assert Candidates.of(()) == []


def test_parts_are_joined_and_taken_in_order() -> None:
    columns = Candidates.joined([Candidates.of([LEAF]), [SUMMARY], Candidates.of(())])
    assert columns == [LEAF, SUMMARY]
    assert columns.take([1]) == columns[1:] == [SUMMARY]
    assert columns.take([]) == []


def test_times_are_kept_in_utc() -> None:
    there = timezone(timedelta(hours=2))
    [found] = Candidates.of([SUMMARY, LEAF])[1:]
    assert found.at == LEAF.at
    assert LEAF.at is not None
    [same] = Candidates.of(
        [Candidate(**{name: getattr(LEAF, name) for name in LEAF.__slots__} | {"at": LEAF.at.astimezone(there)})]
    )
    assert same.at == LEAF.at
    assert same.at is not None
    assert same.at.utcoffset() == timedelta()
