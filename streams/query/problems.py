"""Errors as RFC 9457 problem details: what each kind is called, its status, and what a caller is told of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import orjson
from starlette.responses import Response

from memory import errors
from memory.errors import BanyanError
from streams.broker import BrokerRefusedError
from streams.health import dependency

MEDIA_TYPE = "application/problem+json"
PREFIX = "urn:banyan:problem:"
RETRIED = frozenset({HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.PRECONDITION_FAILED})
"""Statuses that come with a Retry-After."""
RETRY_AFTER = 1.0
"""Seconds, where whoever is away did not say."""


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of problem; `docs/http.md` lists them all."""

    name: str
    status: int
    title: str
    detail: str
    """What such a problem says, as the OpenAPI document shows it."""
    fields: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Further members of the example."""


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind(
            "bad-request",
            400,
            "The request cannot be read",
            "the body is not JSON: unexpected end of data: line 1 column 7 (char 6)",
        ),
        Kind("unauthorized", 401, "A valid key is needed", "send a valid key: Authorization: Bearer banyan_…"),
        Kind("forbidden", 403, "The key does not allow this", "this needs a key with the right to write"),
        Kind(
            "not-found", 404, "There is nothing at this address", "there is nothing at this address; /docs has those that there are"
        ),
        Kind("tree-not-found", 404, "No such tree", "there is no tree of that name"),
        Kind("node-not-found", 404, "No such node", "tree 'user-42' has no node 's00'"),
        Kind("event-not-found", 404, "No such event", "tree 'user-42' has no event 't-999'"),
        Kind("speaker-not-found", 404, "No such speaker", "nobody of the name 'Zoe' speaks in tree 'user-42'"),
        Kind("method-not-allowed", 405, "This address does not take this method", "PUT is not taken here"),
        Kind("slow-request", 408, "The request was sent too slowly", "the body did not come within 30 s"),
        Kind(
            "tree-mismatch",
            409,
            "The tree was made with other settings",
            "tree 'user-42' is a memtree tree, hat is configured; use --structure memtree, or another tree name",
        ),
        Kind(
            "no-weights",
            409,
            "The tree keeps no weights",
            "tree 'user-42' is a memtree tree, which keeps no weights; feedback is taken by hmem trees",
        ),
        Kind("not-covered", 412, "What was waited for has not come yet", "event 't-999' has not come within 5 s; ask again"),
        Kind("body-too-large", 413, "The body is too large", "at most 8,388,608 bytes are taken at once"),
        Kind(
            "too-many-records", 413, "Too many records at once", "1,001 records, at most 1,000 are taken at once; send JSON lines"
        ),
        Kind("media-type", 415, "The body is of a kind that is not taken here", "send JSON, Content-Type: application/json"),
        Kind("misdirected", 421, "The request is for another host", "without keys only requests to localhost are answered"),
        Kind(
            "invalid",
            422,
            "Something in the request cannot be taken",
            "k: is less than 1",
            {"errors": [{"field": "k", "reason": "is less than 1"}]},
        ),
        Kind(
            "rejected",
            422,
            "No record could be taken",
            "text: is empty",
            {"errors": [{"record": 0, "id": "t-983", "field": "text", "reason": "is empty"}]},
        ),
        Kind("rate", 429, "Too many requests", "this key may ask 500 times a second"),
        Kind("concurrency", 429, "Too many requests at once", "64 requests of this key are being answered; wait for one of them"),
        Kind(
            "internal",
            500,
            "An error nobody thought of",
            "an error nobody thought of; the service's log has it under this request's id",
        ),
        Kind(
            "busy",
            503,
            "Others are writing at the same place",
            "others changed the same part of the tree again and again; try again",
        ),
        Kind(
            "unavailable", 503, "Something that is needed is away", "the store cannot be used now; try again", {"missing": "store"}
        ),
        Kind("draining", 503, "The service is stopping", "the service is being stopped; ask again once it is back"),
        Kind("timeout", 504, "The answer took too long", "there was no answer within 30 s"),
    )
}
_KIND_OF: tuple[tuple[type[BanyanError], str], ...] = (
    (errors.TreeNotFoundError, "tree-not-found"),
    (errors.NodeNotFoundError, "node-not-found"),
    (errors.RecordError, "invalid"),
    (errors.TreeMismatchError, "tree-mismatch"),
    (errors.NoWeightsError, "no-weights"),
    (errors.ContentionError, "busy"),
    (errors.LeaseBusyError, "busy"),
    (errors.LeaseLostError, "busy"),
    (errors.ClosedError, "draining"),
    (BrokerRefusedError, "unavailable"),
    (errors.EmbedderAnswerError, "unavailable"),
    (errors.TransientError, "unavailable"),
)
_ALIKE = frozenset({"busy", "draining", "tree-not-found", "internal"})
"""Whose detail is the same whatever the error says."""
_CALLED: Mapping[str | None, str] = {"store": "the store", "kafka": "Kafka", "embedder": "the embedding model"}
_PERMANENTLY = ((BrokerRefusedError, "kafka"), (errors.EmbedderAnswerError, "embedder"))
"""What is there but of no use, and so not away for `streams.health`."""


class Problem(Exception):  # noqa: N818  # the standard's word
    """
    A request that is answered with a problem.

    Args:
        kind: one of `KINDS`.
        detail: what happened and what to do.
        retry_after: seconds after which the same request may succeed; 429, 503 and 412 always say some.
        fields: further members of the answer.
        headers: of the answer.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        retry_after: float | None = None,
        fields: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.kind = KINDS[kind]
        self.detail = detail
        self.retry_after = retry_after
        self.fields = dict(fields or {})
        self.headers = dict(headers or {})

    def response(self, request_id: str) -> Response:
        """The answer."""
        status = self.kind.status
        headers = dict(self.headers)
        if status in RETRIED:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after or RETRY_AFTER)))
        return Response(orjson.dumps(self.body(request_id)), status, headers, MEDIA_TYPE)

    def body(self, request_id: str) -> dict[str, Any]:
        """What the answer says."""
        return {
            "type": PREFIX + self.kind.name,
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "instance": f"urn:banyan:request:{request_id}",
            **self.fields,
        }


