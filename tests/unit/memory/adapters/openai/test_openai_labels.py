"""The OpenAI labels over a real socket, against a server that misbehaves."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.labels import ANSWERS_MAX, LABEL_CHARACTERS_MAX, OpenAILabels, read
from memory.errors import LabelError, SettingError
from tests.fakes.openai_server import FakeOpenAIServer, Kind

TEXTS = ["I had my knee operated on.", "The garden needs water."]
GOOD = [("Health", "Injuries", "Knee surgery"), ("Home", "Garden", "Watering")]


def placed(*labels: tuple[object, ...]) -> str:
    return json.dumps({"placements": [dict(zip(("domain", "category", "trace"), each, strict=False)) for each in labels]})


async def no_wait(seconds: float) -> None:
    assert seconds >= 0


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as made:
        yield made


def extractor(server: FakeOpenAIServer) -> OpenAILabels:
    return OpenAILabels(model="m", endpoint=Endpoint(api_key="sk-secret", base_url=server.base_url, timeout_s=60.0), sleep=no_wait)


async def test_each_text_gets_its_labels(server: FakeOpenAIServer) -> None:
    server.fail_next("content", message=placed(*GOOD))
    labels = extractor(server)
    assert await labels.labels(TEXTS, known=[("Health", "Injuries", "Broken arm")]) == GOOD
    [request] = server.requests
    assert request.body["response_format"]["json_schema"]["strict"] is True
    said = request.body["messages"][1]["content"]
    assert all(text in said for text in TEXTS)
    assert "Broken arm" in said
    await labels.close()


@pytest.mark.parametrize(
    "answer",
    [
        "no JSON at all",
        "{",
        "[" * 5_000,
        "{}",
        '{"placements": {}}',
        placed(GOOD[0]),
        placed(*GOOD, GOOD[0]),
        placed(GOOD[0], ("Home", "", "Watering")),
        placed(GOOD[0], ("Home", 5, "Watering")),
        placed(GOOD[0], ("Home", "Garden")),
        placed(GOOD[0], ("Ho\u0000me", "Garden", "Watering")),
        '{"placements": [1, 2]}',
    ],
)
async def test_an_answer_that_is_not_of_the_form_is_asked_for_again(server: FakeOpenAIServer, answer: str) -> None:
    server.fail_next("content", message=answer)
    server.fail_next("content", message=placed(*GOOD))
    labels = extractor(server)
    assert await labels.labels(TEXTS, known=[]) == GOOD
    assert len(server.requests) == 2
    assert "could not be used" in server.requests[1].body["messages"][1]["content"]
    await labels.close()


async def test_three_unusable_answers_are_enough(server: FakeOpenAIServer) -> None:
    labels = extractor(server)
    with pytest.raises(LabelError, match="no usable labels in 3 answers") as refused:
        await labels.labels(TEXTS, known=[])
    assert len(server.requests) == ANSWERS_MAX
    assert "sk-secret" not in f"{refused.value} {labels!r}"
    await labels.close()


@pytest.mark.parametrize("kind", ["malformed", "not-json", "disconnect", "no-choices"])
async def test_what_is_no_answer_at_all_is_told(server: FakeOpenAIServer, kind: Kind) -> None:
    server.fail_next(kind, times=8)
    labels = extractor(server)
    with pytest.raises(LabelError):
        await labels.labels(TEXTS, known=[])
    await labels.close()


async def test_a_busy_server_is_tried_again_and_its_wish_passed_on(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=429, retry_after="1")
    server.fail_next("content", message=placed(*GOOD))
    labels = extractor(server)
    assert await labels.labels(TEXTS, known=[]) == GOOD
    server.fail_next("status", status=429, retry_after="3600")
    with pytest.raises(LabelError) as refused:
        await labels.labels(TEXTS, known=[])
    assert refused.value.retry_after == 3600
    await labels.close()


async def test_a_refused_key_is_the_settings_fault(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=401)
    labels = extractor(server)
    with pytest.raises(SettingError, match="OPENAI_API_KEY"):
        await labels.labels(TEXTS, known=[])
    await labels.close()


async def test_a_server_without_structured_output_is_asked_without(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=400, message="response_format is not supported")
    server.fail_next("content", message=f"Here you are:\n```json\n{placed(*GOOD)}\n```")
    server.fail_next("content", message=placed(*GOOD))
    labels = extractor(server)
    for _ in range(2):
        assert await labels.labels(TEXTS, known=[]) == GOOD
    assert ["response_format" in request.body for request in server.requests] == [True, False, False]
    await labels.close()


def test_labels_are_short_and_on_one_line() -> None:
    [(domain, category, _)] = read(placed((" Health \n and body ", "x" * 500, "y")), 1)
    assert domain == "Health and body"
    assert len(category) == LABEL_CHARACTERS_MAX


def test_it_needs_a_model() -> None:
    with pytest.raises(SettingError, match="BANYAN_LABELS"):
        OpenAILabels(model="", endpoint=Endpoint(api_key="k"))
