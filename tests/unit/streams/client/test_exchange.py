"""What is repeated, how often, and after what wait."""

from __future__ import annotations

import httpx
import pytest

from memory.errors import BanyanError, SettingError
from streams.client import Client, ServiceAwayError, ServiceError
from streams.client.exchange import Call, Course, Patience, batches, get

CALL = Call("GET", "/v1/trees")
AWAY = httpx.ConnectError("refused")


def answer(status: int, **headers: str) -> httpx.Response:
    body = {"type": "urn:banyan:problem:some-kind", "detail": "why", "status": status}
    return httpx.Response(status, json=body, headers={name.replace("_", "-"): value for name, value in headers.items()})


def run(*outcomes: httpx.Response | httpx.TransportError, patience: Patience | None = None) -> tuple[list[float], object]:
    """The waits, and the response or error in the end; every outcome must be asked for."""
    course = Course(CALL, patience or Patience())
    waits: list[float] = []
    left = list(outcomes)
    try:
        while course.response is None:
            if isinstance(course.following, Call):
                course.take(left.pop(0))
            else:
                waits.append(course.following)
                course.take(None)
    except BanyanError as error:
        assert not left
        return waits, error
    assert not left
    return waits, course.response


@pytest.mark.parametrize("outcome", [AWAY, httpx.ReadTimeout("slow"), answer(429), answer(503), answer(504)])
def test_what_may_pass_is_tried_again(outcome: httpx.Response | httpx.TransportError) -> None:
    good = answer(200)
    waits, end = run(outcome, outcome, good)
    assert end is good
    assert 0.1 <= waits[0] <= 0.2 <= 2 * waits[1] <= 0.8


@pytest.mark.parametrize("status", [400, 401, 404, 412, 413, 422, 500])
def test_what_would_be_refused_again_is_not(status: int) -> None:
    waits, end = run(answer(status))
    assert waits == []
    assert isinstance(end, ServiceError)
    assert (end.status, end.kind, str(end)) == (status, "some-kind", "some-kind: why")


def test_a_wait_that_the_service_asks_for_is_kept_to() -> None:
    waits, _ = run(answer(503, retry_after="7"), answer(200))
    assert waits == [7.0]


def test_it_ends_after_the_last_attempt_or_where_the_wait_would_be_too_long() -> None:
    waits, end = run(*[AWAY] * 3, patience=Patience(attempts=3, first=0.01))
    assert len(waits) == 2
    assert isinstance(end, ServiceAwayError)
    assert end.__cause__ is AWAY
    waits, end = run(answer(429, retry_after="60"))
    assert waits == []
    assert isinstance(end, ServiceAwayError)
    assert end.retry_after == 60.0


def test_an_answer_of_somebody_else_is_told_from_ours() -> None:
    _, end = run(httpx.Response(404, text="<html>"))
    assert isinstance(end, ServiceError)
    assert "is this a Banyan service" in str(end)


@pytest.mark.parametrize("content", ["<html>", "", "[1]", "7", "{"])
def test_a_page_of_somebody_else_is_told_from_our_answer_though_all_is_well_there(content: str) -> None:
    with Client("http://elsewhere", transport=httpx.MockTransport(lambda _: httpx.Response(200, text=content))) as banyan:
        for call in (lambda: banyan.stats("t"), lambda: banyan.put("t", [{"id": "1", "text": "x"}])):
            with pytest.raises(ServiceError, match="is this a Banyan service") as caught:
                call()
            assert caught.value.status == 200


@pytest.mark.parametrize("key", ["", "banyan_…", "banyan_x\n", " banyan_x"])
def test_what_is_no_key_is_said_before_anything_is_sent(key: str) -> None:
    with pytest.raises(SettingError, match="key"):
        Client("http://localhost", key=key)


def test_names_are_quoted() -> None:
    assert get("trees", "a/b?c#d", "nodes", "x y").path == "/v1/trees/a%2Fb%3Fc%23d/nodes/x%20y"


def test_batches_are_bounded_in_records_and_in_text() -> None:
    records = [{"id": str(number), "text": "x"} for number in range(1_201)]
    assert [len(batch) for batch in batches(records)] == [500, 500, 201]
    long = [{"id": str(number), "text": "x" * 2_500_000} for number in range(3)]
    assert [len(batch) for batch in batches(long)] == [2, 1]
    assert list(batches([])) == []
