"""What a message says of its own form: a header with the name of the form and its version, e.g. `turn/1`."""

from __future__ import annotations

from collections.abc import Iterable

from memory.errors import RecordError

SCHEMA_HEADER = "banyan-schema"
"""A reader takes messages without it, and refuses those of a form or version that it does not know."""
VERSIONS = {
    "turn": 1,
    "document": 1,
    "feedback": 1,
    "forget": 1,
    "summary-job": 2,
    "commit": 1,
    "dead-letter": 1,
    "dead-letter-replayed": 1,
}
"""By the form's name. A version is raised when readers of the one before would misread, not for a field that may be left out."""
OLDEST_READ = {"summary-job": 1}
"""Where versions before the newest are read as well, and written where readers of that one would not misread it."""
_SHOWN_MAX = 60


def schema_of(form: str, version: int | None = None) -> bytes:
    """The header's value for a form, in the newest version unless another is given."""
    return f"{form}/{version or VERSIONS[form]}".encode()


def schemas_of(form: str) -> list[bytes]:
    """The header's values that are read of a form, the oldest first."""
    return [schema_of(form, version) for version in range(OLDEST_READ.get(form, VERSIONS[form]), VERSIONS[form] + 1)]


def check_schema(headers: Iterable[tuple[str, bytes | None]], *forms: str) -> None:
    """
    Make sure that a message is of one of these forms, in a version that is read here, if it says so at all.

    Raises:
        RecordError: it says something else.
    """
    wanted = {schema for form in forms for schema in schemas_of(form)}
    for name, value in headers:
        if name == SCHEMA_HEADER and value not in wanted:
            said = repr((value or b"")[:_SHOWN_MAX].decode("ascii", "replace"))
            reads = " and ".join(sorted(each.decode() for each in wanted))
            raise RecordError(
                SCHEMA_HEADER, f"is {said}, this version reads {reads}; if a newer one wrote it, upgrade and replay it"
            )
