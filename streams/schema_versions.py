"""What a message says of its own form: a header with the name of the form and its version, e.g. `turn/1`."""

from __future__ import annotations

from collections.abc import Iterable

from memory.errors import RecordError

SCHEMA_HEADER = "banyan-schema"
"""A reader takes messages without it, and refuses those of a form or version that it does not know."""
VERSIONS = {"turn": 1, "document": 1, "feedback": 1, "summary-job": 1, "commit": 1, "dead-letter": 1, "dead-letter-replayed": 1}
"""By the form's name. A version is raised when readers of the one before would misread, not for a field that may be left out."""
_SHOWN_MAX = 60


def schema_of(form: str) -> bytes:
    """The header's value for a form, as this version writes it."""
    return f"{form}/{VERSIONS[form]}".encode()


def check_schema(headers: Iterable[tuple[str, bytes | None]], *forms: str) -> None:
    """
    Make sure that a message is of one of these forms, in the version that is read here, if it says so at all.

    Raises:
        RecordError: it says something else.
    """
    wanted = {schema_of(form) for form in forms}
    for name, value in headers:
        if name == SCHEMA_HEADER and value not in wanted:
            said = repr((value or b"")[:_SHOWN_MAX].decode("ascii", "replace"))
            reads = " and ".join(sorted(each.decode() for each in wanted))
            raise RecordError(
                SCHEMA_HEADER, f"is {said}, this version reads {reads}; if a newer one wrote it, upgrade and replay it"
            )
