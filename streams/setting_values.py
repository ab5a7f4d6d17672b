"""Texts to values of settings, and secrets that do not show themselves."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from memory.errors import SettingError

_MASK = "********"
_USER_INFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_DURATION = re.compile(r"^(?P<number>[0-9]*\.?[0-9]+)\s*(?P<unit>ms|s|m|h)?$")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off"})


class Secret:
    """A text that is never shown; `reveal` gives it to whom it is for."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The text itself."""
        return self._value

    def __repr__(self) -> str:
        return _MASK

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other.reveal() == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __reduce__(self) -> typing.NoReturn:
        raise TypeError("secrets are not pickled")


def parse_value(text: str, kind: Any, *, label: str, bounds: tuple[float, float] | None = None) -> Any:
    """
    The value that a text means.

    Args:
        text: as given.
        kind: str, int, float, bool, Path, Secret, timedelta, a Literal of strings, or one of these or None.
        label: what to call it in the error.
        bounds: least and greatest number (of a duration: seconds).

    Raises:
        SettingError: it is no such value, or out of bounds.
    """
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        kind = next(each for each in typing.get_args(kind) if each is not type(None))
    text = text.strip()
    shown = _MASK if kind is Secret else repr(text)
    try:
        value, number = _parse(text, kind)
    except ValueError as error:
        raise SettingError(f"{label}: {shown} is not {error}") from error
    if number is not None and bounds is not None and not bounds[0] <= number <= bounds[1]:
        unit = " seconds" if kind is timedelta else ""
        raise SettingError(f"{label}: {shown} is not between {bounds[0]:,} and {bounds[1]:,}{unit}")
    return value


def show_value(value: Any) -> Any:
    """A value as JSON can carry it, without secrets: keys masked, passwords in addresses too."""
    if value is None or isinstance(value, (bool, int, float)):
        return value
    if isinstance(value, timedelta):
        return f"{value.total_seconds():g}s"
    return _USER_INFO.sub(_MASK, str(value))


def _parse(text: str, kind: Any) -> tuple[Any, float | None]:
    if typing.get_origin(kind) is Literal:
        return _choice(text, typing.get_args(kind)), None
    if not text:
        raise ValueError("a value")
    value = _PARSERS[kind](text)
    if isinstance(value, timedelta):
        return value, value.total_seconds()
    return value, value if isinstance(value, (int, float)) and kind is not bool else None


def _choice(text: str, choices: tuple[str, ...]) -> str:
    if text.lower() not in choices:
        raise ValueError(f"one of {', '.join(choices)}")
    return text.lower()


def _boolean(text: str) -> bool:
    if text.lower() not in _YES | _NO:
        raise ValueError("yes or no")
    return text.lower() in _YES


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError as error:
        raise ValueError("a whole number") from error


def _decimal(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise ValueError("a number") from error
    if not math.isfinite(number):
        raise ValueError("a finite number")
    return number


def _duration(text: str) -> timedelta:
    found = _DURATION.match(text)
    if found is None:
        raise ValueError("a duration such as 500ms, 10s, 2m or 1h")
    try:
        return timedelta(seconds=float(found["number"]) * _UNIT_SECONDS[found["unit"] or "s"])
    except OverflowError as error:
        raise ValueError("a duration below 1,000,000,000 days") from error


def _path(text: str) -> Path:
    return Path(text).expanduser()


_PARSERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    bool: _boolean,
    int: _integer,
    float: _decimal,
    timedelta: _duration,
    Path: _path,
    Secret: Secret,
}
