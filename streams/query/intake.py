"""Bodies of records: read by the decoder that Kafka and files share, and what is refused is said line by line."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

import orjson

from memory.errors import RecordError
from memory.model import EventId, TreeId
from memory.records import Feedback, Record, parse, parse_feedback
from memory.results import EventResult, EventStatus
from memory.settings import IngestSettings
from streams.events import RECORD_BYTES_MAX, decode, too_long
from streams.query.problems import Problem, invalid

BULK_LINES = 100
"""How many times `batch_records_max` JSON lines may have."""
BULK_BATCH = 256
"""Lines that are made safe together."""


Taken = TypeVar("Taken")


@dataclass(frozen=True, slots=True)
class Intake(Generic[Taken]):
    """The records of one request: those that can be taken, and the places of those that cannot."""

    records: Sequence[Taken]
    refused: Mapping[int, tuple[EventResult, RecordError]]
    """By place in the request."""

    def merged(self, results: Sequence[EventResult]) -> list[EventResult]:
        """All results in the request's order."""
        taken = iter(results)
        count = len(self.records) + len(self.refused)
        return [self.refused[place][0] if place in self.refused else next(taken) for place in range(count)]

    def none_taken(self) -> Problem:
        """What to answer when nothing could be taken."""
        return none_taken((place, result.id, error.field, error.reason) for place, (result, error) in self.refused.items())


def none_taken(refused: Iterable[tuple[int, str, str, str]]) -> Problem:
    """What to answer when nothing could be taken: of each its place in the request, its id, the field, and the reason."""
    errors = [{"record": place, "id": identity, "field": field, "reason": reason} for place, identity, field, reason in refused]
    first = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    return Problem("rejected", f"{first['field']}: {first['reason']}{more}", fields={"errors": errors[:100]})


def read_records(
    body: bytes, tree: TreeId, kind: Literal["turn", "document"], *, limits: IngestSettings, records_max: int
) -> Intake[Record]:
    """
    One record, or a list of them.

    Args:
        body: JSON.
        tree: that the records go into.
        kind: what they are.
        limits: longest texts.
        records_max: longest list.

    Raises:
        Problem: it is no JSON, neither of the two, or too many.
    """
    return _read_all(body, tree, lambda each: parse(_typed(each, kind), tree=tree, limits=limits), records_max, "send JSON lines")


def read_feedback(body: bytes, tree: TreeId, *, now: datetime, records_max: int) -> Intake[Feedback]:
    """
    One piece of feedback, or a list of them.

    Args:
        body: JSON.
        tree: that it is about.
        now: when what says no time was given.
        records_max: longest list.

    Raises:
        Problem: it is no JSON, neither of the two, or too many.
    """

    def read(each: object) -> Feedback:
        timed = {**each, "at": now} if isinstance(each, dict) and each.get("at") is None else each
        return parse_feedback(timed, tree=tree)

    return _read_all(body, tree, read, records_max, "send shorter lists")


def _read_all(body: bytes, tree: TreeId, read: Callable[[object], Taken], records_max: int, instead: str) -> Intake[Taken]:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Problem("bad-request", f"the body is not JSON: {error}") from error
    given = value if isinstance(value, list) else [value]
    if not given:
        raise invalid([{"field": "body", "reason": "is an empty list"}])
    if len(given) > records_max:
        raise Problem("too-many-records", f"{len(given):,} records, at most {records_max:,} are taken at once; {instead}")
    records: list[Taken] = []
    refused: dict[int, tuple[EventResult, RecordError]] = {}
    for place, each in enumerate(given):
        try:
            records.append(read(each))
        except RecordError as error:
            refused[place] = (_refused(each, tree, error), error)
    return Intake(records, refused)


async def read_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[tuple[int, bytes]]:
    """
    Lines of a body as they come, with their numbers from 1; blank ones are left out.

    Raises:
        Problem: a line is longer than any record.
    """
    rest = b""
    number = 0
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n") if b"\n" in chunk else (rest + chunk,)
        for line in lines:
            number += 1
            if line.strip():
                yield number, line
        if len(rest) > RECORD_BYTES_MAX:
            raise Problem("body-too-large", f"line {number + 1}: record {too_long(len(rest))}", headers={"Connection": "close"})
    if rest.strip():
        yield number + 1, rest


def read_line(line: bytes, tree: TreeId, *, limits: IngestSettings) -> Record | tuple[EventResult, RecordError]:
    """A record, or why the line is none."""
    try:
        return decode(line, tree=tree, limits=limits)
    except RecordError as error:
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            value = None
        return _refused(value, tree, error), error


def _typed(value: object, kind: Literal["turn", "document"]) -> object:
    if not isinstance(value, dict):
        return value
    declared = value.get("type", kind)
    if declared in ("turn", "document") and declared != kind:
        raise RecordError("type", f"is {declared}; this address takes {kind}s, /{declared}s the others")
    metadata = value.get("metadata")
    if declared == kind or not isinstance(metadata, dict | None):
        return {**value, "type": kind}
    # What is not one of the two words is a member of the caller's own.
    return {**value, "metadata": {**(metadata or {}), "type": declared}, "type": kind}


def _refused(value: object, tree: TreeId, error: RecordError) -> EventResult:
    identity = value.get("id", "") if isinstance(value, Mapping) else ""
    return EventResult(
        tree=tree,
        id=EventId(identity[:256] if isinstance(identity, str) else ""),
        status=EventStatus.REJECTED,
        seq=0,
        reason=str(error),
    )
