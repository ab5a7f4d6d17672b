"""What is wrong with arguments, for people and models to read: Pydantic's errors in the words that refused records are told in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from memory.records import TREE_PATTERN

_BRANCH = re.compile(r"^(str|int|float|bool|none|(function|constrained|list|dict|literal)\b.*)$")
"""What Pydantic calls the members of a union, at the end of a place."""
_EXPECTED = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}
_SAID = {
    "missing": "is missing",
    "extra_forbidden": "is not taken here",
    "string_too_long": "has more than {max_length:,} characters",
    "too_long": "has more than {max_length:,} entries",
    "greater_than_equal": "is less than {ge:,}",
    "less_than_equal": "is more than {le:,}",
    "literal_error": "expected {expected}",
}
_WANTED = "expected "


def refusals(errors: Iterable[Mapping[str, Any]]) -> list[tuple[tuple[str, ...], str]]:
    """
    Each argument that cannot be taken, once, and why; never its value.

    Args:
        errors: as `ValidationError.errors` gives them.
    """
    found: dict[tuple[str, ...], list[str]] = {}
    for each in errors:
        place = tuple(str(part)[:100] for part in each["loc"])
        reason = _reason(each)
        if len(place) > 1 and each["type"] != "extra_forbidden" and _BRANCH.match(place[-1]):
            place = place[:-1]
        reasons = found.setdefault(place, [])
        if reason not in reasons:
            reasons.append(reason)
    return [(place, _joined(reasons)) for place, reasons in found.items()]


def _joined(reasons: list[str]) -> str:
    """Of a union: what is wrong with the member that it nearly was, or all that it might have been."""
    told = [reason for reason in reasons if not reason.startswith(_WANTED)]
    if told:
        return "; ".join(told)
    *some, last = [reason.removeprefix(_WANTED) for reason in reasons]
    return _WANTED + (f"{', '.join(some)} or {last}" if some else last)


def _reason(error: Mapping[str, Any]) -> str:
    kind = error["type"]
    given: Mapping[str, Any] = error.get("ctx") or {}
    if kind in _EXPECTED:
        return f"{_WANTED}{_EXPECTED[kind]}"
    if kind.endswith("too_short") and given.get("min_length") == 1:
        return "is empty"
    if given.get("pattern") == TREE_PATTERN:
        return "is not 1 to 128 of the characters A-Z a-z 0-9 . _ : -"
    if kind in _SAID:
        return _SAID[kind].format(**given)
    message = str(error["msg"]).removeprefix("Value error, ")
    return message[:1].lower() + message[1:300]
