"""
One call and its repetitions, without doing any of it: both clients drive this.

Everything that the clients call may be repeated: reads change nothing, and records are known by their ids. What is repeated: a
connection that fails, an answer that does not come, and 429, 503 and 504. A wait that was in vain (412) is the caller's to repeat.
"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import httpx

from memory.errors import PermanentError, SettingError, TransientError

REPEATED = frozenset({429, 503, 504})
LINES = {"Content-Type": "application/x-ndjson"}
LINES_AT_ONCE = 500
"""Records of one request of many."""
CHARACTERS_AT_ONCE = 4_000_000
FEEDBACK_AT_ONCE = 100
_WHO = "is this a Banyan service?"


class ServiceError(PermanentError):
    """
    The service refuses a request; the same one would be refused again.

    Args:
        message: what it says.
        status: of HTTP.
        kind: the problem's name (docs/http.md), "" when the answer was none.
        problem: all that it says.
    """

    def __init__(self, message: str, *, status: int, kind: str, problem: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.problem = problem


class ServiceAwayError(TransientError):
    """The service, or something that it needs, was away each time; nothing is known to have been done, and repeating is safe."""


@dataclass(frozen=True, slots=True)
class Patience:
    """How often a call is repeated, and for how long at most."""

    attempts: int = 4
    first: float = 0.2
    """Seconds before the second attempt; doubles, with some chance in it. A longer Retry-After is honoured."""
    longest: float = 10.0
    """Seconds; a service that asks for more is not waited for."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Course:
    """
    A call until it has an answer.

    Args:
        call: to be sent.
        patience: how often, and for how long.
    """

    def __init__(self, call: Call, patience: Patience) -> None:
        self._call = call
        self._patience = patience
        self._attempt = 0
        self.following: Call | float = call
        """What is to be done next: send this, or wait for so many seconds."""
        self.response: httpx.Response | None = None

    def take(self, outcome: httpx.Response | httpx.TransportError | None) -> None:
        """
        What came of it; None of a wait.

        Raises:
            ServiceError: the call is refused.
            ServiceAwayError: there was no answer, or none but that something is away.
        """
        if outcome is None:
            self.following = self._call
            return
        if isinstance(outcome, httpx.Response) and outcome.status_code not in REPEATED:
            self.response = _checked(outcome)
            return
        asked = _retry_after(outcome) if isinstance(outcome, httpx.Response) else 0.0
        own = self._patience.first * 2**self._attempt * random.uniform(0.5, 1.0)  # noqa: S311  # not all at the same moment
        self._attempt += 1
        if self._attempt >= self._patience.attempts or max(asked, own) > self._patience.longest:
            raise _away(outcome, asked)
        self.following = max(asked, own)


def _checked(response: httpx.Response) -> httpx.Response:
    if response.is_success:
        return response
    problem = _problem(response)
    kind = str(problem.get("type", "")).rpartition(":")[2]
    detail = problem.get("detail") or f"status {response.status_code}, and no problem's details: {_WHO}"
    raise ServiceError(f"{kind or 'refused'}: {detail}", status=response.status_code, kind=kind, problem=problem)


def _away(outcome: httpx.Response | httpx.TransportError, asked: float) -> Exception:
    if isinstance(outcome, httpx.Response):
        detail = _problem(outcome).get("detail", f"status {outcome.status_code}")
        return ServiceAwayError(f"the service says: {detail}", retry_after=asked or None)
    error = ServiceAwayError(f"the service cannot be reached: {type(outcome).__name__}: {outcome}")
    error.__cause__ = outcome
    return error


def _problem(response: httpx.Response) -> dict[str, Any]:
    try:
        value = response.json()
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() and len(value) < 10 else 0.0


# --------------------------------------------------------------------------------------------------------------------- calls


def get(*parts: str, **params: Any) -> Call:
    """A look at `/v1/…`; names are quoted, parameters that are None left out."""
    return Call("GET", _path(parts), {name: value for name, value in params.items() if value is not None})