def example(kind: Kind) -> dict[str, Any]:
    """A problem of a kind, as the OpenAPI document shows it."""
    return Problem(kind.name, kind.detail, fields=kind.fields).body("6b21399a3f014172")


def problem_of(error: BanyanError) -> Problem:
    """
    What a caller is told of an error of ours.

    Of what is away only its name: the messages of such errors name addresses, and are logged instead.
    """
    name = next((name for kind, name in _KIND_OF if isinstance(error, kind)), "internal")
    if isinstance(error, errors.RecordError):
        return invalid([{"field": error.field, "reason": error.reason}])
    if isinstance(error, errors.QueryError):
        return Problem("invalid", str(error), fields={"errors": [{"field": error.field, "reason": _of_field(error)}]})
    retry_after = getattr(error, "retry_after", None)
    if name == "unavailable":
        missing = next((name for kind, name in _PERMANENTLY if isinstance(error, kind)), dependency(error))
        detail = f"{_CALLED.get(missing, 'something that is needed')} cannot be used now; try again"
        return Problem(name, detail, retry_after=retry_after, fields={"missing": missing})
    # Of a tree word for word the same for one that the key does not reach.
    detail = KINDS[name].detail if name in _ALIKE else str(error)
    return Problem(name, detail, retry_after=retry_after if name == "busy" else None)


def _of_field(error: errors.QueryError) -> str:
    return str(error).removeprefix(f"{error.field}: ").removeprefix(f"{error.field} ")


def no_tree() -> Problem:
    """The same for a tree that is not there and for one that the key does not reach."""
    return problem_of(errors.TreeNotFoundError())


def invalid(wrong: Sequence[Mapping[str, Any]]) -> Problem:
    """
    A request whose parts are named that cannot be taken.

    Args:
        wrong: `field` and `reason` of each.
    """
    first = wrong[0]
    more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
    return Problem("invalid", f"{first['field']}: {first['reason']}{more}", fields={"errors": list(wrong)})
