"""HAT's prompt with a structured answer, against a server that speaks the API and misbehaves on command."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from memory.adapters.openai.client import Endpoint
from memory.adapters.openai.navigator import TEXT_CHARACTERS_MAX, OpenAINavigator, asked, read
from memory.errors import NavigatorError, SettingError
from memory.ports.navigator import Action, Choice, Situation, WalkStep
from tests.fakes.openai_server import FakeOpenAIServer

WALK = (
    WalkStep(layer=0, node=0, action=Action.DOWN, reason="details are needed"),
    WalkStep(layer=1, node=2, action=Action.RIGHT, reason="later", error="R is not possible: this is the last node of the layer"),
)
SITUATION = Situation(
    question="Did you manage to go for a run today?",
    layer=1,
    node=2,
    layers=4,
    nodes=3,
    text="Speaker 2 enjoys walking and running.",
    similarity=0.4,
    walk=WALK,
    moves_left=6,
)


@pytest.fixture
def server() -> Iterator[FakeOpenAIServer]:
    with FakeOpenAIServer() as fake:
        yield fake


async def no_sleep(_: float) -> None:
    return None


def navigator(server: FakeOpenAIServer) -> OpenAINavigator:
    return OpenAINavigator(
        model="m", endpoint=Endpoint(api_key="sk-secret", base_url=server.base_url, timeout_s=60.0), sleep=no_sleep
    )


async def test_the_model_is_asked_as_the_paper_asks_and_for_a_structured_answer(server: FakeOpenAIServer) -> None:
    server.fail_next("content", message=json.dumps({"action": "D", "reason": "more details"}))
    made = navigator(server)
    assert await made.choose(SITUATION) == Choice(action=Action.DOWN, reason="more details")
    [request] = server.requests
    schema = request.body["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert schema["schema"]["properties"]["action"]["enum"] == ["U", "D", "L", "R", "S", "O", "I"]
    prompt = request.body["messages"][-1]["content"]
    for part in (
        "You are an agent traversing a tree.",
        "Traversal History: (layer 0, node 0) D → (layer 1, node 2) R refused",
        "(layer 0, node 0) D: details are needed",
        "Current Location: Layer: 1, Node: 2",
        "Total Layers: 4,",
        "Total Nodes in Current Layer: 3",
        "Moves Left: 6",
        "Details/Personas: Speaker 2 enjoys walking and running.",
        "User Message: Did you manage to go for a run today?",
        "Errors: R is not possible: this is the last node of the layer",
    ):
        assert part in prompt, part
    await made.close()


async def test_a_server_without_structured_output_is_asked_plainly_from_then_on(server: FakeOpenAIServer) -> None:
    server.fail_next("status", status=400, message="response_format is not supported")
    server.fail_next("content", message="Action: R\nReason: it may be later", times=2)
    made = navigator(server)
    assert await made.choose(SITUATION) == Choice(action=Action.RIGHT, reason="it may be later")
    await made.choose(SITUATION)
    assert ["response_format" in request.body for request in server.requests] == [True, False, False]
    await made.close()


@pytest.mark.parametrize("kind", ["disconnect", "malformed", "not-json", "no-choices", "hang"])
async def test_a_model_that_is_away_is_told_from_an_answer(server: FakeOpenAIServer, kind: str) -> None:
    server.fail_next(kind, times=10)  # type: ignore[arg-type]
    made = OpenAINavigator(
        model="m", endpoint=Endpoint(api_key="k", base_url=server.base_url, timeout_s=0.2, attempts=1), sleep=no_sleep
    )
    with pytest.raises(NavigatorError):
        await made.choose(SITUATION)
    await made.close()


@pytest.mark.parametrize(
    ("status", "error"), [(429, NavigatorError), (500, NavigatorError), (422, NavigatorError), (401, SettingError)]
)
async def test_refusals(server: FakeOpenAIServer, status: int, error: type[Exception]) -> None:
    server.fail_next("status", status=status, times=10, message="no, sk-secret")
    made = navigator(server)
    with pytest.raises(error) as raised:
        await made.choose(SITUATION)
    assert "sk-secret" not in str(raised.value) + repr(made)
    await made.close()


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ('{"action": "U", "reason": "up"}', Choice(action=Action.UP, reason="up")),
        ('```json\n{"action": "o", "reason": "enough"}\n```', Choice(action=Action.SUFFICIENT, reason="enough")),
        ("Action: S\nReason: start again\nfrom the root", Choice(action=Action.RESET, reason="start again\nfrom the root")),
        ("**Action:** 'L'\n**Reason:** past", Choice(action=Action.LEFT, reason="past")),
        ("I", Choice(action=Action.INSUFFICIENT, reason="")),
        ('{"action": "JUMP", "reason": "?"}', Choice(action=None, reason="?")),
        ('{"action": 7}', Choice(action=None, reason="")),
        ("{broken", Choice(action=None, reason="")),
        ("", Choice(action=None, reason="")),
        ("I would like to think about it", Choice(action=None, reason="")),
    ],
)
def test_what_is_read_from_an_answer(answer: str, choice: Choice) -> None:
    assert read(answer) == choice


def test_a_long_text_is_cut_and_braces_are_only_text() -> None:
    situation = Situation(
        question="{question}",
        layer=0,
        node=0,
        layers=1,
        nodes=1,
        text="{x}" + "y" * 20_000,
        similarity=0.0,
        walk=(),
        moves_left=1,
    )
    prompt = asked(situation)
    assert "User Message: {question}" in prompt
    assert "y" * (TEXT_CHARACTERS_MAX - 3) in prompt
    assert "y" * (TEXT_CHARACTERS_MAX - 2) not in prompt
    assert "Errors: none" in prompt


def test_a_model_needs_a_name() -> None:
    with pytest.raises(SettingError, match="BANYAN_NAVIGATOR"):
        OpenAINavigator(model="", endpoint=Endpoint(api_key="k"))