def post(value: Mapping[str, Any], *parts: str) -> Call:
    """A question; members that are None are left out."""
    given = {name: each for name, each in value.items() if each is not None}
    return Call("POST", _path(parts), content=json.dumps(given).encode(), headers={"Content-Type": "application/json"})


def feedback(tree: str, given: Iterable[Mapping[str, Any]]) -> Iterator[Call]:
    """
    Feedback in lists, each of a request of its own; members that are None are left out.

    No list is longer than a problem's `errors`, so that the service can say of each what is wrong with it.
    """
    path = _path(("trees", tree, "feedback"))
    left = iter(given)
    while batch := list(itertools.islice(left, FEEDBACK_AT_ONCE)):
        content = json.dumps([{name: each for name, each in one.items() if each is not None} for one in batch]).encode()
        yield Call("POST", path, content=content, headers={"Content-Type": "application/json"})


def rejected(error: ServiceError) -> list[Any]:
    """
    The results of a list of which nothing could be taken.

    Raises:
        ServiceError: the one that is given, where it says something else.
    """
    if error.kind != "rejected":
        raise error
    return [
        {"id": each["id"], "status": "rejected", "seq": None, "reason": f"{each['field']}: {each['reason']}"}
        for each in error.problem["errors"]
    ]


def forgetting(tree: str, events: Iterable[str], conversation: str | None, before: str | None) -> Iterator[Call]:
    """
    What is to be forgotten, a hundred events a request.

    Raises:
        ValueError: not exactly one of the three is given.
    """
    ids = list(events)
    if sum((bool(ids), conversation is not None, before is not None)) != 1:
        raise ValueError("of events, conversation and before exactly one says what is to be forgotten")
    if not ids:
        yield post({"conversation": conversation, "before": before}, "trees", tree, "forget")
    for first in range(0, len(ids), FEEDBACK_AT_ONCE):
        yield post({"events": ids[first : first + FEEDBACK_AT_ONCE]}, "trees", tree, "forget")


def lines(tree: str, records: Sequence[Mapping[str, Any]]) -> Call:
    """Records as JSON lines."""
    content = b"".join(json.dumps(dict(record)).encode() + b"\n" for record in records)
    return Call("POST", _path(("trees", tree, "records")), content=content, headers=LINES)


def value_of(response: httpx.Response) -> dict[str, Any]:
    """
    The object that an answer is.

    Raises:
        ServiceError: it is something else, such as a page of a proxy.
    """
    try:
        value = response.json()
    except ValueError as error:
        raise _strange(response) from error
    if not isinstance(value, dict):
        raise _strange(response)
    return value


def results_of(response: httpx.Response) -> list[Any]:
    """
    The results of JSON lines, in the order of the records, without the counts at the end.

    Raises:
        ServiceError: it has something else, or ends before the counts.
    """
    try:
        *results, last = [json.loads(line) for line in response.content.splitlines()]
        complete = last["complete"]
        values = [{name: value for name, value in each.items() if name != "line"} for each in results]
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise _strange(response) from error
    if not complete:
        raise _strange(response)
    return values


def _strange(response: httpx.Response) -> ServiceError:
    return ServiceError(
        f"status {response.status_code}, and an answer of another kind: {_WHO}", status=response.status_code, kind="", problem={}
    )


def batches(records: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    """Records in lists that one request may have."""
    batch: list[Mapping[str, Any]] = []
    characters = 0
    for record in records:
        batch.append(record)
        characters += len(str(record.get("text", "")))
        if len(batch) >= LINES_AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


def _path(parts: Sequence[str]) -> str:
    return "/v1/" + "/".join(quote(part, safe="") for part in parts)


def options(key: str | None, timeout: float) -> dict[str, Any]:
    """
    What both kinds of `httpx` client are made with.

    Raises:
        SettingError: the key is none.
    """
    if key is not None and not (key.isascii() and key.isprintable() and key.strip() == key and key):
        raise SettingError("key: has characters that no key has; paste it as `banyan keys create` showed it")
    headers = {"User-Agent": "banyan-client", "Accept": "application/json, application/x-ndjson, application/problem+json"}
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return {"headers": headers, "timeout": timeout, "follow_redirects": False}
