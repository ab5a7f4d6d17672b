"""What a caller is told of an error of ours."""

from __future__ import annotations

import json

import pytest

from memory.errors import (
    BanyanError,
    ClosedError,
    EmbedderAnswerError,
    EmbedderError,
    FilterError,
    NavigatorError,
    QueryError,
    StoreBusyError,
    StoreUnavailableError,
)
from streams.broker import BrokerRefusedError, BrokerUnavailableError
from streams.query.problems import problem_of


@pytest.mark.parametrize(
    ("error", "missing", "called"),
    [
        (StoreUnavailableError("redis://secret"), "store", "the store"),
        (StoreBusyError("/home/ana"), "store", "the store"),
        (BrokerUnavailableError("secret:9092"), "kafka", "Kafka"),
        (BrokerRefusedError("secret:9092"), "kafka", "Kafka"),
        (EmbedderError("https://secret"), "embedder", "the embedding model"),
        (EmbedderAnswerError("secret"), "embedder", "the embedding model"),
        (NavigatorError("secret"), None, "something that is needed"),
        (FilterError("secret"), None, "something that is needed"),
    ],
)
def test_what_is_away_is_named_and_nothing_else(error: BanyanError, missing: str | None, called: str) -> None:
    answer = problem_of(error).response("r")
    said = json.loads(bytes(answer.body))
    assert (answer.status_code, said["missing"], answer.headers["retry-after"]) == (503, missing, "1")
    assert said["detail"] == f"{called} cannot be used now; try again"
    assert b"secret" not in bytes(answer.body)


def test_a_service_that_ends_speaks_of_itself_and_not_of_the_library() -> None:
    answer = problem_of(ClosedError("open it again with open_local")).response("r")
    said = json.loads(bytes(answer.body))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert said["detail"] == "the service is being stopped; ask again once it is back"


def test_a_question_s_error_names_its_part_once() -> None:
    for error, reason in (
        (QueryError("query: is empty"), "is empty"),
        (QueryError("k must be between 1 and 9, got 10", field="k"), "must be between 1 and 9, got 10"),
        (QueryError("agent cannot filter", field="filter"), "agent cannot filter"),
    ):
        said = json.loads(bytes(problem_of(error).response("r").body))
        assert (said["status"], said["detail"]) == (422, str(error))
        assert said["errors"] == [{"field": error.field, "reason": reason}]
